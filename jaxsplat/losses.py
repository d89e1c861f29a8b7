"""How far apart two pictures are: L1, MSE, Huber, PSNR and SSIM over `[..., H, W, D]`, one value a picture.

A mask [..., H, W] weights the pixels: the value is the weighted mean, and a pixel of weight zero counts for nothing,
whatever it holds. Where all weights of a picture are zero, so are its losses, and its SSIM is one.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import _check, _linalg
from jaxsplat._similarity import SSIM_C1 as SSIM_C1
from jaxsplat._similarity import SSIM_C2, SSIM_RADIUS, WINDOWS, Similarity, weighted_ssim
from jaxsplat._similarity import SSIM_SIGMA as SSIM_SIGMA

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
    _check.choice("ssim", "window", window, tuple(WINDOWS))
    if not c2 > 0:
        raise ValueError(f"ssim: c2 must be above 0, got {c2}.")
    _check.choice("ssim", "border", border, ("zeros", "renormalize"))
    # Nothing of the window is outside where it counts.
    similarity = Similarity(WINDOWS[window], float(c2), border == "renormalize" and not valid)
    height, width = images.shape[-3:-1]
    if valid and min(height, width) <= 2 * SSIM_RADIUS:
        raise ValueError(f"ssim: valid=True needs H and W above {2 * SSIM_RADIUS}, got H = {height}, W = {width}")
    if weights is None:
        # One number for all pixels, or zeros at the border.
        weights = jnp.asarray(_inside(height, width) if valid else np.ones((1, 1, 1)), images.dtype)
        count = (height - 2 * SSIM_RADIUS) * (width - 2 * SSIM_RADIUS) if valid else height * width
        total: Any = weighted_ssim(similarity, images, targets, weights)
        return total / (count * images.shape[-1])
    if valid:
        weights = weights * _linalg.lift(jnp.asarray(_inside(height, width), images.dtype), weights.ndim)
    count = weights.sum((-3, -2, -1)) * images.shape[-1]
    total = weighted_ssim(similarity, images, targets, weights)
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
