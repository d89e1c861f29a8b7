"""Points to pixels and pixels to rays through any lens, on the host and in double precision, to prepare captures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat.cameras import Lens, split
from jaxsplat.cameras.distorted import DistortedCamera
from jaxsplat.cameras.distortion import turning_radius


class Shown(NamedTuple):
    """What a camera makes of points.

    Attributes:
      pixels: [..., 2] float64 x and y, the first pixel's centre at (.5, .5); zeros where nothing is shown.
      depths: [...] as the renderer has them: along the optical axis; for an equidistant lens the distance.
      seen: [...] bool, whether the point lies in the domain of the camera model; it may lie outside the picture.
    """

    pixels: np.ndarray
    depths: np.ndarray
    seen: np.ndarray


def show_points(points: np.ndarray, K: np.ndarray, lens: Lens | None = None) -> Shown:
    """Projects points.

    Args:
      points: [..., 3] in camera space, OpenCV axes.
      K: [3, 3] intrinsics in pixels.
      lens: whose coefficients are tuples of numbers; None for a pinhole.

    Returns:
      Where they are.

    Example:
      >>> show_points(np.array([0.0, 0, 2]), np.eye(3)).depths
      2.0
    """
    u, v, depths, seen = _through(_project, points, K, lens)
    return Shown(np.stack([u, v], -1), depths, seen.astype(bool))


def pixel_rays(pixels: np.ndarray, K: np.ndarray, lens: Lens | None = None) -> np.ndarray:
    """The rays through positions of the picture, of such length that a ray times a depth of `Shown` is the point.

    Args:
      pixels: [..., 2] x and y.
      K: [3, 3] intrinsics in pixels.
      lens: whose coefficients are tuples of numbers; None for a pinhole.

    Returns:
      [..., 3] float64 in camera space; zeros where the camera sees nothing.

    Example:
      >>> pixel_rays(np.array([2.0, 1.0]), np.eye(3))
      array([2., 1., 1.])
    """
    return np.stack(_through(_cast, pixels, K, lens), -1)


def lens_of_view(lens: Lens | None, view: int) -> Lens | None:
    """The lens of one view of a capture, whose coefficients are [V, n], as tuples of numbers."""
    return jax.tree.map(lambda each: tuple(each[view].tolist()), lens)


def _through(function: Callable[..., Any], values: np.ndarray, K: np.ndarray, lens: Lens | None) -> list[np.ndarray]:
    """Calls a compiled function with the components of some values, padded so that few sizes are compiled."""
    values = np.asarray(values, np.float64)
    flat = values.reshape(-1, values.shape[-1])
    count = len(flat)
    padded = np.ones((1 << max(count - 1, 0).bit_length(), flat.shape[1]))
    padded[:count] = flat
    with jax.enable_x64(True):
        found = function(padded, np.asarray(K, np.float64), Lens() if lens is None else lens)
    return [np.asarray(part)[:count].reshape(values.shape[:-1]) for part in found]


@jax.jit
def _project(points: jax.Array, K: jax.Array, lens: Lens) -> tuple[jax.Array, ...]:
    camera = _camera(lens)
    x, y, z = points.T
    seen = camera.sees(x, y, z)
    x, y, z = (jnp.where(seen, part, at) for part, at in zip((x, y, z), (0, 0, 1), strict=True))
    parts = (*camera.project(x, y, z, split(K)), camera.depth(x, y, z))
    return *(jnp.where(seen, part, 0) for part in parts), seen


@jax.jit
def _cast(pixels: jax.Array, K: jax.Array, lens: Lens) -> tuple[jax.Array, ...]:
    camera = _camera(lens)
    u, v = pixels.T
    _, (dx, dy, dz) = camera.ray(u, v, split(K))
    depth = camera.depth(dx, dy, dz)
    there = depth > 0
    return tuple(jnp.where(there, part / jnp.where(there, depth, 1), 0) for part in (dx, dy, dz))


def _camera(lens: Lens) -> DistortedCamera:
    return DistortedCamera(lens, turning_radius(lens).squeeze())
