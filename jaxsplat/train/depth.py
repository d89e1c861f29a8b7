"""Depth from the sparse points of a capture: where a point is seen, the scene should be as far away as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import _check
from jaxsplat.cameras import Lens
from jaxsplat.data.depths import ViewDepths
from jaxsplat.data.optics import lens_of_view, show_points

_CELL = 8
"""Side in pixels of the cells in which points hide each other."""

_HIDDEN = 1.1
"""A point this many times as far away as the nearest one of its cell counts as hidden."""


class SparseDepths(NamedTuple):
    """Depths at some pixels of each view.

    Attributes:
      pixels: [B, P, 2] x and y in pixels.
      depths: [B, P] as the renderer has them, in world units.
      weights: [B, P] zero where a row holds nothing.
    """

    pixels: jax.Array
    depths: jax.Array
    weights: jax.Array


def sparse_depths(
    points: np.ndarray,
    viewmats: np.ndarray,
    Ks: np.ndarray,
    *,
    width: int,
    height: int,
    lens: Lens | None = None,
    per_view: int = 1024,
    seed: int = 0,
) -> SparseDepths:
    """Projects points into views; those behind others, judged in cells of 8 pixels, are left out.

    Args:
      points: [P, 3] in world units.
      viewmats: [V, 4, 4] world to camera.
      Ks: [V, 3, 3] in pixels.
      width: of the pictures, in pixels.
      height: of the pictures, in pixels.
      lens: of the views, coefficients [V, n]; None for pinholes.
      per_view: most points of a view; a random part where there are more.
      seed: of that choice.

    Returns:
      V views of `per_view` rows, weight 1 where they hold a point.

    Example:
      >>> sparse_depths(cloud.points, viewmats, Ks, width=640, height=480).depths.shape
      (50, 1024)
    """
    _check.shapes("sparse_depths", points=(points, "P 3"), viewmats=(viewmats, "V 4 4"), Ks=(Ks, "V 3 3"))
    rng = np.random.default_rng(seed)
    views = len(viewmats)
    pixels, depths, weights = (np.zeros((views, per_view, *tail), np.float32) for tail in ((2,), (), ()))
    for view in range(views):
        local = points @ viewmats[view, :3, :3].T + viewmats[view, :3, 3]
        xy, z, shown = show_points(local, Ks[view], lens_of_view(lens, view))
        seen = np.flatnonzero(shown & (xy >= 0).all(1) & (xy[:, 0] < width) & (xy[:, 1] < height))
        cells = (xy[seen] // _CELL).astype(np.int64) @ [1, -(-width // _CELL)]
        nearest = np.full(-(-width // _CELL) * -(-height // _CELL), np.inf)
        np.minimum.at(nearest, cells, z[seen])
        seen = seen[z[seen] <= _HIDDEN * nearest[cells]]
        if len(seen) > per_view:
            seen = np.sort(rng.choice(seen, per_view, replace=False))
        pixels[view, : len(seen)], depths[view, : len(seen)], weights[view, : len(seen)] = xy[seen], z[seen], 1.0
    return SparseDepths(jnp.asarray(pixels), jnp.asarray(depths), jnp.asarray(weights))


def known_depths(views: Sequence[ViewDepths], *, scale: float, per_view: int = 1024, seed: int = 0) -> SparseDepths:
    """Depths that structure from motion found in each view, as training takes them.

    Args:
      views: of a capture.
      scale: of the normalised scene, in world units.
      per_view: most points of a view; a random part where there are more.
      seed: of that choice.

    Returns:
      V views of `per_view` rows, weight 1 where they hold a point; depths in units of the normalised scene.

    Example:
      >>> known_depths(capture.depths, scale=job.normalization.scale).depths.shape
      (50, 1024)
    """
    rng = np.random.default_rng(seed)
    pixels, depths, weights = (np.zeros((len(views), per_view, *tail), np.float32) for tail in ((2,), (), ()))
    for i, view in enumerate(views):
        count = min(len(view.depths), per_view)
        chosen = np.sort(rng.choice(len(view.depths), count, replace=False))
        pixels[i, :count], depths[i, :count], weights[i, :count] = view.pixels[chosen], view.depths[chosen] / scale, 1.0
    return SparseDepths(jnp.asarray(pixels), jnp.asarray(depths), jnp.asarray(weights))


def depth_loss(depths: jax.Array, sparse: SparseDepths) -> jax.Array:
    """Mean absolute difference of inverse depths, which near things dominate as they dominate the picture.

    Args:
      depths: [B, H, W] expected depths as rendered; 0 where nothing is.
      sparse: at B views.

    Returns:
      [] the loss, in 1 / world units.

    Example:
      >>> depth_loss(jnp.ones((1, 48, 64)), sparse)
    """
    _check.shapes(
        "depth_loss",
        depths=(depths, "B H W"),
        pixels=(sparse.pixels, "B P 2"),
        sparse_depths=(sparse.depths, "B P"),
        weights=(sparse.weights, "B P"),
    )
    rendered = jax.vmap(_sample)(depths, sparse.pixels)
    # Where nothing is rendered there is no depth to correct.
    valid = (sparse.weights > 0) & (rendered > 0) & (sparse.depths > 0)
    apart = jnp.abs(1.0 / jnp.where(valid, rendered, 1.0) - 1.0 / jnp.where(valid, sparse.depths, 1.0))
    weights = jnp.where(valid, sparse.weights, 0.0)
    return (apart * weights).sum() / jnp.maximum(weights.sum(), 1.0)


def _sample(image: jax.Array, pixels: jax.Array) -> jax.Array:
    """Values of [H, W] at [P, 2] x and y, linear between the centres of the pixels."""
    height, width = image.shape
    x, y = jnp.clip(pixels[:, 0] - 0.5, 0, width - 1), jnp.clip(pixels[:, 1] - 0.5, 0, height - 1)
    left, top = jnp.floor(x).astype(jnp.int32), jnp.floor(y).astype(jnp.int32)
    right, bottom = jnp.minimum(left + 1, width - 1), jnp.minimum(top + 1, height - 1)
    u, v = x - left, y - top
    upper = image[top, left] * (1 - u) + image[top, right] * u
    lower = image[bottom, left] * (1 - u) + image[bottom, right] * u
    return upper * (1 - v) + lower * v
