"""Depths that are known at some pixels of a view, from the points that structure from motion found there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxsplat.cameras import Lens
from jaxsplat.data.undistort import distort


class ViewDepths(NamedTuple):
    """Depths at pixels of one view.

    Attributes:
      pixels: [M, 2] float32 x and y, the first pixel's centre at (.5, .5).
      depths: [M] float32 along the optical axis, in world units.
    """

    pixels: np.ndarray
    depths: np.ndarray


def view_depths(
    points: np.ndarray, viewmat: np.ndarray, K: np.ndarray, *, width: int, height: int, lens: Lens | None = None
) -> ViewDepths:
    """Where a view sees points that it is known to show, and how deep; points behind it or outside are left out.

    Args:
      points: [M, 3] world positions.
      viewmat: [4, 4] world to camera.
      K: [3, 3] intrinsics in pixels.
      width: of the picture, in pixels.
      height: of the picture.
      lens: that took it; None for a pinhole.

    Returns:
      At most M pixels.

    Example:
      >>> view_depths(np.array([[0.0, 0, 2]]), np.eye(4), np.eye(3), width=2, height=2).depths
      array([2.], dtype=float32)
    """
    local = points.astype(np.float64) @ viewmat[:3, :3].T + viewmat[:3, 3]
    local = local[local[:, 2] > 0]
    rays = local[:, :2] / local[:, 2:]
    pixels = (rays if lens is None else distort(rays, lens)) @ K[:2, :2].T + K[:2, 2]
    inside = ((pixels >= 0) & (pixels < [width, height])).all(1)
    return ViewDepths(pixels[inside].astype(np.float32), local[inside, 2].astype(np.float32))
