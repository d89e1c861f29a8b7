"""Distortion on the plane: forward, the radius up to which it is one to one, and its inverse.

A `Lens` here holds components: a tuple of arrays for each kind of coefficient, which broadcast against the points.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _ffi
from jaxsplat.cameras import fisheye
from jaxsplat.cameras.intrinsics import UNIT
from jaxsplat.cameras.lens import Lens

FARTHEST = {"perspective": 100.0, "equidistant": math.pi - 1e-3}
"""Largest radius on the plane: for a perspective lens 89.4 degrees, otherwise short of straight back."""

GRID = 256
"""Points at which the radial part is looked at to find where it turns back."""

_COARSE, _FINE = 16, 24  # halvings: before Newton's steps, and alone
_NEWTON_STEPS = 5
_RESIDUAL = 1e-8  # squared, relative to the squared distance from the centre

Pair = tuple[jax.Array, jax.Array]


def bend(x: jax.Array, y: jax.Array, lens: Lens) -> Pair:
    """Where the lens puts a point of the plane, before the camera matrix."""
    a: Any = lens  # its coefficients are tuples
    if a.polynomial:
        squared = x * x + y * y
        # A square root has no finite slope at zero.
        angle = jnp.where(squared > 0, jnp.sqrt(jnp.where(squared > 0, squared, 1)), 0)
        factor = _horner(angle, a.polynomial)
        x, y = x * factor, y * factor
    if a.omega:
        # The function is even in w, so that a floor leaves its gradient right at zero.
        w = jnp.where(jnp.abs(a.omega[0]) > 1e-4, a.omega[0], 1e-4)
        stretch = 2 * jnp.tan(0.5 * w)
        x, y = (part / w for part in fisheye.project(stretch * x, stretch * y, jnp.ones_like(x), UNIT))
    if a.division:
        rest = 1 - 4 * a.division[0] * (x * x + y * y)
        # Where there is no place on the sensor, the centre: the lens has turned back.
        root = jnp.sqrt(jnp.where(rest > 0, rest, 1))
        factor = jnp.where(rest > 0, 2 / (1 + root), 0)
        x, y = x * factor, y * factor
    if a.unified:
        alpha, beta = a.unified
        factor = 1 / (alpha * jnp.sqrt(beta * (x * x + y * y) + 1) + 1 - alpha)
        x, y = x * factor, y * factor
    r2 = x * x + y * y
    bent_x, bent_y = x, y
    if a.radial or a.divisor:
        factor = _horner(r2, (1.0, *a.radial)) / _horner(r2, (1.0, *a.divisor))
        bent_x, bent_y = x * factor, y * factor
    if a.radial_first:
        x, y, r2 = bent_x, bent_y, bent_x * bent_x + bent_y * bent_y
    if a.tangential:
        p1, p2 = a.tangential
        bent_x, bent_y = (
            bent_x + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
            bent_y + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
        )
    if a.prism:
        s1, s2, s3, s4 = a.prism
        bent_x, bent_y = bent_x + r2 * (s1 + s2 * r2), bent_y + r2 * (s3 + s4 * r2)
    return bent_x, bent_y


def bend_derivative(x: jax.Array, y: jax.Array, lens: Lens) -> tuple[Pair, Pair]:
    """Derivatives of `bend` by x and by y, a pair each."""
    return _columns(lambda x, y: bend(x, y, lens), x, y)


def radial_part(lens: Lens) -> Lens:
    """The lens without what depends on the direction from the centre."""
    return dataclasses.replace(lens, tangential=(), prism=())


def radius(r: jax.Array, lens: Lens) -> jax.Array:
    """Distance from the centre of what lay at this distance, by the radial part of the lens alone."""
    return bend(r, jnp.zeros_like(r), radial_part(lens))[0]


def turning_radius(lens: Lens) -> jax.Array:
    """Radius up to which `radius` rises, by the last axis of the coefficients, which must be of size one."""
    far = FARTHEST[lens.projection]
    if not any((lens.radial, lens.divisor, lens.polynomial, lens.division)):
        return jnp.asarray(far)
    lens = lax.stop_gradient(radial_part(lens))

    def rises(r: jax.Array) -> jax.Array:
        return jax.jvp(lambda r: radius(r, lens), (r,), (jnp.ones_like(r),))[1] > 0

    grid = jnp.linspace(0.0, math.atan(far) if lens.projection == "perspective" else far, GRID + 1)
    grid = jnp.tan(grid) if lens.projection == "perspective" else grid
    dtype = jnp.result_type(*jax.tree.leaves(lens))
    grid = grid.astype(dtype)
    shape = jnp.broadcast_shapes(*(jnp.shape(c) for c in jax.tree.leaves(lens)))
    each = grid.reshape((1,) * (max(len(shape), 1) - 1) + (-1,))
    first = jnp.argmin(jnp.append(rises(each), jnp.zeros((*shape[:-1], 1), bool), axis=-1), axis=-1, keepdims=True)
    low, high = grid[jnp.maximum(first - 1, 0)], grid[jnp.minimum(first, GRID)]

    low, _ = _halved(rises, (low, high), _FINE)
    return jnp.where(first > GRID, far, low).astype(dtype)


def unbent_radius(distance: jax.Array, lens: Lens, limit: jax.Array) -> jax.Array:
    """The radius up to `limit` that the lens puts at this distance, or the limit; not differentiable."""
    lens, distance = lax.stop_gradient((lens, distance))
    shape = jnp.broadcast_shapes(distance.shape, limit.shape)
    bounds = jnp.zeros(shape, distance.dtype), jnp.broadcast_to(limit, shape).astype(distance.dtype)
    low, high, *_ = _ffi.vary_alike([*bounds, distance, *jax.tree.leaves(lens)])
    bounds = low, high
    low, high = _halved(lambda r: radius(r, lens) < distance, bounds, _COARSE)

    def newton(_: int, r: jax.Array) -> jax.Array:
        value, slope = jax.jvp(lambda r: radius(r, lens), (r,), (jnp.ones_like(r),))
        return jnp.clip(r - (value - distance) / jnp.where(slope > 0, slope, 1), low, high)

    return lax.fori_loop(0, _NEWTON_STEPS, newton, 0.5 * (low + high))


def _halved(below: Callable[[jax.Array], jax.Array], bounds: Pair, steps: int) -> Pair:
    """Halves the intervals around the place up to which `below` holds."""

    def halve(_: int, bounds: Pair) -> Pair:
        middle = 0.5 * (bounds[0] + bounds[1])
        under = below(middle)
        return jnp.where(under, middle, bounds[0]), jnp.where(under, bounds[1], middle)

    return lax.fori_loop(0, steps, halve, bounds)


def unbend(u: jax.Array, v: jax.Array, lens: Lens, limit: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The point of the plane that the lens puts at (u, v), and whether there is one within the limit.

    Gradients are those of the implicit function, exact to any order. Where there is no such point, it is zero.
    """
    distance = jnp.sqrt(lax.stop_gradient(u * u + v * v))
    there = distance <= radius(limit, lax.stop_gradient(lens))
    if not jax.tree.leaves(lens):
        return jnp.where(there, u, 0), jnp.where(there, v, 0), there
    u, v, distance = (jnp.where(there, part, 0) for part in (u, v, distance))
    shrink = unbent_radius(distance, lens, limit) / jnp.where(distance > 0, distance, 1)
    skewed = bool(lens.tangential or lens.prism)

    def residual(point: Pair) -> Pair:
        bent = bend(*point, lens)
        return bent[0] - u, bent[1] - v

    def solve(residual: Callable[[Pair], Pair], guess: Pair) -> Pair:
        # Without these terms the radius was everything that had to be found.
        return lax.fori_loop(0, _NEWTON_STEPS, lambda _, point: _newton(residual, point), guess) if skewed else guess

    def tangent_solve(linear: Callable[[Pair], Pair], right: Pair) -> Pair:
        one, zero = jnp.ones_like(right[0]), jnp.zeros_like(right[0])
        return _solved(linear((one, zero)), linear((zero, one)), right)

    guess = lax.stop_gradient((u * shrink, v * shrink))
    x, y = lax.custom_root(residual, guess, solve, tangent_solve)
    if skewed:
        squares = [lax.stop_gradient(part * part) for part in (*residual((x, y)), x, y)]
        there &= (squares[0] + squares[1] < _RESIDUAL * (1 + distance * distance)) & (
            squares[2] + squares[3] <= limit * limit
        )
        x, y = jnp.where(there, x, 0), jnp.where(there, y, 0)
    return x, y, there


def _newton(residual: Callable[[Pair], Pair], point: Pair) -> Pair:
    by_x, by_y = _columns(lambda x, y: residual((x, y)), *point)
    step = _solved(by_x, by_y, residual(point))
    return point[0] - step[0], point[1] - step[1]


def _columns(function: Callable[..., Pair], x: jax.Array, y: jax.Array) -> tuple[Pair, Pair]:
    one, zero = jnp.ones_like(x), jnp.zeros_like(x)
    return jax.jvp(function, (x, y), (one, zero))[1], jax.jvp(function, (x, y), (zero, one))[1]


def _solved(by_x: Pair, by_y: Pair, right: Pair) -> Pair:
    """Solution of the 2x2 system with these columns."""
    inverse = 1 / (by_x[0] * by_y[1] - by_y[0] * by_x[1])
    return (right[0] * by_y[1] - right[1] * by_y[0]) * inverse, (right[1] * by_x[0] - right[0] * by_x[1]) * inverse


def _horner(x: jax.Array, coefficients: tuple[Any, ...]) -> Any:
    value = coefficients[-1]
    for k in reversed(coefficients[:-1]):
        value = value * x + k
    return value
