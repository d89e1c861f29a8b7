"""First points of a scene that comes without any: pixels put at the depth where other views agree with them."""

from __future__ import annotations

import numpy as np

from jaxsplat.cameras import Lens
from jaxsplat.data.optics import lens_of_view, pixel_rays, show_points
from jaxsplat.data.pictures import Images
from jaxsplat.io.files import InputError
from jaxsplat.io.ply import PointCloud

_NEAREST = 0.25
_FARTHEST = 4.0
_DEPTHS = 48
_NEIGHBOR_RANKS = (1, 2, 4, 6, 9)
"""Which of the other views are asked, by their nearness: close ones see the same, farther ones tell depths apart."""

_AGREEING = 2
_PATCH = np.array([[0, 0], [-1, -1], [1, -1], [-1, 1], [1, 1]], np.float64)
_PATCH_FRACTION = 1 / 200
"""Half side of the patches that are compared, as a fraction of the picture's longer side."""


def random_points(
    viewmats: np.ndarray,
    Ks: np.ndarray,
    images: np.ndarray | Images,
    *,
    count: int,
    lens: Lens | None = None,
    masks: np.ndarray | Images | None = None,
    scale: float = 1.0,
    seed: int = 0,
) -> PointCloud:
    """Draws random pixels and puts each at one of 48 depths: where the views nearby look most like it (a plane sweep).

    Where fewer than two other views see a pixel, its depth is random.

    Args:
      viewmats: [V, 4, 4] world to camera, OpenCV axes.
      Ks: [V, 3, 3] intrinsics in pixels.
      images: [V, H, W, 3] uint8.
      count: number of points; fewer where a view's mask lets nothing through, or its lens sees nothing.
      lens: of the views, coefficients [V, n]; None for pinholes.
      masks: [V, H, W] bool, pixels that may be drawn; all when None.
      scale: size of the scene in world units; depths are between 0.25 and 4 times that, even in their logarithm.
      seed: of the random numbers; the same seed gives the same points.

    Returns:
      The points, with the colours of their pixels.

    Raises:
      InputError: where the masks hide every pixel that was to be drawn.

    Example:
      >>> random_points(viewmats, Ks, images, count=10_000).points.shape
      (10000, 3)
    """
    rng = np.random.default_rng(seed)
    views, height, width = images.shape[:3]
    viewmats = viewmats.astype(np.float64)
    cameras = [(Ks[view], lens_of_view(lens, view)) for view in range(views)]
    neighbors = _neighbors(viewmats)
    steps = np.log(_NEAREST * scale) + np.log(_FARTHEST / _NEAREST) * np.arange(_DEPTHS + 1) / _DEPTHS
    points, colors = [], []
    for view, number in enumerate(np.bincount(rng.integers(views, size=count), minlength=views).tolist()):
        pixels = _pixels(rng, number, width, height, None if masks is None else masks[view])
        rays = pixel_rays(pixels, *cameras[view])
        there = rays.any(1)
        pixels, rays = pixels[there], rays[there]
        number = len(pixels)
        # Anywhere within the chosen step, so that the points do not lie on shells.
        shift = rng.uniform(size=number)
        costs = _costs(view, neighbors[view], pixels, np.exp(0.5 * (steps[1:] + steps[:-1])), viewmats, cameras, images)
        chosen = np.where(np.isfinite(costs).any(1), costs.argmin(1), rng.integers(_DEPTHS, size=number))
        depth = np.exp(steps[chosen] * (1 - shift) + steps[chosen + 1] * shift)
        points.append((rays * depth[:, None] - viewmats[view, :3, 3]) @ viewmats[view, :3, :3])
        columns, rows = pixels.astype(np.int64).T
        colors.append(images[view][rows, columns].astype(np.float32) / 255.0)
    if masks is not None and not sum(map(len, points)):
        raise InputError("the masks hide every pixel of the views that points were to be drawn from")
    return PointCloud(np.concatenate(points).astype(np.float32), np.concatenate(colors))


def _pixels(rng: np.random.Generator, number: int, width: int, height: int, mask: np.ndarray | None) -> np.ndarray:
    """Random positions [n, 2] in a picture, in pixels that count."""
    if mask is None:
        return rng.uniform(size=(number, 2)) * [width, height]
    places = np.flatnonzero(mask)
    chosen = rng.choice(places, number if len(places) else 0)
    return np.stack([chosen % width, chosen // width], 1) + rng.uniform(size=(len(chosen), 2))


def _neighbors(viewmats: np.ndarray) -> list[list[int]]:
    """For each view some others, near in place and direction."""
    centers = -np.einsum("vji,vj->vi", viewmats[:, :3, :3], viewmats[:, :3, 3])
    apart = np.linalg.norm(centers[:, None] - centers[None], axis=-1)
    turned = 1.0 - np.clip(viewmats[:, 2, :3] @ viewmats[:, 2, :3].T, -1.0, 1.0)
    order = np.argsort(apart / max(float(np.median(apart)), 1e-9) + turned, axis=1, kind="stable")
    return [[int(row[rank]) for rank in _NEIGHBOR_RANKS if rank < len(row)] for row in order]


def _costs(
    view: int,
    others: list[int],
    pixels: np.ndarray,
    depths: np.ndarray,
    viewmats: np.ndarray,
    cameras: list[tuple[np.ndarray, Lens | None]],
    images: np.ndarray | Images,
) -> np.ndarray:
    """How much a patch about each pixel differs from the two views that agree best: [n, depths]; inf if unseen."""
    height, width = images.shape[1:3]
    patch = pixels[:, None] + _PATCH * max(1.0, _PATCH_FRACTION * max(height, width))
    columns = np.clip(patch[..., 0].astype(np.int64), 0, width - 1)
    rows = np.clip(patch[..., 1].astype(np.int64), 0, height - 1)
    own = images[view][rows, columns].astype(np.float32)
    rays = pixel_rays(patch, *cameras[view])
    differences = []
    for other in others:
        turn = viewmats[other, :3, :3] @ viewmats[view, :3, :3].T
        move = viewmats[other, :3, 3] - turn @ viewmats[view, :3, 3]
        shown = show_points((rays @ turn.T)[:, None] * depths[:, None, None] + move, *cameras[other])
        x, y = shown.pixels[..., 0], shown.pixels[..., 1]
        inside = shown.seen & (x >= 0) & (x < width) & (y >= 0) & (y < height)
        x, y = np.where(inside, x, 0).astype(np.int64), np.where(inside, y, 0).astype(np.int64)
        difference = np.abs(images[other][y, x].astype(np.float32) - own[:, None]).mean((-2, -1))
        differences.append(np.where(inside.all(-1), difference, np.inf))
    if len(differences) < _AGREEING:
        return np.full((len(pixels), len(depths)), np.inf)
    return np.sort(np.stack(differences), 0)[:_AGREEING].mean(0)
