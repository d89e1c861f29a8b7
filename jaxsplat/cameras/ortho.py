"""The orthographic camera: u = fx x + cx. Skew is not used."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsplat.cameras.intrinsics import Intrinsics


def project(x: jax.Array, y: jax.Array, z: jax.Array, k: Intrinsics) -> tuple[jax.Array, jax.Array]:
    """Maps camera-space points to pixels (u, v); the depth z has no influence."""
    del z
    return k.fx * x + k.cx, k.fy * y + k.cy


def jacobian(
    x: jax.Array, y: jax.Array, z: jax.Array, k: Intrinsics, width: int, height: int
) -> tuple[tuple[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]:
    """Derivative of (u, v) by (x, y, z), as two rows of components."""
    del x, y, width, height
    zero = jnp.zeros((), z.dtype)
    return (k.fx, zero, zero), (zero, k.fy, zero)


def ray(u: jax.Array, v: jax.Array, k: Intrinsics) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """Origin and unit direction, by components, of the camera-space ray through a pixel position (u, v)."""
    x, y = (u - k.cx) / k.fx, (v - k.cy) / k.fy
    zero = jnp.zeros_like(x)
    return (x, y, zero), (zero, zero, jnp.ones_like(x))


def sees(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    """Whether a camera-space point lies in the domain of the model: all do."""
    del x, y
    return jnp.ones_like(z, bool)


def depth(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    """Depth of a camera-space point, in world units."""
    del x, y
    return z
