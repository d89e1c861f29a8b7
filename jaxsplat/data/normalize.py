"""Where a scene is and how large it is, judged from its cameras, so that one set of settings fits every capture."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxsplat.types import Splats

_ROUNDS = 20
_SMALL = 1e-6
_ONE_POINT = 1e-2
"""Cameras this close to each other, in units of the distance of the points that they see, stand at one point."""


class Normalization(NamedTuple):
    """A shift and a uniform scale: normalised = (world - center) / scale. No rotation, so colours stay as they are.

    Attributes:
      center: [3] the point that the cameras look at, in world units.
      scale: median distance of the cameras from it, in world units.
    """

    center: np.ndarray
    scale: float

    def points(self, points: np.ndarray) -> np.ndarray:
        """World positions [..., 3] to normalised ones."""
        return ((points - self.center) / self.scale).astype(points.dtype)

    def viewmats(self, viewmats: np.ndarray) -> np.ndarray:
        """View matrices [..., 4, 4] of the world to those of the normalised scene."""
        moved = viewmats.astype(np.float64)
        moved[..., :3, 3] = (moved[..., :3, 3] + moved[..., :3, :3] @ self.center) / self.scale
        return moved.astype(viewmats.dtype)

    def to_world(self, splats: Splats) -> Splats:
        """Splats of the normalised scene to the world."""
        scale = jnp.asarray(self.scale, splats.means.dtype)
        return splats._replace(
            means=splats.means * scale + jnp.asarray(self.center, splats.means.dtype)[None],
            log_scales=splats.log_scales + jnp.log(scale),
        )


def normalization(viewmats: np.ndarray, points: np.ndarray | None = None) -> Normalization:
    """Finds the point nearest to the optical axes and the cameras' median distance from it.

    A few cameras that look elsewhere or stand far away change little: axes are weighted by the inverse of their
    distance, and medians are taken. Where all cameras stand at one point, the points say how large the scene is, or it
    keeps its own scale.

    Args:
      viewmats: [V, 4, 4] world to camera, OpenCV axes.
      points: [P, 3] sparse points of the scene, if there are any.

    Returns:
      The shift and scale.

    Example:
      >>> normalization(capture.cameras.viewmats).scale
    """
    viewmats = np.asarray(viewmats, np.float64)
    rotations = viewmats[:, :3, :3]
    centers = -np.einsum("vji,vj->vi", rotations, viewmats[:, :3, 3])
    axes = rotations[:, 2]
    middle = np.median(centers, 0)
    spread = float(np.median(np.linalg.norm(centers - middle, axis=1)))
    away = 0.0 if points is None else float(np.median(np.linalg.norm(points - middle, axis=1)))
    if spread <= max(_SMALL * max(1.0, float(np.abs(middle).max())), _ONE_POINT * away):
        return Normalization(middle, away or 1.0)
    focus = _nearest_to_axes(centers, axes, middle + spread * _unit(np.median(axes, 0)))
    distance = float(np.median(np.linalg.norm(centers - focus, axis=1)))
    return Normalization(focus, max(distance, spread))


def _nearest_to_axes(centers: np.ndarray, axes: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """Minimises the sum of distances (not squares) to lines; parallel lines leave the guess along them."""
    across = np.eye(3) - axes[:, :, None] * axes[:, None, :]
    weights = np.ones(len(centers))
    point = guess
    for _ in range(_ROUNDS):
        system = np.einsum("v,vij->ij", weights, across)
        target = np.einsum("v,vij,vj->i", weights, across, centers)
        ridge = 1e-3 * weights.sum() * np.eye(3)
        point = np.linalg.solve(system + ridge, target + ridge @ guess)
        miss = np.linalg.norm(np.einsum("vij,vj->vi", across, point - centers), axis=1)
        weights = 1.0 / np.maximum(miss, 1e-2 * np.median(miss) + _SMALL)
    return point


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), _SMALL)
