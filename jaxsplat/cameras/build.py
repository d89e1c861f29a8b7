"""Camera matrices from what people know: where a camera stands, what it looks at, how wide it sees."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsplat import _check, _linalg
from jaxsplat.cameras.lens import Projection
from jaxsplat.cameras.pose import cross, dot

_PARALLEL = 1e-6
"""Squared sine of the angle between the view and the vertical below which any horizontal direction will do."""


def look_at(eyes: jax.Array, targets: jax.Array, *, up: tuple[float, float, float] = (0.0, -1.0, 0.0)) -> jax.Array:
    """Makes view matrices of cameras that look at points, differentiable in both.

    Args:
      eyes: [..., 3] where the cameras stand, in world units.
      targets: [..., 3] what is in the middle of their pictures.
      up: direction that points up in the pictures; by default -y, as in most captures.

    Returns:
      [..., 4, 4] world-to-camera matrices, OpenCV axes.

    Raises:
      ValueError: if a shape does not fit.

    Example:
      >>> look_at(jnp.array([0.0, 0.0, -3.0]), jnp.zeros(3))[2]
      Array([0., 0., 1., 3.], dtype=float32)
    """
    sizes = _check.shapes("look_at", eyes=(eyes, "... 3"), targets=(targets, "... 3"))
    _check.floating("look_at", eyes=eyes, targets=targets)
    rank = len(sizes["..."]) + 1
    eye, target = (tuple(jnp.moveaxis(_linalg.lift(x, rank), -1, 0)) for x in (eyes, targets))
    forward = _linalg.unit(*(t - e for t, e in zip(target, eye, strict=True)))
    vertical = tuple(jnp.full_like(forward[0], part) for part in _linalg.unit(*map(jnp.asarray, up)))
    sideways = cross(forward, vertical)
    parallel = dot(sideways, sideways) < _PARALLEL
    other = cross(forward, (vertical[1], vertical[2], vertical[0]))
    right = _linalg.unit(*(jnp.where(parallel, b, a) for a, b in zip(sideways, other, strict=True)))
    rows = (right, cross(forward, right), forward)
    zero, one = jnp.zeros_like(forward[0]), jnp.ones_like(forward[0])
    top = [part for row in rows for part in (*row, -dot(row, eye))]
    return _linalg.interleave(*jnp.broadcast_arrays(*top, zero, zero, zero, one)).reshape(*zero.shape, 4, 4)


def intrinsics_from_fov(
    fov: jax.Array | float, *, width: int, height: int, projection: Projection = "perspective"
) -> jax.Array:
    """Makes camera matrices with square pixels and the principal point in the middle.

    Args:
      fov: [...] horizontal field of view in radians; up to 2 pi for an equidistant projection.
      width: image width in pixels.
      height: image height in pixels.
      projection: "perspective", or "equidistant" for a fisheye.

    Returns:
      [..., 3, 3] camera matrices, in pixels.

    Raises:
      ValueError: if a setting is not one of those expected.

    Example:
      >>> intrinsics_from_fov(jnp.pi / 2, width=200, height=100)[0]
      Array([100.,   0., 100.], dtype=float32)
    """
    name = "intrinsics_from_fov"
    _check.positive_int(name, width=width, height=height)
    _check.choice(name, "projection", projection, ("perspective", "equidistant"))
    half = 0.5 * jnp.asarray(fov, dtype=jnp.result_type(float, fov))
    focal = 0.5 * width / (jnp.tan(half) if projection == "perspective" else half)
    zero, one = jnp.zeros_like(focal), jnp.ones_like(focal)
    entries = (focal, zero, 0.5 * width * one, zero, focal, 0.5 * height * one, zero, zero, one)
    return _linalg.interleave(*entries).reshape(*focal.shape, 3, 3)
