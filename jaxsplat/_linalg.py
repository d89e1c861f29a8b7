"""Small linear algebra on separate components: rotations, covariances, safe norms.

XLA on a CPU fuses scalar expressions over long arrays into one loop, but not stacks and 3x3 products. So the inner
functions take and return components (`x`, `y`, `z` as arrays of their own), and only the public ones stack.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _check
from jaxsplat import _constants as const

_SERIES_BELOW = 1e-3
"""Squared angle below which the series are exact to float32, and the closed forms divide by almost zero."""


class CovarPreci(NamedTuple):
    """Covariances and their inverses; None for what was not asked for.

    Attributes:
      covars: [..., N, 3, 3], or [..., N, 6] upper triangles (xx, xy, xz, yy, yz, zz), in squared world units.
      precis: the same shape, inverse of `covars`.
    """

    covars: jax.Array | None
    precis: jax.Array | None


@jax.custom_vjp
def components(x: jax.Array) -> tuple[jax.Array, ...]:
    """Splits the last axis into separate arrays. Reverse mode only: its transpose is `interleave`."""
    return tuple(jnp.squeeze(part, -1) for part in lax.split(x, (1,) * x.shape[-1], x.ndim - 1))


def _components_fwd(x: jax.Array) -> tuple[tuple[jax.Array, ...], None]:
    return components(x), None


def _components_bwd(_: None, cotangents: tuple[jax.Array, ...]) -> tuple[jax.Array]:
    return (interleave(*cotangents),)


components.defvjp(_components_fwd, _components_bwd)


def interleave(*parts: jax.Array) -> jax.Array:
    """Stacks along a new last axis."""
    # Selects, not a concatenation: XLA fuses what computes the parts into either, but inside a concatenation it then
    # runs as branching scalar code, once for each part (ten times slower; an optimization barrier helps new XLA only).
    index = lax.broadcasted_iota(jnp.int32, (*parts[0].shape, len(parts)), parts[0].ndim)
    stacked = jnp.broadcast_to(parts[-1][..., None], index.shape)
    for i, part in enumerate(parts[:-1]):
        stacked = jnp.where(index == i, part[..., None], stacked)
    return stacked


def lift(x: jax.Array, rank: int) -> jax.Array:
    """Puts axes of size 1 in front, so that arrays of different rank broadcast explicitly."""
    return x.reshape((1,) * (rank - x.ndim) + x.shape)


def unbroadcast(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Sums over the axes along which an array of this shape was broadcast."""
    axes = tuple(i for i, (have, want) in enumerate(zip(x.shape, shape, strict=True)) if have != want)
    return jnp.sum(x, axes, keepdims=True) if axes else x


def unit(*vector: jax.Array) -> tuple[jax.Array, ...]:
    """Divides a vector, given by components, by its length.

    A vector whose largest component is at most `NORM_FLOOR` in magnitude becomes zero, with zero gradient. The result
    neither overflows nor underflows for any other finite vector.
    """
    largest = jnp.abs(vector[0])
    for component in vector[1:]:
        largest = jnp.maximum(largest, jnp.abs(component))
    # The direction does not depend on this scale, so leaving it out of the derivative changes nothing.
    largest = lax.stop_gradient(largest)
    long_enough = largest > const.NORM_FLOOR
    # Divisions: the reciprocal of a large number is denormal, which XLA flushes to zero.
    scale = jnp.where(long_enough, largest, 1)
    scaled = [component / scale for component in vector]
    squared = sum((component * component for component in scaled[1:]), start=scaled[0] * scaled[0])
    inverse = lax.rsqrt(jnp.where(long_enough, squared, 1))
    return tuple(jnp.where(long_enough, component * inverse, 0) for component in scaled)


def rotation(w: jax.Array, x: jax.Array, y: jax.Array, z: jax.Array) -> tuple[tuple[jax.Array, ...], ...]:
    """Rotation matrix, as rows of components, of a quaternion of any length; the identity for a zero quaternion."""
    w, x, y, z = unit(w, x, y, z)
    return (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )


