"""First points of a scene that comes without any."""

from __future__ import annotations

import numpy as np

from jaxsplat.io.ply import PointCloud

_NEAREST = 0.2
_FARTHEST = 4.0


def random_points(
    viewmats: np.ndarray,
    Ks: np.ndarray,
    images: np.ndarray,
    *,
    count: int,
    scale: float = 1.0,
    seed: int = 0,
) -> PointCloud:
    """Draws points that the cameras see: a random pixel at a random depth, with the pixel's colour.

    Args:
      viewmats: [V, 4, 4] world to camera, OpenCV axes.
      Ks: [V, 3, 3] intrinsics in pixels.
      images: [V, H, W, 3] uint8.
      count: number of points.
      scale: size of the scene in world units; depths are log-uniform between 0.2 and 4 times that.
      seed: of the random numbers; the same seed gives the same points.

    Returns:
      The points.

    Example:
      >>> random_points(viewmats, Ks, images, count=10_000).points.shape
      (10000, 3)
    """
    rng = np.random.default_rng(seed)
    height, width = images.shape[1:3]
    view = rng.integers(len(viewmats), size=count)
    pixels = np.stack([rng.uniform(0, width, count), rng.uniform(0, height, count), np.ones(count)], -1)
    depth = scale * np.exp(rng.uniform(np.log(_NEAREST), np.log(_FARTHEST), count))
    local = np.einsum("nij,nj->ni", np.linalg.inv(Ks.astype(np.float64))[view], pixels) * depth[:, None]
    local -= viewmats[view, :3, 3]
    points = np.einsum("nji,nj->ni", viewmats[view, :3, :3].astype(np.float64), local)
    columns, rows = pixels[:, 0].astype(np.int64), pixels[:, 1].astype(np.int64)
    colors = images[view, rows, columns].astype(np.float32) / 255.0
    return PointCloud(points.astype(np.float32), colors)
