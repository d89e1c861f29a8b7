"""Rolling shutters: the camera moves while the picture is read out line by line."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat import _check, _linalg
from jaxsplat.cameras.pose import Pose, Vector, cross, dot

Direction = Literal["top_to_bottom", "bottom_to_top", "left_to_right", "right_to_left"]
DIRECTIONS = ("top_to_bottom", "bottom_to_top", "left_to_right", "right_to_left")

_SMALL = 1e-6
"""Squared sine below which the ratio of an angle to its sine is summed as a series."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Shutter:
    """How a picture is read out. The first line is taken from the view matrix, the last from `viewmats_end`.

    In between, the centre of the camera moves on a straight line and the camera turns about one axis, both at constant
    speed (the exponential map of the rotation; it must turn by less than half a circle).

    Attributes:
      viewmats_end: [..., C, 4, 4] world-to-camera matrices when the last line is read.
      direction: static, in which the lines follow each other.
    """

    viewmats_end: jax.Array
    direction: Direction = dataclasses.field(default="top_to_bottom", metadata={"static": True})

    def time(self, u: jax.Array, v: jax.Array, width: int, height: int) -> jax.Array:
        """When a pixel position is read: 0 at the centres of the first line, 1 at those of the last."""
        across = self.direction in ("left_to_right", "right_to_left")
        position, size = (u, width) if across else (v, height)
        time = (position - 0.5) / max(size - 1, 1)
        return 1 - time if self.direction in ("bottom_to_top", "right_to_left") else time


def check_shutter(function: str, shutter: Shutter, viewmats: jax.Array) -> None:
    """Raises unless the end poses fit the view matrices."""
    end = shutter.viewmats_end
    _check.shapes(function, viewmats=(viewmats, "... C 4 4"), **{"shutter.viewmats_end": (end, "... C 4 4")})
    _check.floating(function, **{"shutter.viewmats_end": end})
    _check.choice(function, "shutter.direction", shutter.direction, DIRECTIONS)


class Motion(NamedTuple):
    """What happens between two poses, in the coordinates of the first camera.

    Attributes:
      turn: axis times angle, in radians.
      step: of the camera's centre, in world units.
    """

    turn: Vector
    step: Vector

    def later(self, point: Vector, time: jax.Array) -> Vector:
        """Coordinates at this time of a point in the coordinates of the first camera."""
        moved = tuple(p - time * step for p, step in zip(point, self.step, strict=True))
        return _turned(tuple(time * w for w in self.turn), moved)

    def earlier(self, point: Vector, time: jax.Array) -> Vector:
        """Coordinates in the first camera of a point in the coordinates of this time."""
        turned = self.turned_earlier(point, time)
        return tuple(p + time * step for p, step in zip(turned, self.step, strict=True))

    def turned_earlier(self, direction: Vector, time: jax.Array) -> Vector:
        """Direction in the first camera of a direction in the coordinates of this time."""
        return _turned(tuple(-time * w for w in self.turn), direction)


def motion(start: Pose, end: Pose) -> Motion:
    """The motion from one pose to another."""
    relative = [[dot(row, other) for other in start.rows] for row in end.rows]
    sines = tuple(0.5 * (relative[i][j] - relative[j][i]) for i, j in ((2, 1), (0, 2), (1, 0)))
    cosine = 0.5 * (relative[0][0] + relative[1][1] + relative[2][2] - 1)
    squared = dot(sines, sines)
    small = squared < _SMALL
    sine = jnp.sqrt(jnp.where(small, 1, squared))
    factor = jnp.where(small, 1 + squared * (1 / 6 + squared * (3 / 40)), jnp.arctan2(sine, cosine) / sine)
    zero: Any = jnp.zeros_like(cosine)
    step = start.to_camera(end.to_world((zero, zero, zero)))
    return Motion(tuple(factor * part for part in sines), step)


def _turned(turn: Vector, point: Vector) -> Vector:
    """Rodrigues' formula."""
    first, second = _linalg.rodrigues(dot(turn, turn))
    once = cross(turn, point)
    return tuple(p + first * a + second * b for p, a, b in zip(point, once, cross(turn, once), strict=True))
