"""Where any camera sees 3D Gaussians that are evaluated along rays: the contour of each, point by point.

The ellipsoid t + A n, |n| <= 1, is seen from the origin up to where lines of sight touch it: n . q = -1 with
q = A^-1 t, a circle on the unit sphere. Points of it are projected, and an ellipse is put around them.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsplat import _linalg
from jaxsplat.cameras import Model, ortho
from jaxsplat.cameras.distorted import DistortedCamera
from jaxsplat.cameras.pose import Vector, cross, dot
from jaxsplat.projection.splats import Camera

_ANGLES = 2 * np.pi * np.arange(12) / 12
_WIDER = 1.05 / math.cos(math.pi / len(_ANGLES))
"""What lies between the points is inside an ellipse that is this much larger than one through the points."""

_CLOSE = 0.999
"""The camera is taken to be inside an ellipsoid that reaches this far towards it."""

_THINNEST = 1e-4
"""Least ratio of the variances of an ellipse: below it, float32 loses the determinant."""

_FARTHEST = 1e6
"""In pixels: squares of squares are taken."""

_LEAST = 1e-3
"""Variance that is added to each ellipse, in squared pixels: a far splat may be less than rounding."""

_SLACK = 0.02
"""In radians, beyond the edge of the picture."""

_WIDE = 1.0
"""In radians, from the mean to the contour: from there on no ellipse is looked for."""

_TIMES = (0.0, 0.5, 1.0)
"""Of the read-out of a shutter. What is seen meanwhile lies between."""


class Contour(NamedTuple):
    """Ellipses in pixels, by centre and squared shape (a b; b c); `whole` where the whole picture stands for one.

    `seen` is whether a splat can be in the picture at all.
    """

    u: jax.Array
    v: jax.Array
    a: jax.Array
    b: jax.Array
    c: jax.Array
    whole: jax.Array
    seen: jax.Array


def contour(
    t: Vector,
    axes: list[Vector],
    scale: Vector,
    level: jax.Array,
    camera: Camera,
    named: Model | None,
    size: tuple[int, int],
) -> Contour:
    """Finds ellipses around what is seen of splats.

    Args:
      t: mean in camera space; under a shutter, when the first line is read.
      axes: of the splat, unit vectors there.
      scale: standard deviations along them.
      level: squared number of standard deviations at which the splat ends.
      camera: by components.
      named: model of the camera where that has no lens.
      size: of the picture, in pixels.

    Returns:
      The ellipses.
    """
    # A first axis for the points.
    t, axes, scale, level, camera = jax.tree.map(
        lambda x: x[None] if jnp.ndim(x) else x, (t, axes, scale, level, camera)
    )
    model = named if camera.lens is None else camera.lens
    assert model is not None
    limit = _picture_angle(camera, model, size)
    positions: list[tuple[jax.Array, jax.Array]] = []
    whole, seen = jnp.zeros((), bool), jnp.asarray(model is ortho)
    for time in _TIMES if camera.motion is not None else (None,):
        mean, turned = t, axes
        if camera.motion is not None and time is not None:
            mean = camera.motion.later(t, jnp.asarray(time, t[0].dtype))
            turned = [camera.motion.turned_earlier(axis, jnp.asarray(-time, t[0].dtype)) for axis in axes]
        points, inside = _touched(mean, turned, scale, level, parallel=model is ortho)
        x, y, z = points
        shown = model.sees(x, y, z)
        x, y, z = (jnp.where(shown, part, at) for part, at in ((x, 0), (y, 0), (z, 1)))
        positions.append(model.project(x, y, z, camera.k))
        whole = whole | inside | ~jnp.all(shown, 0, keepdims=True)
        if model is not ortho:
            off_axis, reach = jnp.arctan2(jnp.sqrt(mean[0] ** 2 + mean[1] ** 2), mean[2]), _reach(mean, points)
            # What is wide is bent, and straight behind, the picture of a fisheye is torn apart.
            whole |= (reach > _WIDE) | (off_axis + reach >= np.pi)
            seen = seen | inside | (off_axis - reach <= limit)
    u, v = (jnp.concatenate(jnp.broadcast_arrays(*parts)) for parts in zip(*positions, strict=True))
    # Fused with what follows, every point would be projected again for each of its uses.
    u, v = lax.optimization_barrier((u, v))
    whole |= ~jnp.all((jnp.abs(u) < _FARTHEST) & (jnp.abs(v) < _FARTHEST), 0, keepdims=True)
    return Contour(*(part[0] for part in (*_around(u, v), whole, jnp.broadcast_to(seen, whole.shape))))


def _touched(
    t: Vector, axes: list[Vector], scale: Vector, level: jax.Array, *, parallel: bool
) -> tuple[Vector, jax.Array]:
    """Points [K, ..., C, N] where lines of sight touch the ellipsoids, and whether the camera is inside."""
    view = (jnp.zeros_like(t[0]), jnp.zeros_like(t[0]), jnp.ones_like(t[0])) if parallel else t
    largest = functools.reduce(jnp.maximum, map(jnp.abs, scale))
    r = [part / jnp.where(largest > 0, largest, 1) for part in scale]
    # q times the product of the ratios, which does not overflow for flat splats.
    q = tuple(dot(axis, view) * r[i - 2] * r[i - 1] for i, axis in enumerate(axes))
    distance = jnp.sqrt(dot(q, q))
    near = jnp.zeros_like(distance) if parallel else jnp.sqrt(level) * largest * r[0] * r[1] * r[2]
    inside = near >= _CLOSE * distance if not parallel else jnp.zeros_like(distance, bool)
    forth = jnp.where(inside, 0, near / jnp.where(inside | (distance == 0), 1, distance))
    wide = jnp.sqrt(1 - forth * forth)
    forward = _linalg.unit(*q)
    sideways, upwards = _frame(forward)
    cosine, sine = (
        f(_ANGLES).reshape(-1, *(1,) * (distance.ndim - 1)).astype(distance.dtype) for f in (np.cos, np.sin)
    )
    n = tuple(
        (wide * (cosine * side + sine * up) - forth * ahead) * s * jnp.sqrt(level)
        for ahead, side, up, s in zip(forward, sideways, upwards, scale, strict=True)
    )
    return tuple(dot(n, row) + part for row, part in zip(zip(*axes, strict=True), t, strict=True)), inside


def _frame(z: Vector) -> tuple[Vector, Vector]:
    """Two unit vectors across a third (Duff et al., "Building an Orthonormal Basis, Revisited", 2017)."""
    sign = jnp.where(z[2] < 0, -1, 1)
    a = -1 / (sign + z[2])
    b = z[0] * z[1] * a
    return (1 + sign * z[0] * z[0] * a, sign * b, -sign * z[0]), (b, sign + z[1] * z[1] * a, -z[1])


def _reach(mean: Vector, points: Vector) -> jax.Array:
    """Largest angle between the directions to the mean and to points of the contour."""
    turn = cross(mean, points)
    return _WIDER * jnp.max(jnp.arctan2(jnp.sqrt(dot(turn, turn)), dot(mean, points)), 0, keepdims=True)


def _picture_angle(camera: Camera, model: Model, size: tuple[int, int]) -> jax.Array:
    """Angle between the axis and the farthest ray of the picture, or of the lens where some of its edge has no ray."""
    domain: jax.Array | float = 0.5 * np.pi
    if isinstance(model, DistortedCamera):
        domain = model.limit if model.lens.projection == "equidistant" else jnp.arctan(model.limit)
    places = [(w * size[0], h * size[1]) for w, h in itertools.product((0, 0.5, 1), (0, 0.5, 1))]
    angles = []
    for place in places:
        u, v = (jnp.full_like(camera.k.fx, part) for part in place)
        _, (x, y, z) = model.ray(u, v, camera.k)
        there = x * x + y * y + z * z > 0
        angles.append(jnp.where(there, jnp.arctan2(jnp.sqrt(x * x + y * y), z), domain))
    return functools.reduce(jnp.maximum, angles) + _SLACK


def _around(u: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
    """Centre and squared shape of ellipses around points [K, ...]."""
    centre = jnp.mean(u, 0, keepdims=True), jnp.mean(v, 0, keepdims=True)
    x, y = u - centre[0], v - centre[1]
    a, b, c = (2 * jnp.mean(p * q, 0, keepdims=True) for p, q in ((x, x), (x, y), (y, y)))
    least = _THINNEST * (a + c) + _LEAST
    a, c = a + least, c + least
    farthest = jnp.max((c * x * x - 2 * b * x * y + a * y * y) / (a * c - b * b), 0, keepdims=True)
    return *centre, *(part * farthest * _WIDER**2 for part in (a, b, c))
