"""The structural similarity of two pictures: its window, its closed-form gradient, and its kernel on CPUs."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsplat import _ffi, _linalg

SSIM_C1 = 0.01**2
SSIM_C2 = 0.03**2
SSIM_RADIUS = 5
SSIM_SIGMA = 1.5


def _gaussian_window() -> tuple[float, ...]:
    weights = [math.exp(-0.5 * (i / SSIM_SIGMA) ** 2) for i in range(-SSIM_RADIUS, SSIM_RADIUS + 1)]
    return tuple(weight / sum(weights) for weight in weights)


_Weights = tuple[float, ...]
"""Of a symmetric separable window of odd size."""

WINDOWS: dict[str, _Weights] = {
    "gaussian": _gaussian_window(),
    "uniform": (1.0 / (2 * SSIM_RADIUS + 1),) * (2 * SSIM_RADIUS + 1),
}


class Similarity(NamedTuple):
    """What SSIM is made of: a window, and the constant that keeps flat pictures alike."""

    window: _Weights
    c2: float = SSIM_C2
    renormalized: bool = False


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def weighted_ssim(kind: Similarity, x: jax.Array, y: jax.Array, weights: jax.Array) -> jax.Array:
    """Sum of the SSIM at every value of [..., H, W, D] times weights that broadcast against them."""

    def plain(x: jax.Array, y: jax.Array) -> jax.Array:
        a1, a2, b1, b2 = _terms(kind, _moments(kind, x, y))
        return a1 * a2 / (b1 * b2)

    def native(x: jax.Array, y: jax.Array) -> jax.Array:
        return _native("ssim", kind, x, y)[0]

    values = _ffi.by_platform(native, plain, x, y) if _has_kernel(kind, x, y) else plain(x, y)
    return (values * _linalg.lift(weights, values.ndim)).sum((-3, -2, -1))


def weighted_ssim_fwd(kind: Similarity, x: Any, y: Any, weights: Any) -> tuple[jax.Array, Any]:
    """The kernel gives the gradient with the value, for about the price of one of them."""
    x_moves, y_moves = x.perturbed, y.perturbed
    x, y, weights = x.value, y.value, weights.value
    native = functools.partial(_native_gradient, kind)
    plain = functools.partial(_gradient, kind)
    gradient = functools.partial(_ffi.by_platform, native, plain) if _has_kernel(kind, x, y) else plain
    values, v_x = gradient(x, y, weights)
    v_y = gradient(y, x, weights)[1] if y_moves else None
    total = (values * _linalg.lift(weights, values.ndim)).sum((-3, -2, -1))
    return total, (v_x if x_moves else None, v_y, values, weights)


def weighted_ssim_bwd(kind: Similarity, residuals: Any, cotangent: jax.Array) -> tuple[Any, Any, jax.Array]:
    del kind
    v_x, v_y, values, weights = residuals
    v = cotangent[..., None, None, None]
    v_weights = _linalg.unbroadcast(v * values, _linalg.lift(weights, values.ndim).shape).reshape(weights.shape)
    return None if v_x is None else v * v_x, None if v_y is None else v * v_y, v_weights


weighted_ssim.defvjp(weighted_ssim_fwd, weighted_ssim_bwd, symbolic_zeros=True)


def _native(target: str, kind: Similarity, *images: jax.Array) -> list[jax.Array]:
    """Calls a kernel on pictures."""
    operands = [*images[:2], jnp.asarray(kind.window, images[0].dtype), *images[2:]]
    ranks = [operand.ndim if operand.ndim < 3 else 3 for operand in operands]
    results = [(images[0].shape[-3:], images[0].dtype)] * (len(images) - 1)
    return _ffi.call(target, operands, ranks, results, c1=SSIM_C1, c2=kind.c2)


def _native_gradient(kind: Similarity, x: jax.Array, y: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    if weights.size != 1:
        weights = jnp.broadcast_to(weights, (*weights.shape[:-3], *x.shape[-3:]))
    values, v_x = _native("ssim_gradient", kind, x, y, weights)
    return values, v_x


def _has_kernel(kind: Similarity, x: jax.Array, y: jax.Array) -> bool:
    return not kind.renormalized and _ffi.takes(x, y)


def _gradient(kind: Similarity, x: jax.Array, y: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Values, and the gradient of their weighted sum with respect to x.

    Closed form by the raw moments E[x], E[xx], E[xy], then three blurs. Autodiff is 20 times slower.
    """
    cotangent = jnp.broadcast_to(weights, x.shape)
    moments = _moments(kind, x, y)
    mean_x, mean_y = moments[:2]
    a1, a2, b1, b2 = _terms(kind, moments)
    similarity = a1 * a2 / (b1 * b2)
    v_xx = -cotangent * similarity / b2
    v_xy = cotangent * 2.0 * a1 / (b1 * b2)
    v_mean = cotangent * 2.0 * (mean_y * a2 / (b1 * b2) - mean_x * similarity / b1)
    v_mean -= 2.0 * v_xx * mean_x + v_xy * mean_y
    # The transpose of an average: the window is symmetric, what lies outside had no part.
    v_mean, v_xx, v_xy = (_blur(kind.window, v / _coverage(kind, v)) for v in (v_mean, v_xx, v_xy))
    return similarity, v_mean + 2.0 * x * v_xx + y * v_xy


