"""Pictures that differ in exposure or white balance: a correction of the colours of each training picture."""

from __future__ import annotations

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp

from jaxsplat import _check

_LUMINANCE = (0.299, 0.587, 0.114)


@dataclasses.dataclass(frozen=True)
class Appearance:
    """Settings of the correction. Held-out views are shown without one: the mean over the training views is none.

    Attributes:
      kind: "affine", a matrix and an offset for each picture (Kerbl et al. 2024), or "bilateral", a grid of them over
        place and brightness (Wang et al. 2024).
      rate: learning rate; it falls to a hundredth over the run.
      grid: cells of the bilateral grid along brightness, height and width.
      smoothness: weight of the squared differences of neighbouring cells in the loss.
    """

    kind: Literal["none", "affine", "bilateral"] = "none"
    rate: float = 2e-3
    grid: tuple[int, int, int] = (8, 16, 16)
    smoothness: float = 10.0


def no_correction(settings: Appearance, views: int) -> jax.Array | None:
    """Parameters of so many views that change nothing: [V, 12], [V, L, Y, X, 12], or None for no correction."""
    if settings.kind == "none":
        return None
    return jnp.zeros((views, *(settings.grid if settings.kind == "bilateral" else ()), 12))


def correct_colors(images: jax.Array, parameters: jax.Array, index: jax.Array) -> jax.Array:
    """Corrects each picture by the parameters of its view, less the mean over all views.

    Args:
      images: [B, H, W, 3] rendered.
      parameters: of all V views, as `no_correction` makes them.
      index: [B] int32, the view of each picture.

    Returns:
      [B, H, W, 3].

    Example:
      >>> correct_colors(images, no_correction(Appearance("affine"), 7), jnp.array([3]))
    """
    _check.shapes("correct_colors", images=(images, "B H W 3"), index=(index, "B"))
    # The scene's own colours could absorb a correction that all views share, cell by cell: this leaves it none.
    chosen = parameters[index] - parameters.mean(0, keepdims=True)
    if parameters.ndim == 2:
        return apply_affine(images, chosen[:, None, None, :])
    return jax.vmap(lambda image, grid: apply_affine(image, slice_grid(grid, image)))(images, chosen)


def apply_affine(images: jax.Array, deltas: jax.Array) -> jax.Array:
    """Applies (I + A) c + b to every colour c.

    Args:
      images: [..., 3].
      deltas: [..., 12] the rows of [A | b].

    Returns:
      [..., 3].

    Example:
      >>> apply_affine(jnp.ones(3), jnp.zeros(12))
      Array([1., 1., 1.], dtype=float32)
    """
    _check.shapes("apply_affine", images=(images, "... 3"), deltas=(deltas, "... 12"))
    rows = deltas.reshape(*deltas.shape[:-1], 3, 4)
    return images + (rows[..., :3] * images[..., None, :]).sum(-1) + rows[..., 3]


def slice_grid(grid: jax.Array, image: jax.Array) -> jax.Array:
    """Interpolates a bilateral grid in place and brightness at every pixel (Chen et al. 2007).

    The weights of each axis are a small dense matrix: products instead of gathers, forward and backward.

    Args:
      grid: [L, Y, X, P] values at the cells' corners: brightness 0 to 1, top to bottom, left to right.
      image: [H, W, 3] whose brightness decides; values beyond 0..1 use the first or last cell.

    Returns:
      [H, W, P].

    Example:
      >>> slice_grid(jnp.ones((8, 16, 16, 12)), image).shape
      (480, 640, 12)
    """
    _check.shapes("slice_grid", grid=(grid, "L Y X P"), image=(image, "H W 3"))
    height, width = image.shape[:2]
    levels, rows, columns = grid.shape[:3]
    brightness = (image * jnp.asarray(_LUMINANCE, image.dtype).reshape(1, 1, 3)).sum(-1)
    by_row = jnp.einsum("hy,lyxp->hxlp", _hats((jnp.arange(height) + 0.5) / height, rows), grid)
    placed = jnp.einsum("wx,hxlp->hwlp", _hats((jnp.arange(width) + 0.5) / width, columns), by_row)
    return (placed * _hats(brightness, levels)[..., None]).sum(-2)


def _hats(places: jax.Array, corners: int) -> jax.Array:
    """Weights [..., corners] of linear interpolation between corners spread evenly over 0..1."""
    position = jnp.clip(places, 0.0, 1.0) * (corners - 1)
    distance = jnp.abs(
        position[..., None] - jnp.arange(corners, dtype=position.dtype).reshape((1,) * position.ndim + (-1,))
    )
    return jnp.maximum(1.0 - distance, 0.0)


def roughness(parameters: jax.Array) -> jax.Array:
    """Mean squared difference of neighbouring cells [V, L, Y, X, 12], summed over the three axes; 0 for [V, 12]."""
    if parameters.ndim == 2:
        return jnp.zeros((), parameters.dtype)
    steps = [jnp.diff(parameters, axis=axis) for axis in (1, 2, 3)]
    return sum((jnp.square(step).mean() for step in steps if step.size), start=jnp.zeros((), parameters.dtype))
