"""The perspective camera: u = (fx x + skew y) / z + cx."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsplat import _constants as const
from jaxsplat import _linalg
from jaxsplat.cameras.intrinsics import Intrinsics


def project(x: jax.Array, y: jax.Array, z: jax.Array, k: Intrinsics) -> tuple[jax.Array, jax.Array]:
    """Maps camera-space points, z > 0, to pixels (u, v)."""
    inverse = 1 / z
    return k.pixels(x * inverse, y * inverse)


def jacobian(
    x: jax.Array, y: jax.Array, z: jax.Array, k: Intrinsics, width: int, height: int
) -> tuple[tuple[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]:
    """Derivative of (u, v) by (x, y, z), as two rows of components.

    It is taken no further outside the image than `CLAMP_MARGIN` of its size, where the linearisation would blow splats
    up without bound. The bounds follow the principal point. Skew is left out, as the field does.
    """
    inverse = 1 / z
    # The clamp acts on the pixel offset from the principal point, so that it holds for focal lengths of either sign.
    right = _clamp(k.fx * (x * inverse), k.cx, width)
    down = _clamp(k.fy * (y * inverse), k.cy, height)
    zero = jnp.zeros((), z.dtype)
    return (k.fx * inverse, zero, -right * inverse), (zero, k.fy * inverse, -down * inverse)


def ray(u: jax.Array, v: jax.Array, k: Intrinsics) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """Origin and unit direction, by components, of the camera-space ray through a pixel position (u, v)."""
    xn, yn = k.plane(u, v)
    zero = jnp.zeros_like(xn)
    return (zero, zero, zero), _linalg.unit(xn, yn, jnp.ones_like(xn))


def sees(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    """Whether a camera-space point lies in the domain of the model."""
    del x, y
    return z > 0


def depth(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    """Depth of a camera-space point, in world units."""
    del x, y
    return z


def _clamp(offset: jax.Array, centre: jax.Array, size: int) -> jax.Array:
    low = -(centre + const.CLAMP_MARGIN * size)
    high = (1 + const.CLAMP_MARGIN) * size - centre
    # A select, not minimum and maximum: those split the gradient in two where the arguments are equal.
    return jnp.where(offset < low, low, jnp.where(offset > high, high, offset))
