"""What one triangle says about one pixel: barycentric coordinates, depth and distance, on separate components.

The rules are those of PyTorch3D. Plain arithmetic with selects, so that it has derivatives of any order in both modes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat import _constants as const


class Triangle(NamedTuple):
    """Corners on the screen: positions x, y in the units of the convention, depths z."""

    x0: jax.Array
    y0: jax.Array
    z0: jax.Array
    x1: jax.Array
    y1: jax.Array
    z1: jax.Array
    x2: jax.Array
    y2: jax.Array
    z2: jax.Array


class Evaluation(NamedTuple):
    """One triangle at one pixel: depth, barycentric coordinates, squared distance to the outline (no sign)."""

    depth: jax.Array
    bary: tuple[jax.Array, jax.Array, jax.Array]
    distance: jax.Array


def double_area(t: Triangle) -> jax.Array:
    """Twice the area, positive for a triangle that shows its front."""
    return (t.x2 - t.x0) * (t.y1 - t.y0) - (t.y2 - t.y0) * (t.x1 - t.x0)


def evaluate(
    t: Triangle, px: jax.Array, py: jax.Array, *, perspective_correct: bool, clip_barycentric_coords: bool
) -> Evaluation:
    """Evaluates triangles at pixels; all components broadcast by rank, as they have the same."""
    tiny = const.TRIANGLE_EPSILON
    area = double_area(t) + tiny
    bary = (
        _edge(px, py, t.x1, t.y1, t.x2, t.y2) / area,
        _edge(px, py, t.x2, t.y2, t.x0, t.y0) / area,
        _edge(px, py, t.x0, t.y0, t.x1, t.y1) / area,
    )
    if perspective_correct:
        top = (bary[0] * t.z1 * t.z2, bary[1] * t.z0 * t.z2, bary[2] * t.z0 * t.z1)
        total = top[0] + top[1] + top[2]
        total = jnp.where(total > tiny, total, tiny)
        bary = tuple(part / total for part in top)
    if clip_barycentric_coords:
        clipped = tuple(jnp.where(part < 0, 0, part) for part in bary)
        total = clipped[0] + clipped[1] + clipped[2]
        total = jnp.where(total > const.BARYCENTRIC_SUM_MIN, total, const.BARYCENTRIC_SUM_MIN)
        bary = tuple(part / total for part in clipped)
    depth = bary[0] * t.z0 + bary[1] * t.z1 + bary[2] * t.z2
    distance = _segment(px, py, t.x0, t.y0, t.x1, t.y1)
    for corners in ((t.x0, t.y0, t.x2, t.y2), (t.x1, t.y1, t.x2, t.y2)):
        other = _segment(px, py, *corners)
        # A select: minimum would split the gradient where both are equal.
        distance = jnp.where(other < distance, other, distance)
    return Evaluation(depth, bary, distance)  # pyright: ignore[reportArgumentType]


def covers(t: Triangle, px: jax.Array, py: jax.Array) -> jax.Array:
    """Whether the centre of a pixel lies inside a triangle, so that of two neighbours exactly one has it.

    An edge is evaluated from the same of its ends for both neighbours, and two products are compared instead of
    subtracted, so that the outcomes are exactly opposite and a corner lies exactly on its edges. A centre that lies on
    an edge goes to the side to which it would fall if it moved by (e, e^2) for a tiny e.
    """
    front = double_area(t) > 0
    inside = jnp.ones((), bool)
    for ax, ay, bx, by in ((t.x1, t.y1, t.x2, t.y2), (t.x2, t.y2, t.x0, t.y0), (t.x0, t.y0, t.x1, t.y1)):
        swap = (bx < ax) | ((bx == ax) & (by < ay))
        cx, cy = jnp.where(swap, bx, ax), jnp.where(swap, by, ay)
        dx, dy = jnp.where(swap, ax, bx) - cx, jnp.where(swap, ay, by) - cy
        # Seen from the lower end; the sign is that of the triangle's own direction.
        left, right = (py - cy) * dx, (px - cx) * dy
        positive = swap != front
        on_edge = jnp.where(dy != 0, dy > 0, dx < 0)
        inside &= jnp.where(left == right, on_edge == positive, (left < right) == positive)
    return inside


def _edge(px: jax.Array, py: jax.Array, ax: jax.Array, ay: jax.Array, bx: jax.Array, by: jax.Array) -> jax.Array:
    """Twice the area of the triangle (p, a, b)."""
    return (px - ax) * (by - ay) - (py - ay) * (bx - ax)


def _segment(px: jax.Array, py: jax.Array, ax: jax.Array, ay: jax.Array, bx: jax.Array, by: jax.Array) -> jax.Array:
    """Squared distance from p to the segment from a to b."""
    dx, dy = bx - ax, by - ay
    squared = dx * dx + dy * dy
    long_enough = squared > const.TRIANGLE_EPSILON
    along = ((px - ax) * dx + (py - ay) * dy) / jnp.where(long_enough, squared, 1)
    along = jnp.where(along > 0, jnp.where(along < 1, along, 1), 0)
    # A segment too short counts as its second end.
    along = jnp.where(long_enough, along, 1)
    x, y = ax + along * dx - px, ay + along * dy - py
    return x * x + y * y
