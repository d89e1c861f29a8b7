"""How far apart two pictures are: L1, MSE, Huber, PSNR and SSIM over `[..., H, W, D]`, one value a picture.

A mask [..., H, W] weights the pixels: the value is the weighted mean, and a pixel of weight zero counts for nothing,
whatever it holds. Where all weights of a picture are zero, so are its losses, and its SSIM is one.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, NamedTuple

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


_Weights = tuple[float, ...]
"""Of a symmetric separable window of odd size."""

_WINDOWS: dict[str, _Weights] = {
    "gaussian": _gaussian_window(),
    "uniform": (1.0 / (2 * SSIM_RADIUS + 1),) * (2 * SSIM_RADIUS + 1),
}


class _Similarity(NamedTuple):
    """What SSIM is made of: a window, and the constant that keeps flat pictures alike."""

    window: _Weights
    c2: float = SSIM_C2
    renormalized: bool = False


Difference = Literal["l1", "mse", "huber"]
Window = Literal["gaussian", "uniform"]
Border = Literal["zeros", "renormalize"]


def _checked(
    function: str, images: jax.Array, targets: jax.Array, masks: jax.Array | None = None
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Both pictures, and the weights as [..., H, W, 1], with the same leading axes."""
    sizes = _check.shapes(
        function, images=(images, "... H W D"), targets=(targets, "... H W D"), masks=(masks, "... H W")
    )
    _check.floating(function, images=images, targets=targets)
    shape = (*sizes["..."], sizes["H"], sizes["W"], sizes["D"])
    images, targets = jnp.broadcast_to(images, shape), jnp.broadcast_to(targets, shape)
    if masks is None:
        return images, targets, None
    weights = jnp.broadcast_to(masks[..., None], (*shape[:-1], 1)).astype(images.dtype)
    # Before the difference is taken: a masked pixel may hold anything, NaN too.
    seen = weights > 0
    return jnp.where(seen, images, 0.0), jnp.where(seen, targets, 0.0), weights


def _mean(values: jax.Array, weights: jax.Array | None) -> jax.Array:
    axes = (-3, -2, -1)
    if weights is None:
        return values.mean(axes)
    total = weights.sum(axes) * values.shape[-1]
    return jnp.where(total > 0, (values * weights).sum(axes) / jnp.where(total > 0, total, 1.0), 0.0)


def l1(images: jax.Array, targets: jax.Array, *, masks: jax.Array | None = None) -> jax.Array:
    """Mean absolute difference.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].
      masks: [..., H, W] weights of the pixels; all alike when None.

    Returns:
      [...] one value a picture.

    Example:
      >>> images = jnp.full((4, 4, 3), 0.5)
      >>> l1(images, jnp.zeros_like(images))
      Array(0.5, dtype=float32)
    """
    images, targets, weights = _checked("l1", images, targets, masks)
    return _mean(jnp.abs(images - targets), weights)


def mse(images: jax.Array, targets: jax.Array, *, masks: jax.Array | None = None) -> jax.Array:
    """Mean squared difference.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].
      masks: [..., H, W] weights of the pixels; all alike when None.

    Returns:
      [...] one value a picture.

    Example:
      >>> images = jnp.full((4, 4, 3), 0.5)
      >>> mse(images, jnp.zeros_like(images))
      Array(0.25, dtype=float32)
    """
    images, targets, weights = _checked("mse", images, targets, masks)
    return _mean(jnp.square(images - targets), weights)


def huber(images: jax.Array, targets: jax.Array, *, delta: float = 0.1, masks: jax.Array | None = None) -> jax.Array:
    """Mean Huber loss over `delta`: |d| - delta / 2 for large differences d, d^2 / (2 delta) for small ones.

    So it is L1 with a round bottom, whatever `delta`.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].
      delta: the difference, above zero, where the parabola becomes a line.
      masks: [..., H, W] weights of the pixels; all alike when None.

    Returns:
      [...] one value a picture.

    Raises:
      ValueError: for shapes that differ, or a delta that is not above zero.

    Example:
      >>> images = jnp.full((4, 4, 3), 0.5)
      >>> huber(images, jnp.zeros_like(images), delta=0.2)
      Array(0.4, dtype=float32)
    """
    if not delta > 0:
        raise ValueError(f"huber: delta must be above 0, got {delta}.")
    images, targets, weights = _checked("huber", images, targets, masks)
    distance = jnp.abs(images - targets)
    small = jnp.minimum(distance, delta)
    return _mean(distance - small + small * small * (0.5 / delta), weights)


