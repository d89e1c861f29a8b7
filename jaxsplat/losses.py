"""How far apart two pictures are: L1, MSE, PSNR and SSIM over `[..., H, W, D]`, one value a picture."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsplat import _check, _ffi, _linalg

SSIM_C1 = 0.01**2
SSIM_C2 = 0.03**2
SSIM_RADIUS = 5
SSIM_SIGMA = 1.5


def _gaussian_window() -> tuple[float, ...]:
    weights = [math.exp(-0.5 * (i / SSIM_SIGMA) ** 2) for i in range(-SSIM_RADIUS, SSIM_RADIUS + 1)]
    return tuple(weight / sum(weights) for weight in weights)


_WINDOW = _gaussian_window()


def _checked(function: str, images: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both pictures with the same leading axes."""
    sizes = _check.shapes(function, images=(images, "... H W D"), targets=(targets, "... H W D"))
    _check.floating(function, images=images, targets=targets)
    shape = (*sizes["..."], sizes["H"], sizes["W"], sizes["D"])
    return jnp.broadcast_to(images, shape), jnp.broadcast_to(targets, shape)


def l1(images: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean absolute difference.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].

    Returns:
      [...] one value a picture.

    Example:
      >>> images = jnp.full((4, 4, 3), 0.5)
      >>> l1(images, jnp.zeros_like(images))
      Array(0.5, dtype=float32)
    """
    images, targets = _checked("l1", images, targets)
    return jnp.abs(images - targets).mean((-3, -2, -1))


def mse(images: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean squared difference.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].

    Returns:
      [...] one value a picture.

    Example:
      >>> images = jnp.full((4, 4, 3), 0.5)
      >>> mse(images, jnp.zeros_like(images))
      Array(0.25, dtype=float32)
    """
    images, targets = _checked("mse", images, targets)
    return jnp.square(images - targets).mean((-3, -2, -1))


def psnr(images: jax.Array, targets: jax.Array) -> jax.Array:
    """Peak signal-to-noise ratio for values in 0..1: -10 log10(MSE), in decibels; at most 100.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].

    Returns:
      [...] one value a picture.

    Example:
      >>> images = jnp.full((4, 4, 3), 0.1)
      >>> psnr(images, jnp.zeros_like(images))
      Array(20., dtype=float32)
    """
    return -10.0 * jnp.log10(jnp.maximum(mse(images, targets), 1e-10))


def ssim(images: jax.Array, targets: jax.Array, *, valid: bool = False) -> jax.Array:
    """Structural similarity (Wang et al. 2004) with the field's window: 11x11 Gaussian of sigma 1.5, values in 0..1.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].
      valid: average only where the window lies inside the picture, instead of padding with zeros.

    Returns:
      [...] one value a picture, 1 where both are equal.

    Raises:
      ValueError: when the shapes differ, or `valid` leaves no pixel.

    Example:
      >>> images = jnp.full((16, 16, 3), 0.5)
      >>> ssim(images, images)
      Array(1., dtype=float32)
    """
    images, targets = _checked("ssim", images, targets)
    height, width = images.shape[-3:-1]
    if valid and min(height, width) <= 2 * SSIM_RADIUS:
        raise ValueError(f"ssim: valid=True needs H and W above {2 * SSIM_RADIUS}, got H = {height}, W = {width}")
    # One number for all pixels, or zeros at the border.
    weights = np.ones((1, 1, 1))
    if valid:
        weights = np.pad(
            np.ones((height - 2 * SSIM_RADIUS, width - 2 * SSIM_RADIUS, 1)), [(SSIM_RADIUS,) * 2] * 2 + [(0, 0)]
        )
    weights = jnp.asarray(weights, images.dtype)
    count = (height - 2 * SSIM_RADIUS) * (width - 2 * SSIM_RADIUS) if valid else height * width
    total: Any = _weighted_ssim(_WINDOW, images, targets, weights)
    return total / (count * images.shape[-1])


