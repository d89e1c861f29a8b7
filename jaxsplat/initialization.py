"""First splats, from points."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import KDTree

from jaxsplat import _check
from jaxsplat.sh import num_sh_coeffs, rgb_to_sh
from jaxsplat.types import Splats

_NEIGHBORS = 3


def splats_from_points(
    points: jax.Array, colors: jax.Array, *, sh_degree: int, opacity: float = 0.5, scale: float = 1.0
) -> Splats:
    """Makes a round splat of each point, as wide as `scale` times the distance to its three nearest neighbours.

    Args:
      points: [P, 3] in world units.
      colors: [P, 3] in 0..1.
      sh_degree: degree for which coefficients are made; all but the first are zero.
      opacity: of every splat.
      scale: factor on the distance.

    Returns:
      P rows.

    Example:
      >>> splats_from_points(points, colors, sh_degree=3).sh_rest.shape
      (1000, 15, 3)
    """
    _check.shapes("splats_from_points", points=(points, "P 3"), colors=(colors, "P 3"))
    count, dtype = len(points), points.dtype
    width = jnp.asarray(scale * _spacing(np.asarray(points)), dtype)
    rest = num_sh_coeffs(sh_degree) - 1
    return Splats(
        means=points,
        quats=jnp.tile(jnp.asarray([[1.0, 0.0, 0.0, 0.0]], dtype), (count, 1)),
        log_scales=jnp.tile(jnp.log(width)[:, None], (1, 3)),
        logit_opacities=jnp.full((count,), math.log(opacity / (1.0 - opacity)), dtype),
        sh_dc=rgb_to_sh(colors)[:, None, :].astype(dtype),
        sh_rest=jnp.zeros((count, rest, 3), dtype),
    )


def _spacing(points: np.ndarray) -> np.ndarray:
    """Root mean square distance to the nearest neighbours [P]; 1 for a lone point, and never zero."""
    count = min(_NEIGHBORS, len(points) - 1)
    if count == 0:
        return np.ones(len(points))
    distances, _ = KDTree(points).query(points, k=count + 1)  # the nearest is the point itself
    spacing = np.sqrt((distances[:, 1:] ** 2).mean(-1))
    return np.maximum(spacing, max(1e-3 * float(np.median(spacing)), 1e-7))
