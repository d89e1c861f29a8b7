"""The camera behind a `Lens`: a projection to the plane, the distortion there, and the camera matrix."""

from __future__ import annotations

import functools
import itertools
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _constants as const
from jaxsplat.cameras import fisheye, pinhole
from jaxsplat.cameras.distortion import bend, bend_derivative, radial_part, turning_radius, unbend
from jaxsplat.cameras.intrinsics import UNIT, Intrinsics
from jaxsplat.cameras.lens import Lens, split_lens

BASES: dict[str, ModuleType] = {"perspective": pinhole, "equidistant": fisheye}

Row = tuple[jax.Array, jax.Array, jax.Array]


class DistortedCamera(NamedTuple):
    """A lens by components, with the functions of a camera model.

    Attributes:
      lens: coefficients that broadcast against the points.
      limit: radius on the plane up to which the lens is one to one.
    """

    lens: Lens
    limit: jax.Array

    def project(self, x: jax.Array, y: jax.Array, z: jax.Array, k: Intrinsics) -> tuple[jax.Array, jax.Array]:
        """Maps camera-space points that the camera sees to pixels (u, v)."""
        px, py = BASES[self.lens.projection].project(x, y, z, UNIT)
        return k.pixels(*bend(px, py, self.lens))

    def jacobian(
        self, x: jax.Array, y: jax.Array, z: jax.Array, k: Intrinsics, width: int, height: int
    ) -> tuple[Row, Row]:
        """Derivative of (u, v) by (x, y, z), as two rows of components.

        For a perspective lens it is taken no further outside the image than `CLAMP_MARGIN` beyond its farthest corner.
        """
        if self.lens.projection == "perspective":
            edge = self._edge(k, width, height)
            x, y = _within(x, y, z, edge)
        px, py = BASES[self.lens.projection].project(x, y, z, UNIT)
        by_x, by_y = bend_derivative(px, py, self.lens)
        rows = _plane_jacobian(self.lens.projection, x, y, z, px, py)
        bent = [[a * r + b * s for r, s in zip(*rows, strict=True)] for a, b in zip(by_x, by_y, strict=True)]
        across = tuple(k.fx * a + k.skew * b for a, b in zip(*bent, strict=True))
        down = tuple(k.shear * a + k.fy * b for a, b in zip(*bent, strict=True))
        return across, down  # pyright: ignore[reportReturnType]

    def ray(self, u: jax.Array, v: jax.Array, k: Intrinsics) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        """Origin and unit direction of the camera-space ray through a pixel position; zeros where there is none."""
        x, y, there = unbend(*k.plane(u, v), self.lens, self.limit)
        origin, direction = BASES[self.lens.projection].ray(x, y, UNIT)
        return origin, tuple(jnp.where(there, part, 0) for part in direction)

    def sees(self, x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
        """Whether a camera-space point lies where the lens is one to one."""
        r = jnp.sqrt(lax.stop_gradient(x * x + y * y))
        if self.lens.projection == "perspective":
            return (z > 0) & (r <= self.limit * z)
        return jnp.arctan2(r, lax.stop_gradient(z)) <= self.limit

    def depth(self, x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
        """Depth of a camera-space point, in world units; the distance where the lens looks past 90 degrees."""
        if self.lens.projection == "perspective":
            return z
        squared = x * x + y * y + z * z
        return jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1)), 0)

    def _edge(self, k: Intrinsics, width: int, height: int) -> jax.Array:
        """Radius on the plane of the farthest corner of the picture with its margin, by the radial part."""
        margin = const.CLAMP_MARGIN
        corners = itertools.product((-margin * width, (1 + margin) * width), (-margin * height, (1 + margin) * height))
        points = (k.plane(*map(jnp.asarray, corner)) for corner in corners)
        distance = functools.reduce(jnp.maximum, [jnp.sqrt(x * x + y * y) for x, y in points])
        r, _, there = unbend(distance, jnp.zeros_like(distance), radial_part(self.lens), self.limit)
        return jnp.where(there, r, self.limit)


def distorted_camera(function: str, lens: Lens, sizes: dict[str, Any], rank: int, axes: int) -> DistortedCamera:
    """Makes the camera of a lens for points with so many axes behind [..., C]; see `split_lens`."""
    split = split_lens(function, lens, sizes, rank, axes)
    return DistortedCamera(split, turning_radius(split))


def _within(x: jax.Array, y: jax.Array, z: jax.Array, edge: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Moves points that lie farther out than x^2 + y^2 = (edge z)^2 straight in."""
    squared, largest = x * x + y * y, edge * z
    outside = squared > largest * largest
    shrink = jnp.where(outside, largest / jnp.sqrt(jnp.where(outside, squared, 1)), 1)
    return x * shrink, y * shrink


def _plane_jacobian(
    projection: str, x: jax.Array, y: jax.Array, z: jax.Array, px: jax.Array, py: jax.Array
) -> tuple[Row, Row]:
    """Derivative of the point on the plane by (x, y, z)."""
    if projection == "equidistant":
        return fisheye.jacobian(x, y, z, UNIT, 0, 0)
    inverse = 1 / z
    zero = jnp.zeros_like(z)
    return (inverse, zero, -px * inverse), (zero, inverse, -py * inverse)