Window = tuple[float, ...]
"""Weights of a symmetric separable window of odd size."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _weighted_ssim(window: Window, x: jax.Array, y: jax.Array, weights: jax.Array) -> jax.Array:
    """Sum of the SSIM at every value of [..., H, W, D] times weights that broadcast against them."""
    if _ffi.takes(x, y):
        values = _native("ssim", window, x, y)[0]
    else:
        a1, a2, b1, b2 = _terms(_moments(window, x, y))
        values = a1 * a2 / (b1 * b2)
    return (values * _linalg.lift(weights, values.ndim)).sum((-3, -2, -1))


def _weighted_ssim_fwd(window: Window, x: Any, y: Any, weights: Any) -> tuple[jax.Array, Any]:
    """The kernel gives the gradient with the value, for about the price of one of them."""
    x_moves, y_moves = x.perturbed, y.perturbed
    x, y, weights = x.value, y.value, weights.value
    gradient = _native_gradient if _ffi.takes(x, y) else _gradient
    values, v_x = gradient(window, x, y, weights)
    v_y = gradient(window, y, x, weights)[1] if y_moves else None
    total = (values * _linalg.lift(weights, values.ndim)).sum((-3, -2, -1))
    return total, (v_x if x_moves else None, v_y, values, weights)


def _weighted_ssim_bwd(window: Window, residuals: Any, cotangent: jax.Array) -> tuple[Any, Any, jax.Array]:
    del window
    v_x, v_y, values, weights = residuals
    v = cotangent[..., None, None, None]
    v_weights = _linalg.unbroadcast(v * values, _linalg.lift(weights, values.ndim).shape).reshape(weights.shape)
    return None if v_x is None else v * v_x, None if v_y is None else v * v_y, v_weights


_weighted_ssim.defvjp(_weighted_ssim_fwd, _weighted_ssim_bwd, symbolic_zeros=True)


def _native(target: str, window: Window, *images: jax.Array) -> list[jax.Array]:
    """Calls a kernel on pictures."""
    operands = [*images[:2], jnp.asarray(window, images[0].dtype), *images[2:]]
    ranks = [operand.ndim if operand.ndim < 3 else 3 for operand in operands]
    results = [(images[0].shape[-3:], images[0].dtype)] * (len(images) - 1)
    return _ffi.call(target, operands, ranks, results, c1=SSIM_C1, c2=SSIM_C2)


def _native_gradient(window: Window, x: jax.Array, y: jax.Array, weights: jax.Array) -> list[jax.Array]:
    if weights.size != 1:
        weights = jnp.broadcast_to(weights, (*weights.shape[:-3], *x.shape[-3:]))
    return _native("ssim_gradient", window, x, y, weights)


def _gradient(window: Window, x: jax.Array, y: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Values, and the gradient of their weighted sum with respect to x.

    Closed form by the raw moments E[x], E[xx], E[xy], then three blurs. Autodiff is 20 times slower.
    """
    cotangent = jnp.broadcast_to(weights, x.shape)
    moments = _moments(window, x, y)
    mean_x, mean_y = moments[:2]
    a1, a2, b1, b2 = _terms(moments)
    similarity = a1 * a2 / (b1 * b2)
    v_xx = -cotangent * similarity / b2
    v_xy = cotangent * 2.0 * a1 / (b1 * b2)
    v_mean = cotangent * 2.0 * (mean_y * a2 / (b1 * b2) - mean_x * similarity / b1)
    v_mean -= 2.0 * v_xx * mean_x + v_xy * mean_y
    v_x = _blur(window, v_mean) + 2.0 * x * _blur(window, v_xx) + y * _blur(window, v_xy)
    return similarity, v_x


_Moments = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


def _moments(window: Window, x: jax.Array, y: jax.Array) -> _Moments:
    """Local mean of each picture, variance of each, and covariance."""
    mean_x, mean_y = _blur(window, x), _blur(window, y)
    var_x = _blur(window, x * x) - mean_x * mean_x
    var_y = _blur(window, y * y) - mean_y * mean_y
    return mean_x, mean_y, var_x, var_y, _blur(window, x * y) - mean_x * mean_y


def _terms(moments: _Moments) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    mean_x, mean_y, var_x, var_y, covariance = moments
    return (
        2.0 * mean_x * mean_y + SSIM_C1,
        2.0 * covariance + SSIM_C2,
        mean_x * mean_x + mean_y * mean_y + SSIM_C1,
        var_x + var_y + SSIM_C2,
    )


def _blur(window: Window, images: jax.Array) -> jax.Array:
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