def psnr(images: jax.Array, targets: jax.Array, *, masks: jax.Array | None = None) -> jax.Array:
    """Peak signal-to-noise ratio for values in 0..1: -10 log10(MSE), in decibels; at most 100.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].
      masks: [..., H, W] weights of the pixels; all alike when None.

    Returns:
      [...] one value a picture.

    Example:
      >>> images = jnp.full((4, 4, 3), 0.1)
      >>> psnr(images, jnp.zeros_like(images))
      Array(20., dtype=float32)
    """
    return -10.0 * jnp.log10(jnp.maximum(mse(images, targets, masks=masks), 1e-10))


def ssim(
    images: jax.Array,
    targets: jax.Array,
    *,
    valid: bool = False,
    window: Window = "gaussian",
    c2: float = SSIM_C2,
    border: Border = "zeros",
    masks: jax.Array | None = None,
) -> jax.Array:
    """Structural similarity (Wang et al. 2004) with the field's window: 11x11 Gaussian of sigma 1.5, values in 0..1.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].
      valid: average only where the window lies inside the picture, instead of padding with zeros.
      window: "gaussian", or "uniform": 121 equal weights.
      c2: above zero, of variances; the larger, the less a faint texture counts.
      border: "zeros" lie outside the picture; or "renormalize": the window is cut there, its rest weighs 1.
      masks: [..., H, W] weights of the pixels. Windows see both pictures as equal (black) where the weight is zero.

    Returns:
      [...] one value a picture, 1 where both are equal.

    Raises:
      ValueError: when the shapes differ, `valid` leaves no pixel, or c2 is not above zero.

    Example:
      >>> images = jnp.full((16, 16, 3), 0.5)
      >>> ssim(images, images)
      Array(1., dtype=float32)
    """
    images, targets, weights = _checked("ssim", images, targets, masks)
    _check.choice("ssim", "window", window, tuple(_WINDOWS))
    if not c2 > 0:
        raise ValueError(f"ssim: c2 must be above 0, got {c2}.")
    _check.choice("ssim", "border", border, ("zeros", "renormalize"))
    # Nothing of the window is outside where it counts.
    similarity = _Similarity(_WINDOWS[window], float(c2), border == "renormalize" and not valid)
    height, width = images.shape[-3:-1]
    if valid and min(height, width) <= 2 * SSIM_RADIUS:
        raise ValueError(f"ssim: valid=True needs H and W above {2 * SSIM_RADIUS}, got H = {height}, W = {width}")
    if weights is None:
        # One number for all pixels, or zeros at the border.
        weights = jnp.asarray(_inside(height, width) if valid else np.ones((1, 1, 1)), images.dtype)
        count = (height - 2 * SSIM_RADIUS) * (width - 2 * SSIM_RADIUS) if valid else height * width
        total: Any = _weighted_ssim(similarity, images, targets, weights)
        return total / (count * images.shape[-1])
    if valid:
        weights = weights * _linalg.lift(jnp.asarray(_inside(height, width), images.dtype), weights.ndim)
    count = weights.sum((-3, -2, -1)) * images.shape[-1]
    total = _weighted_ssim(similarity, images, targets, weights)
    return jnp.where(count > 0, total / jnp.where(count > 0, count, 1.0), 1.0)


def _inside(height: int, width: int) -> np.ndarray:
    """[H, W, 1] one where the window lies inside the picture, zero at the border."""
    inner = np.ones((height - 2 * SSIM_RADIUS, width - 2 * SSIM_RADIUS, 1))
    return np.pad(inner, [(SSIM_RADIUS,) * 2] * 2 + [(0, 0)])


def photometric(
    images: jax.Array,
    targets: jax.Array,
    *,
    difference: Difference = "l1",
    ssim_weight: float = 0.2,
    huber_delta: float = 0.1,
    valid: bool = False,
    window: Window = "gaussian",
    c2: float = SSIM_C2,
    border: Border = "zeros",
    masks: jax.Array | None = None,
) -> jax.Array:
    """The loss of training: (1 - w) times a difference plus w times 1 - SSIM.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].
      difference: "l1", "mse" or "huber".
      ssim_weight: w, in 0..1.
      huber_delta: where the parabola of "huber" ends.
      valid: as in `ssim`.
      window: as in `ssim`.
      c2: as in `ssim`.
      border: as in `ssim`.
      masks: [..., H, W] weights of the pixels; all alike when None.

    Returns:
      [...] one value a picture.

    Raises:
      ValueError: for shapes that differ, or an unknown difference.

    Example:
      >>> images = jnp.full((16, 16, 3), 0.5)
      >>> photometric(images, images)
      Array(0., dtype=float32)
    """
    _check.choice("photometric", "difference", difference, ("l1", "mse", "huber"))
    if difference == "huber":
        apart = huber(images, targets, delta=huber_delta, masks=masks)
    else:
        apart = (l1 if difference == "l1" else mse)(images, targets, masks=masks)
    if not ssim_weight:
        return apart
    alike = ssim(images, targets, valid=valid, window=window, c2=c2, border=border, masks=masks)
    return with_ssim(apart, alike, ssim_weight=ssim_weight)