def _moments(kind: Similarity, x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    """Local mean of each picture, variance of each, and covariance."""

    def average(values: jax.Array) -> jax.Array:
        return _blur(kind.window, values) / _coverage(kind, values)

    mean_x, mean_y = average(x), average(y)
    var_x = average(x * x) - mean_x * mean_x
    var_y = average(y * y) - mean_y * mean_y
    return mean_x, mean_y, var_x, var_y, average(x * y) - mean_x * mean_y


def _coverage(kind: Similarity, images: jax.Array) -> Any:
    """How much of the window lies inside the picture at each pixel, [1 ..., H, W, 1]; 1 where zeros count as well."""
    if not kind.renormalized:
        return 1.0
    rows, columns = (
        np.convolve(np.ones(size), kind.window, "full")[SSIM_RADIUS:][:size] for size in images.shape[-3:-1]
    )
    return _linalg.lift(jnp.asarray(rows[:, None, None] * columns[:, None], images.dtype), images.ndim)


def _terms(kind: Similarity, moments: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    mean_x, mean_y, var_x, var_y, covariance = moments
    return (
        2.0 * mean_x * mean_y + SSIM_C1,
        2.0 * covariance + kind.c2,
        mean_x * mean_x + mean_y * mean_y + SSIM_C1,
        var_x + var_y + kind.c2,
    )


def _blur(window: _Weights, images: jax.Array) -> jax.Array:
    """Blurs [..., H, W, D] with a window, zeros outside. Shifted adds: a convolution is 30 times slower on a CPU."""
    channels, reach = images.shape[-1], len(window) // 2
    # Channels and columns share one axis, so that a shift by a column is a contiguous shift by `channels`.
    rows = images.reshape(*images.shape[:-2], -1)
    for axis, stride in ((rows.ndim - 2, 1), (rows.ndim - 1, channels)):
        size = rows.shape[axis]
        pads = [(0, 0)] * rows.ndim
        pads[axis] = (reach * stride, reach * stride)
        # Without the barriers XLA fuses the two passes and computes the products of the full window.
        padded = lax.optimization_barrier(jnp.pad(rows, pads))
        total = jnp.zeros_like(rows)
        for tap, weight in enumerate(window):
            total += weight * lax.slice_in_dim(padded, tap * stride, tap * stride + size, axis=axis)
        rows = lax.optimization_barrier(total)
    return rows.reshape(images.shape)
