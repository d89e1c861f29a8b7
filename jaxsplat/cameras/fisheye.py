"""The equidistant fisheye camera: the distance from the centre grows with the angle to the axis. Skew is not used.

With r = sqrt(x^2 + y^2) and s = atan2(r, z) / r, u = fx x s + cx. The function s is smooth on the axis, but its formula
is 0 / 0 there, so near the axis it is summed as a series in (r / z)^2.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsplat.cameras.intrinsics import Intrinsics

SERIES_BELOW = 0.05
"""(r / z)^2 below which the series is used: there `SERIES_TERMS` terms reach float64 precision."""

SERIES_TERMS = 12


def project(x: jax.Array, y: jax.Array, z: jax.Array, k: Intrinsics) -> tuple[jax.Array, jax.Array]:
    """Maps camera-space points, z > 0, to pixels (u, v)."""
    slope, _ = _slope(x, y, z)
    return k.fx * x * slope + k.cx, k.fy * y * slope + k.cy


def jacobian(
    x: jax.Array, y: jax.Array, z: jax.Array, k: Intrinsics, width: int, height: int
) -> tuple[tuple[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]:
    """Derivative of (u, v) by (x, y, z), as two rows of components."""
    del width, height
    slope, change = _slope(x, y, z)
    by_depth = -1 / (x * x + y * y + z * z)
    mixed = x * y * change
    return (
        (k.fx * (slope + x * x * change), k.fx * mixed, k.fx * x * by_depth),
        (k.fy * mixed, k.fy * (slope + y * y * change), k.fy * y * by_depth),
    )


def ray(u: jax.Array, v: jax.Array, k: Intrinsics) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """Origin and unit direction, by components, of the camera-space ray through a pixel position (u, v)."""
    a, b = (u - k.cx) / k.fx, (v - k.cy) / k.fy
    squared = a * a + b * b
    off_axis = squared > 0
    theta = jnp.sqrt(jnp.where(off_axis, squared, 1))
    sinc = jnp.where(off_axis, jnp.sin(theta) / theta, 1)
    zero = jnp.zeros_like(a)
    return (zero, zero, zero), (a * sinc, b * sinc, jnp.where(off_axis, jnp.cos(theta), 1))


def sees(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    """Whether a camera-space point lies in the domain of the model: here what is in front of the image plane."""
    del x, y
    return z > 0


def depth(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
    """Depth of a camera-space point, in world units."""
    del x, y
    return z


def _slope(x: jax.Array, y: jax.Array, z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns s = atan2(r, z) / r and (ds/dr) / r."""
    squared = x * x + y * y
    near_axis = (squared < SERIES_BELOW * z * z) & (z > 0)
    # Both branches get harmless arguments where they are not taken, so that no NaN enters the gradient.
    inverse = 1 / jnp.where(near_axis, z, 1)
    slope, change = _series(jnp.where(near_axis, squared, 0) * inverse * inverse, inverse)
    safe = jnp.where(near_axis, 1, squared)
    r = jnp.sqrt(safe)
    far_slope = jnp.arctan2(r, z) / r
    far_change = (z / (safe + z * z) - far_slope) / safe
    return jnp.where(near_axis, slope, far_slope), jnp.where(near_axis, change, far_change)


def _series(q: jax.Array, inverse: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sums s z = sum of (-q)^n / (2n + 1), and the derivative of s, by Horner's rule."""
    value = change = jnp.zeros_like(q)
    for n in reversed(range(SERIES_TERMS)):
        change = change * q + (-1) ** (n + 1) * 2 * (n + 1) / (2 * n + 3)
        value = value * q + (-1) ** n / (2 * n + 1)
    return value * inverse, change * inverse * inverse * inverse
