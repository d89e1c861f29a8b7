"""Lens distortion removed from pictures, so that everything behind sees a pinhole camera."""

from __future__ import annotations

import functools

import numpy as np

_GRID = 33
_ZOOM_RANGE = (0.7, 3.0)


def distort(points: np.ndarray, distortion: tuple[float, ...]) -> np.ndarray:
    """Where the lens puts a ray: OpenCV's radial and tangential model.

    Args:
      points: [..., 2] x/z and y/z of rays.
      distortion: k1, k2, k3, k4, p1, p2; the radial factor is 1 + k1 r^2 + k2 r^4 + k3 r^6 + k4 r^8.

    Returns:
      [..., 2] x/z and y/z on the sensor.

    Example:
      >>> distort(np.array([0.1, 0.0]), (0.5, 0, 0, 0, 0, 0))
      array([0.1005, 0.    ])
    """
    k1, k2, k3, k4, p1, p2 = distortion
    x, y = points[..., 0], points[..., 1]
    r2 = x * x + y * y
    radial = 1.0 + r2 * (k1 + r2 * (k2 + r2 * (k3 + r2 * k4)))
    bent_x = x * radial + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x * x)
    bent_y = y * radial + p1 * (r2 + 2.0 * y * y) + 2.0 * p2 * x * y
    return np.stack([bent_x, bent_y], -1)


def undistorted_intrinsics(K: np.ndarray, distortion: tuple[float, ...], width: int, height: int) -> np.ndarray:
    """Pinhole intrinsics of the picture after `undistort`: the focal lengths are zoomed, the rest is kept.

    The zoom is the smallest at which every pixel of a picture of the same size is known.

    Args:
      K: [3, 3] intrinsics of the distorted picture.
      distortion: k1, k2, k3, k4, p1, p2.
      width: of the picture, in pixels.
      height: of the picture, in pixels.

    Returns:
      [3, 3] float64.

    Raises:
      ValueError: where no zoom up to three times gives a full picture.

    Example:
      >>> undistorted_intrinsics(K, (0.05, 0, 0, 0, 0, 0), 540, 960)
    """
    if not any(distortion):
        return np.asarray(K, np.float64)
    low, high = _ZOOM_RANGE
    if not _covers(_zoomed(K, high), K, distortion, width, height):
        raise ValueError(f"distortion {distortion} cannot be undone: no pinhole picture is covered")
    for _ in range(40):
        middle = 0.5 * (low + high)
        if _covers(_zoomed(K, middle), K, distortion, width, height):
            high = middle
        else:
            low = middle
    return _zoomed(K, high)


def undistort(image: np.ndarray, K: np.ndarray, distortion: tuple[float, ...]) -> np.ndarray:
    """Resamples a picture as the pinhole camera of `undistorted_intrinsics` sees it, bilinearly.

    Args:
      image: uint8 [H, W, D].
      K: [3, 3] intrinsics of this picture.
      distortion: k1, k2, k3, k4, p1, p2.

    Returns:
      uint8 [H, W, D].

    Raises:
      ValueError: where the distortion cannot be undone.

    Example:
      >>> pinhole = undistort(photo, K, (0.05, 0, 0, 0, 0, 0))
    """
    if not any(distortion):
        return image
    height, width = image.shape[:2]
    source = _source_positions(np.asarray(K, np.float64).tobytes(), distortion, width, height)
    left, fraction_x = _split(source[..., 0], width)
    top, fraction_y = _split(source[..., 1], height)
    flat = image.reshape(height * width, -1)
    upper, lower = top * width + left, (top + 1) * width + left
    above = flat[upper] * (1 - fraction_x) + flat[upper + 1] * fraction_x
    below = flat[lower] * (1 - fraction_x) + flat[lower + 1] * fraction_x
    return np.round(above * (1 - fraction_y) + below * fraction_y).astype(np.uint8)


@functools.lru_cache(maxsize=1)
def _source_positions(K: bytes, distortion: tuple[float, ...], width: int, height: int) -> np.ndarray:
    """Where each pixel comes from, as array positions [H, W, 2]; most captures have one camera, so the last is kept."""
    matrix = np.frombuffer(K).reshape(3, 3)
    target = undistorted_intrinsics(matrix, distortion, width, height)
    rows, columns = np.meshgrid(np.arange(height) + 0.5, np.arange(width) + 0.5, indexing="ij")
    # The first pixel's centre is (.5, .5) for the camera and 0 for the array.
    source = _source_pixels(np.stack([columns, rows], -1), target, matrix, distortion) - 0.5
    return source.astype(np.float32)


def _split(position: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole and fractional part of a position between the centres of the first and the last pixel."""
    position = np.clip(position, 0.0, size - 1.0)
    whole = np.minimum(position.astype(np.int64), size - 2)
    return whole, (position - whole).astype(np.float32)[..., None]


def _zoomed(K: np.ndarray, zoom: float) -> np.ndarray:
    return np.asarray(K, np.float64) * np.array([[zoom, 1.0, 1.0], [1.0, zoom, 1.0], [1.0, 1.0, 1.0]])


def _source_pixels(pixels: np.ndarray, target: np.ndarray, K: np.ndarray, distortion: tuple[float, ...]) -> np.ndarray:
    focal, center = np.diag(target)[:2], target[:2, 2]
    bent = distort((pixels - center) / focal, distortion)
    return bent * np.diag(K)[:2] + K[:2, 2]


def _covers(target: np.ndarray, K: np.ndarray, distortion: tuple[float, ...], width: int, height: int) -> bool:
    """Whether every pixel of the target comes from inside the source, where the lens model is one to one."""
    size = np.array([width, height], np.float64)
    unit = np.stack(np.meshgrid(np.linspace(0, 1, _GRID), np.linspace(0, 1, _GRID)), -1)
    source = _source_pixels(unit * size, target, K, distortion)
    inside = bool(((source >= 0) & (source <= size)).all())
    k1, k2, k3, k4 = distortion[:4]
    rays = (unit * size - target[:2, 2]) / np.diag(target)[:2]
    r2 = np.linspace(0, 1, _GRID) * (rays**2).sum(-1).max()
    slope = 1.0 + r2 * (3 * k1 + r2 * (5 * k2 + r2 * (7 * k3 + r2 * 9 * k4)))
    return inside and bool((slope > 0).all())
