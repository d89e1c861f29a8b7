"""How far apart two pictures are: L1, MSE, Huber, PSNR and SSIM over `[..., H, W, D]`, one value a picture.

A mask [..., H, W] weights the pixels: the value is the weighted mean, and a pixel of weight zero counts for nothing,
whatever it holds. Where all weights of a picture are zero, so are its losses, and its SSIM is one.
"""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _check

SSIM_C1 = 0.01**2
SSIM_C2 = 0.03**2
SSIM_RADIUS = 5
SSIM_SIGMA = 1.5


def _gaussian_window() -> tuple[float, ...]:
    weights = [math.exp(-0.5 * (i / SSIM_SIGMA) ** 2) for i in range(-SSIM_RADIUS, SSIM_RADIUS + 1)]
    return tuple(weight / sum(weights) for weight in weights)


_WINDOW = _gaussian_window()
_UNIFORM_WINDOW = (1.0 / (2 * SSIM_RADIUS + 1),) * (2 * SSIM_RADIUS + 1)

Difference = Literal["l1", "mse", "huber"]
Window = Literal["gaussian", "uniform"]


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
    masks: jax.Array | None = None,
) -> jax.Array:
    """Structural similarity (Wang et al. 2004) with the field's window: 11x11 Gaussian of sigma 1.5, values in 0..1.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].
      valid: average only where the window lies inside the picture, instead of padding with zeros.
      window: "gaussian", or "uniform": 121 equal weights (its gradient is slower).
      masks: [..., H, W] weights of the pixels. Windows see both pictures as equal (black) where the weight is zero.

    Returns:
      [...] one value a picture, 1 where both are equal.

    Raises:
      ValueError: when the shapes differ, or `valid` leaves no pixel.

    Example:
      >>> images = jnp.full((16, 16, 3), 0.5)
      >>> ssim(images, images)
      Array(1., dtype=float32)
    """
    images, targets, weights = _checked("ssim", images, targets, masks)
    _check.choice("ssim", "window", window, ("gaussian", "uniform"))
    *lead, height, width, channels = images.shape
    if valid and min(height, width) <= 2 * SSIM_RADIUS:
        raise ValueError(f"ssim: valid=True needs H and W above {2 * SSIM_RADIUS}, got H = {height}, W = {width}")
    # Channels and columns share one axis, so that a shift by a column is a contiguous shift by `channels`.
    rows = (*lead, height, width * channels)
    ssim_map = _ssim_map if window == "gaussian" else _uniform_ssim_map
    values = ssim_map(channels, images.reshape(rows), targets.reshape(rows)).reshape(images.shape)
    if valid:
        inside = slice(SSIM_RADIUS, -SSIM_RADIUS)
        values = values[..., inside, inside, :]
        weights = weights if weights is None else weights[..., inside, inside, :]
    return values.mean((-3, -2, -1)) if weights is None else 1.0 - _mean(1.0 - values, weights)


def photometric(
    images: jax.Array,
    targets: jax.Array,
    *,
    difference: Difference = "l1",
    ssim_weight: float = 0.2,
    huber_delta: float = 0.1,
    masks: jax.Array | None = None,
) -> jax.Array:
    """The loss of training: (1 - w) times a difference plus w times 1 - SSIM.

    Args:
      images: [..., H, W, D].
      targets: [..., H, W, D].
      difference: "l1", "mse" or "huber".
      ssim_weight: w, in 0..1.
      huber_delta: where the parabola of "huber" ends.
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
    return (1.0 - ssim_weight) * apart + ssim_weight * (1.0 - ssim(images, targets, masks=masks))


def _uniform_ssim_map(channels: int, x: jax.Array, y: jax.Array) -> jax.Array:
    a1, a2, b1, b2 = _terms(_moments(x, y, channels, _UNIFORM_WINDOW))
    return a1 * a2 / (b1 * b2)


def _blur(rows: jax.Array, channels: int, window: tuple[float, ...] = _WINDOW) -> jax.Array:
    """Blurs [..., H, W * channels] with the window, zeros outside. Shifted adds: a convolution is 30 times slower."""
    for axis, stride in ((-2, 1), (-1, channels)):
        size = rows.shape[axis]
        pads = [(0, 0)] * rows.ndim
        pads[axis] = (SSIM_RADIUS * stride, SSIM_RADIUS * stride)
        # Without the barriers XLA fuses the two passes and computes the 121 products of the full window.
        padded = lax.optimization_barrier(jnp.pad(rows, pads))
        total = jnp.zeros_like(rows)
        for tap, weight in enumerate(window):
            total += weight * lax.slice_in_dim(padded, tap * stride, tap * stride + size, axis=axis % rows.ndim)
        rows = lax.optimization_barrier(total)
    return rows


_Moments = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


def _moments(x: jax.Array, y: jax.Array, channels: int, window: tuple[float, ...] = _WINDOW) -> _Moments:
    """Local mean of each picture, variance of each, and covariance."""
    mean_x, mean_y = _blur(x, channels, window), _blur(y, channels, window)
    var_x = _blur(x * x, channels, window) - mean_x * mean_x
    var_y = _blur(y * y, channels, window) - mean_y * mean_y
    return mean_x, mean_y, var_x, var_y, _blur(x * y, channels, window) - mean_x * mean_y


def _terms(moments: _Moments) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    mean_x, mean_y, var_x, var_y, covariance = moments
    return (
        2.0 * mean_x * mean_y + SSIM_C1,
        2.0 * covariance + SSIM_C2,
        mean_x * mean_x + mean_y * mean_y + SSIM_C1,
        var_x + var_y + SSIM_C2,
    )


def _ssim_map_fwd(channels: int, x: jax.Array, y: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array, _Moments]]:
    moments = _moments(x, y, channels)
    a1, a2, b1, b2 = _terms(moments)
    return a1 * a2 / (b1 * b2), (x, y, moments)


def _ssim_map_bwd(
    channels: int, residuals: tuple[jax.Array, jax.Array, _Moments], cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Closed form: with respect to the raw moments E[x], E[xx], E[xy], then three blurs (the window is symmetric)."""
    x, y, moments = residuals
    mean_x, mean_y = moments[:2]
    a1, a2, b1, b2 = _terms(moments)
    similarity = a1 * a2 / (b1 * b2)
    v_xx = -cotangent * similarity / b2
    v_xy = cotangent * 2.0 * a1 / (b1 * b2)
    blurred_xx, blurred_xy = _blur(v_xx, channels), _blur(v_xy, channels)

    def gradient(image: jax.Array, other: jax.Array, mean: jax.Array, mean_other: jax.Array) -> jax.Array:
        v_mean = cotangent * 2.0 * (mean_other * a2 / (b1 * b2) - mean * similarity / b1)
        v_mean -= 2.0 * v_xx * mean + v_xy * mean_other
        return _blur(v_mean, channels) + 2.0 * image * blurred_xx + other * blurred_xy

    return gradient(x, y, mean_x, mean_y), gradient(y, x, mean_y, mean_x)


def _ssim_map_primal(channels: int, x: jax.Array, y: jax.Array) -> jax.Array:
    """SSIM at every value of [..., H, W * channels]. Autodiff of the plain code is 20 times slower."""
    return _ssim_map_fwd(channels, x, y)[0]


_ssim_map = jax.custom_vjp(_ssim_map_primal, nondiff_argnums=(0,))
_ssim_map.defvjp(_ssim_map_fwd, _ssim_map_bwd)
