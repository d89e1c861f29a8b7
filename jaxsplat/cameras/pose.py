"""View matrices by components: points into the camera and back, and what a rolling shutter sees in between."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat import _linalg

Vector = tuple[jax.Array, ...]


class Pose(NamedTuple):
    """A view matrix as components that broadcast against the points.

    Attributes:
      rows: of the upper left 3x3 block, a tuple of three components each.
      shift: three components of the last column.
    """

    rows: tuple[Vector, ...]
    shift: Vector

    def to_camera(self, point: Vector) -> Vector:
        """Camera coordinates of a point of the world."""
        return tuple(dot(row, point) + shift for row, shift in zip(self.rows, self.shift, strict=True))

    def to_world(self, point: Vector) -> Vector:
        """World coordinates of a point in camera coordinates."""
        return self.turned_back(tuple(p - shift for p, shift in zip(point, self.shift, strict=True)))

    def turned_back(self, direction: Vector) -> Vector:
        """World coordinates of a direction in camera coordinates.

        The matrix is inverted in full, not transposed, so that gradients hold for matrices that are no exact rotation.
        """
        first, second, third = self.rows
        columns = cross(second, third), cross(third, first), cross(first, second)
        inverse = 1 / dot(first, columns[0])
        return tuple(dot(row, direction) * inverse for row in zip(*columns, strict=True))


def split_pose(viewmats: jax.Array, axes: int) -> Pose:
    """Splits view matrices [..., 4, 4] into components [..., 1, 1] with so many axes behind."""
    top = viewmats[..., :3, :].reshape(*viewmats.shape[:-2], *(1,) * axes, 12)
    entries = _linalg.components(top)
    return Pose(tuple(entries[4 * i : 4 * i + 3] for i in range(3)), entries[3::4])


def camera_centres(viewmats: jax.Array) -> jax.Array:
    """[..., C, 3] where each camera is: the point that its view matrix sends to the origin."""
    zero = jnp.zeros((), viewmats.dtype)
    return _linalg.interleave(*split_pose(viewmats, 0).to_world((zero, zero, zero)))


def dot(p: Vector, q: Vector) -> jax.Array:
    """Scalar product."""
    return p[0] * q[0] + p[1] * q[1] + p[2] * q[2]


def cross(p: Vector, q: Vector) -> Vector:
    """Vector product."""
    return p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]