def rodrigues(squared: jax.Array) -> tuple[jax.Array, jax.Array]:
    """sin(t) / t and (1 - cos(t)) / t^2 for an angle given by its square, with finite gradients at zero."""
    small = squared < _SERIES_BELOW
    safe = jnp.where(small, 1.0, squared)
    angle = jnp.sqrt(safe)
    first = jnp.where(small, 1.0 - squared / 6.0 + squared * squared / 120.0, jnp.sin(angle) / angle)
    second = jnp.where(small, 0.5 - squared / 24.0 + squared * squared / 720.0, (1.0 - jnp.cos(angle)) / safe)
    return first, second


def inverse_2x2(a: jax.Array, b: jax.Array, c: jax.Array, det: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Upper triangle of the inverse of the symmetric matrix (a b; b c) whose determinant is known."""
    inverse = 1 / det
    return c * inverse, -b * inverse, a * inverse


def quat_to_rotmat(quats: jax.Array) -> jax.Array:
    """Turns quaternions into rotation matrices.

    Args:
      quats: [..., 4] in the order w, x, y, z, of any length. A zero quaternion gives the identity, with zero gradient.

    Returns:
      [..., 3, 3] rotation matrices.

    Raises:
      ValueError: if `quats` has another shape.

    Example:
      >>> quat_to_rotmat(jnp.array([2.0, 0.0, 0.0, 0.0]))[0]
      Array([1., 0., 0.], dtype=float32)
    """
    _check.shapes("quat_to_rotmat", quats=(quats, "... 4"))
    _check.floating("quat_to_rotmat", quats=quats)
    rows = rotation(*components(quats))
    return interleave(*rows[0], *rows[1], *rows[2]).reshape(*quats.shape[:-1], 3, 3)


def quat_scale_to_covar_preci(
    quats: jax.Array,
    scales: jax.Array,
    *,
    compute_covar: bool = True,
    compute_preci: bool = True,
    triu: bool = False,
) -> CovarPreci:
    """Computes covariances R S S R^T and precisions R S^-1 S^-1 R^T.

    Args:
      quats: [..., N, 4] rotations as w, x, y, z, of any length. A zero quaternion stands for the identity, with zero
        gradient.
      scales: [..., N, 3] standard deviations along the rotated axes, in world units. In the precisions, a scale below
        1e-12 in magnitude counts as 1e-12, with zero gradient, so that everything stays finite.
      compute_covar: whether to compute the covariances.
      compute_preci: whether to compute the precisions.
      triu: whether to return the upper triangles only, as [..., N, 6].

    Returns:
      `CovarPreci`, with None for what was not asked for.

    Raises:
      ValueError: if the shapes do not agree.

    Example:
      >>> quats, scales = jnp.array([[1.0, 0.0, 0.0, 0.0]]), jnp.array([[1.0, 2.0, 3.0]])
      >>> quat_scale_to_covar_preci(quats, scales, triu=True).covars
      Array([[1., 0., 0., 4., 0., 9.]], dtype=float32)
    """
    name = "quat_scale_to_covar_preci"
    sizes = _check.shapes(name, quats=(quats, "... N 4"), scales=(scales, "... N 3"))
    _check.floating(name, quats=quats, scales=scales)
    rank = len(sizes["..."]) + 2
    rows = rotation(*components(lift(quats, rank)))
    axes = components(lift(scales, rank))
    covars = precis = None
    if compute_covar:
        covars = _outer(rows, axes, triu)
    if compute_preci:
        axes = [jnp.where(jnp.abs(axis) > const.NORM_FLOOR, axis, const.NORM_FLOOR) for axis in axes]
        precis = _outer(rows, tuple(1 / axis for axis in axes), triu)
    return CovarPreci(covars, precis)


def _outer(rows: tuple[tuple[jax.Array, ...], ...], axes: tuple[jax.Array, ...], triu: bool) -> jax.Array:
    """Stacks M M^T for M = R diag(axes)."""
    m = [[entry * axis for entry, axis in zip(row, axes, strict=True)] for row in rows]
    upper = {(i, j): m[i][0] * m[j][0] + m[i][1] * m[j][1] + m[i][2] * m[j][2] for i in range(3) for j in range(i, 3)}
    if triu:
        return interleave(*upper.values())
    full = interleave(*(upper[min(i, j), max(i, j)] for i in range(3) for j in range(3)))
    return full.reshape(*full.shape[:-1], 3, 3)