def with_ssim(difference: jax.Array, similarity: jax.Array, *, ssim_weight: float) -> jax.Array:
    """Blends a difference and an SSIM that are known: (1 - w) difference + w (1 - similarity)."""
    return (1.0 - ssim_weight) * difference + ssim_weight * (1.0 - similarity)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _weighted_ssim(kind: _Similarity, x: jax.Array, y: jax.Array, weights: jax.Array) -> jax.Array:
    """Sum of the SSIM at every value of [..., H, W, D] times weights that broadcast against them."""

    def plain(x: jax.Array, y: jax.Array) -> jax.Array:
        a1, a2, b1, b2 = _terms(kind, _moments(kind, x, y))
        return a1 * a2 / (b1 * b2)

    def native(x: jax.Array, y: jax.Array) -> jax.Array:
        return _native("ssim", kind, x, y)[0]

    values = _ffi.by_platform(native, plain, x, y) if _has_kernel(kind, x, y) else plain(x, y)
    return (values * _linalg.lift(weights, values.ndim)).sum((-3, -2, -1))


def _weighted_ssim_fwd(kind: _Similarity, x: Any, y: Any, weights: Any) -> tuple[jax.Array, Any]:
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


def _weighted_ssim_bwd(kind: _Similarity, residuals: Any, cotangent: jax.Array) -> tuple[Any, Any, jax.Array]:
    del kind
    v_x, v_y, values, weights = residuals
    v = cotangent[..., None, None, None]
    v_weights = _linalg.unbroadcast(v * values, _linalg.lift(weights, values.ndim).shape).reshape(weights.shape)
    return None if v_x is None else v * v_x, None if v_y is None else v * v_y, v_weights


_weighted_ssim.defvjp(_weighted_ssim_fwd, _weighted_ssim_bwd, symbolic_zeros=True)


def _native(target: str, kind: _Similarity, *images: jax.Array) -> list[jax.Array]:
    """Calls a kernel on pictures."""
    operands = [*images[:2], jnp.asarray(kind.window, images[0].dtype), *images[2:]]
    ranks = [operand.ndim if operand.ndim < 3 else 3 for operand in operands]
    results = [(images[0].shape[-3:], images[0].dtype)] * (len(images) - 1)
    return _ffi.call(target, operands, ranks, results, c1=SSIM_C1, c2=kind.c2)


def _native_gradient(kind: _Similarity, x: jax.Array, y: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    if weights.size != 1:
        weights = jnp.broadcast_to(weights, (*weights.shape[:-3], *x.shape[-3:]))
    values, v_x = _native("ssim_gradient", kind, x, y, weights)
    return values, v_x


def _has_kernel(kind: _Similarity, x: jax.Array, y: jax.Array) -> bool:
    return not kind.renormalized and _ffi.takes(x, y)


def _gradient(kind: _Similarity, x: jax.Array, y: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
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


def _moments(kind: _Similarity, x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    """Local mean of each picture, variance of each, and covariance."""

    def average(values: jax.Array) -> jax.Array:
        return _blur(kind.window, values) / _coverage(kind, values)

    mean_x, mean_y = average(x), average(y)
    var_x = average(x * x) - mean_x * mean_x
    var_y = average(y * y) - mean_y * mean_y
    return mean_x, mean_y, var_x, var_y, average(x * y) - mean_x * mean_y


def _coverage(kind: _Similarity, images: jax.Array) -> Any:
    """How much of the window lies inside the picture at each pixel, [1 ..., H, W, 1]; 1 where zeros count as well."""
    if not kind.renormalized:
        return 1.0
    rows, columns = (
        np.convolve(np.ones(size), kind.window, "full")[SSIM_RADIUS:][:size] for size in images.shape[-3:-1]
    )
    return _linalg.lift(jnp.asarray(rows[:, None, None] * columns[:, None], images.dtype), images.ndim)


def _terms(kind: _Similarity, moments: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
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
