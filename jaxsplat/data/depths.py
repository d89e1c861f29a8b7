"""Depths that are known at some pixels of a view: of points that structure from motion found, or from a map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxsplat.cameras import Lens
from jaxsplat.data.optics import show_points
from jaxsplat.io.files import InputError

_GRID = 64
"""Pixels along each side of a picture at which a map is read: training draws from these."""


class ViewDepths(NamedTuple):
    """Depths at pixels of one view.

    Attributes:
      pixels: [M, 2] float32 x and y, the first pixel's centre at (.5, .5).
      depths: [M] float32 in world units, as the renderer has them: along the optical axis; for an equidistant lens the
        distance.
    """

    pixels: np.ndarray
    depths: np.ndarray


def view_depths(
    points: np.ndarray, viewmat: np.ndarray, K: np.ndarray, *, width: int, height: int, lens: Lens | None = None
) -> ViewDepths:
    """Where a view sees points that it is known to show, and how deep; points that it cannot see are left out.

    Args:
      points: [M, 3] world positions.
      viewmat: [4, 4] world to camera.
      K: [3, 3] intrinsics in pixels.
      width: of the picture, in pixels.
      height: of the picture.
      lens: that took it, with tuples of numbers; None for a pinhole.

    Returns:
      At most M pixels.

    Example:
      >>> view_depths(np.array([[0.0, 0, 2]]), np.eye(4), np.eye(3), width=2, height=2).depths
      array([2.], dtype=float32)
    """
    shown = show_points(points.astype(np.float64) @ viewmat[:3, :3].T + viewmat[:3, 3], K, lens)
    inside = shown.seen & ((shown.pixels >= 0) & (shown.pixels < [width, height])).all(1)
    return ViewDepths(shown.pixels[inside].astype(np.float32), shown.depths[inside].astype(np.float32))


class Depths(Sequence[ViewDepths]):
    """The depths of each view, found or read when it is indexed."""

    def __init__(self, views: int, find: Callable[[int], ViewDepths]) -> None:
        self._views, self._find = views, find

    def __len__(self) -> int:
        return self._views

    def __getitem__(self, index: int) -> ViewDepths:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._find(range(self._views)[index])


def no_depths() -> ViewDepths:
    """Of a view of which nothing is known."""
    return ViewDepths(np.zeros((0, 2), np.float32), np.zeros(0, np.float32))


def grid_pixels(width: int, height: int) -> np.ndarray:
    """[M, 2] centres of pixels spread evenly over a picture, at most 64 x 64."""
    x, y = (np.unique(np.linspace(0, size - 1, min(size, _GRID)).astype(np.int64)) + 0.5 for size in (width, height))
    return np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)


def map_depths(path: Path, pixels: np.ndarray, places: np.ndarray, *, unit: float) -> ViewDepths:
    """Reads a map of depths (.npy, or a picture of 16 bits) at some places; where it has none, there is no row.

    Args:
      path: of the map.
      pixels: [M, 2] x and y of the picture, in pixels.
      places: [M, 2] the same in the map, as fractions of its width and height.
      unit: world units of one step of the map.

    Returns:
      At most M pixels.

    Raises:
      InputError: where the file is missing, unreadable, or no map.
    """
    try:
        if path.suffix.lower() == ".npy":
            values = np.load(path, allow_pickle=False)
        else:
            from PIL import Image

            with Image.open(path) as image:
                values = np.asarray(image)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: unreadable depths ({error})") from None
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[..., 0]
    if values.ndim != 2:
        raise InputError(f"{path}: depths must have shape [H, W], got {list(values.shape)}")
    size = np.array(values.shape[::-1])
    # Places between two steps of the map, up to rounding, belong to the second.
    columns, rows = np.clip((places * size + 1e-6).astype(np.int64), 0, size - 1).T
    depths = values[rows, columns].astype(np.float64) * unit
    known = np.isfinite(depths) & (depths > 0)
    return ViewDepths(pixels[known].astype(np.float32), depths[known].astype(np.float32))
