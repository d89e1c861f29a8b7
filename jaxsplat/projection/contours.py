"""Where any camera sees 3D Gaussians that are evaluated along rays: the contour of each, point by point.

The ellipsoid t + A n, |n| <= 1, is seen from the origin up to where lines of sight touch it: n . q = -1 with
q = A^-1 t, a circle on the unit sphere. Points of it are projected, and an ellipse is put around them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsplat import _linalg
from jaxsplat.cameras import Model, ortho
from jaxsplat.cameras.distorted import DistortedCamera
from jaxsplat.cameras.pose import Vector, dot
from jaxsplat.projection.splats import Camera

_ANGLES = [2 * math.pi * k / 12 for k in range(12)]
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
    model = named if camera.lens is None else camera.lens
    assert model is not None
    limit = _picture_angle(camera, model, size)
    found: list[_Point] = []
    whole, seen = jnp.zeros((), bool), jnp.asarray(model is ortho)
    for time in _TIMES if camera.motion is not None else (None,):
        mean, turned = t, axes
        if camera.motion is not None and time is not None:
            mean = camera.motion.later(t, jnp.asarray(time, t[0].dtype))
            turned = [camera.motion.turned_earlier(axis, jnp.asarray(-time, t[0].dtype)) for axis in axes]
        points, inside = _touched(mean, turned, scale, level, parallel=model is ortho)
        # Fused with what follows, every point would be projected again for each of its uses.
        now = lax.optimization_barrier([_shown((x, y, z), mean, camera, model) for x, y, z in points])
        found += now
        whole = whole | inside
        if model is not ortho:
            off_axis = jnp.arctan2(jnp.sqrt(mean[0] ** 2 + mean[1] ** 2), mean[2])
            chord = jnp.sqrt(functools.reduce(jnp.maximum, [point.squared_chord for point in now]))
            reach = _WIDER * 2 * jnp.arcsin(jnp.minimum(0.5 * chord, 1))
            # What is wide is bent, and straight behind, the picture of a fisheye is torn apart.
            whole |= (reach > _WIDE) | (off_axis + reach >= np.pi)
            seen = seen | inside | (off_axis - reach <= limit)
    whole |= ~functools.reduce(jnp.logical_and, [point.shown for point in found])
    u, v, a, b, c = _around([point.u for point in found], [point.v for point in found])
    return Contour(u, v, a, b, c, whole, jnp.broadcast_to(seen, whole.shape))


class _Point(NamedTuple):
    """A point of a contour in the picture, and the squared distance of its direction from that to the mean."""

    u: jax.Array
    v: jax.Array
    shown: jax.Array
    squared_chord: jax.Array


def _shown(point: tuple[jax.Array, jax.Array, jax.Array], mean: Vector, camera: Camera, model: Model) -> _Point:
    near, far = (jnp.sqrt(dot(vector, vector)) for vector in (mean, point))
    chord = tuple(a / near - b / far for a, b in zip(mean, point, strict=True))
    x, y, z = point
    shown = model.sees(x, y, z)
    x, y, z = (jnp.where(shown, part, at) for part, at in ((x, 0), (y, 0), (z, 1)))
    u, v = model.project(x, y, z, camera.k)
    return _Point(u, v, shown & (jnp.abs(u) < _FARTHEST) & (jnp.abs(v) < _FARTHEST), dot(chord, chord))


def _touched(
    t: Vector, axes: list[Vector], scale: Vector, level: jax.Array, *, parallel: bool
) -> tuple[list[Vector], jax.Array]:
    """Points where lines of sight touch the ellipsoids, and whether the camera is inside."""
    view = (jnp.zeros_like(t[0]), jnp.zeros_like(t[0]), jnp.ones_like(t[0])) if parallel else t
    largest = functools.reduce(jnp.maximum, map(jnp.abs, scale))
    r = [part / jnp.where(largest > 0, largest, 1) for part in scale]
    # q times the product of the ratios, which does not overflow for flat splats.
    q = tuple(dot(axis, view) * r[i - 2] * r[i - 1] for i, axis in enumerate(axes))
    distance = jnp.sqrt(dot(q, q))
    near = jnp.zeros_like(distance) if parallel else jnp.sqrt(level) * largest * r[0] * r[1] * r[2]
    inside = jnp.zeros_like(distance, bool) if parallel else near >= _CLOSE * distance
    forth = jnp.where(inside, 0, near / jnp.where(inside | (distance == 0), 1, distance))
    wide = jnp.sqrt(1 - forth * forth)
    forward = _linalg.unit(*q)
    size = [part * jnp.sqrt(level) for part in scale]
    middle, first, second = (
        tuple(factor * part * s for part, s in zip(direction, size, strict=True))
        for factor, direction in zip((-forth, wide, wide), (forward, *_frame(forward)), strict=True)
    )
    rows = tuple(zip(*axes, strict=True))
    parts = [tuple(dot(n, row) for row in rows) for n in (middle, first, second)]
    # As for the points.
    t, middle, first, second = lax.optimization_barrier((t, *parts))
    return [
        tuple(
            p + m + math.cos(angle) * a + math.sin(angle) * b
            for p, m, a, b in zip(t, middle, first, second, strict=True)
        )
        for angle in _ANGLES
    ], inside


def _frame(z: Vector) -> tuple[Vector, Vector]:
    """Two unit vectors across a third (Duff et al., "Building an Orthonormal Basis, Revisited", 2017)."""
    sign = jnp.where(z[2] < 0, -1, 1)
    a = -1 / (sign + z[2])
    b = z[0] * z[1] * a
    return (1 + sign * z[0] * z[0] * a, sign * b, -sign * z[0]), (b, sign + z[1] * z[1] * a, -z[1])


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


def _around(u: list[jax.Array], v: list[jax.Array]) -> tuple[jax.Array, ...]:
    """Centre and squared shape of ellipses around points."""

    def mean(values: Iterable[jax.Array]) -> jax.Array:
        return functools.reduce(jnp.add, values) / len(u)

    centre = mean(u), mean(v)
    x, y = ([part - middle for part in parts] for parts, middle in zip((u, v), centre, strict=True))
    a, b, c = (2 * mean(map(jnp.multiply, p, q)) for p, q in ((x, x), (x, y), (y, y)))
    least = _THINNEST * (a + c) + _LEAST
    a, c = a + least, c + least
    squares = [c * p * p - 2 * b * p * q + a * q * q for p, q in zip(x, y, strict=True)]
    farthest = functools.reduce(jnp.maximum, squares) / (a * c - b * b)
    return *centre, *(part * farthest * _WIDER**2 for part in (a, b, c))
