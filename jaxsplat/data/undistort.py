"""Lens distortion removed from pictures, so that everything behind sees a pinhole camera."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat.cameras import UNIT, Lens
from jaxsplat.cameras.distorted import BASES
from jaxsplat.cameras.distortion import bend, turning_radius

PINHOLE = Lens()

_GRID = 33
_ZOOM_RANGE = (0.7, 3.0)


def distort(points: np.ndarray, lens: Lens) -> np.ndarray:
    """Where the lens puts a ray, in double precision.

    Args:
      points: [..., 2] x/z and y/z of rays.
      lens: whose coefficients are tuples of numbers.

    Returns:
      [..., 2] on the sensor, before focal lengths and principal point.

    Example:
      >>> distort(np.array([0.1, 0.0]), Lens(radial=(0.5,)))
      array([0.1005, 0.    ])
    """
    with jax.enable_x64(True):
        return np.stack([np.asarray(part) for part in _distort(points[..., 0], points[..., 1], lens)], -1)


@jax.jit
def _distort(x: jax.Array, y: jax.Array, lens: Lens) -> tuple[jax.Array, jax.Array]:
    px, py = BASES[lens.projection].project(x, y, jnp.ones_like(x), UNIT)
    return bend(px, py, lens)


def undistorted_intrinsics(K: np.ndarray, lens: Lens, width: int, height: int) -> np.ndarray:
    """Pinhole intrinsics of the picture after `undistort`: the focal lengths are zoomed, the rest is kept.

    The zoom is the smallest at which every pixel of a picture of the same size is known.

    Args:
      K: [3, 3] intrinsics of the distorted picture.
      lens: that took it.
      width: of the picture, in pixels.
      height: of the picture, in pixels.

    Returns:
      [3, 3] float64.

    Raises:
      ValueError: where no zoom up to three times gives a full picture.

    Example:
      >>> undistorted_intrinsics(K, Lens(radial=(0.05,)), 540, 960)
    """
    if lens == PINHOLE:
        return np.asarray(K, np.float64)
    return _zoomed(K, _zoom(np.asarray(K, np.float64).tobytes(), lens, width, height))


def undistort(image: np.ndarray, K: np.ndarray, lens: Lens) -> np.ndarray:
    """Resamples a picture as the pinhole camera of `undistorted_intrinsics` sees it, bilinearly.

    Args:
      image: uint8 [H, W, D] or [H, W].
      K: [3, 3] intrinsics of this picture.
      lens: that took it.

    Returns:
      uint8, of the same shape.

    Raises:
      ValueError: where the distortion cannot be undone.

    Example:
      >>> pinhole = undistort(photo, K, Lens(radial=(0.05,)))
    """
    if lens == PINHOLE:
        return image
    height, width = image.shape[:2]
    place, right, below = _sources(np.asarray(K, np.float64).tobytes(), lens, width, height)
    flat = image.reshape(height * width, -1)

    def row(first: np.ndarray) -> np.ndarray:
        """Between a pixel and its neighbour to the right."""
        value = flat.take(first, 0).astype(np.float32)
        value += (flat.take(first + 1, 0) - value) * right
        return value

    upper, lower = row(place), row(place + width)
    upper += (lower - upper) * below
    return np.rint(upper).astype(np.uint8).reshape(image.shape)


def source_pixels(pixels: np.ndarray, K: np.ndarray, lens: Lens, width: int, height: int) -> np.ndarray:
    """Where positions [..., 2] in the picture after `undistort` come from in the one before, of the same size."""
    return _source_pixels(pixels, undistorted_intrinsics(K, lens, width, height), K, lens)


@functools.lru_cache(maxsize=64)
def _zoom(K: bytes, lens: Lens, width: int, height: int) -> float:
    """Of the focal lengths; the same camera usually took many pictures."""
    matrix = np.frombuffer(K).reshape(3, 3)
    low, high = _ZOOM_RANGE
    if not _covers(_zoomed(matrix, high), matrix, lens, width, height):
        raise ValueError(f"distortion {lens} cannot be undone: no pinhole picture is covered")
    for _ in range(40):
        middle = 0.5 * (low + high)
        if _covers(_zoomed(matrix, middle), matrix, lens, width, height):
            high = middle
        else:
            low = middle
    return high


@functools.lru_cache(maxsize=1)
def _sources(K: bytes, lens: Lens, width: int, height: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each pixel comes from: index of the pixel to the upper left, and how far to the right [H * W, 1] and below.

    Most captures have one camera, so the last is kept.
    """
    matrix = np.frombuffer(K).reshape(3, 3)
    target = undistorted_intrinsics(matrix, lens, width, height)
    rows, columns = np.meshgrid(np.arange(height) + 0.5, np.arange(width) + 0.5, indexing="ij")
    # The first pixel's centre is (.5, .5) for the camera and 0 for the array.
    source = _source_pixels(np.stack([columns, rows], -1), target, matrix, lens).reshape(-1, 2) - 0.5
    left, right = _split(source[:, 0], width)
    top, below = _split(source[:, 1], height)
    return top * width + left, right, below


def _split(position: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole and fractional part of a position between the centres of the first and the last pixel."""
    position = np.clip(position, 0.0, size - 1.0)
    whole = np.minimum(position.astype(np.int64), size - 2)
    return whole, (position - whole).astype(np.float32)[:, None]


def _zoomed(K: np.ndarray, zoom: float) -> np.ndarray:
    return np.asarray(K, np.float64) * np.array([[zoom, 1.0, 1.0], [1.0, zoom, 1.0], [1.0, 1.0, 1.0]])


def _source_pixels(pixels: np.ndarray, target: np.ndarray, K: np.ndarray, lens: Lens) -> np.ndarray:
    focal, center = np.diag(target)[:2], target[:2, 2]
    bent = distort((pixels - center) / focal, lens)
    return bent * np.diag(K)[:2] + K[:2, 2]


def _covers(target: np.ndarray, K: np.ndarray, lens: Lens, width: int, height: int) -> bool:
    """Whether every pixel of the target comes from inside the source, where the lens model is one to one."""
    size = np.array([width, height], np.float64)
    unit = np.stack(np.meshgrid(np.linspace(0, 1, _GRID), np.linspace(0, 1, _GRID)), -1)
    source = _source_pixels(unit * size, target, K, lens)
    inside = bool(((source >= 0) & (source <= size)).all())
    # Beyond the radius where the lens model turns back, two directions would share a pixel.
    farthest = np.linalg.norm((unit * size - target[:2, 2]) / np.diag(target)[:2], axis=-1).max()
    with jax.enable_x64(True):
        limit = float(turning_radius(lens).squeeze())
    return inside and float(farthest if lens.projection == "perspective" else np.arctan(farthest)) <= limit
