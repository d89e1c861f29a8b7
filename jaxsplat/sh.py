"""Real spherical harmonics, the view-dependent colours of splats.

The basis, its order and its signs are the field's: function n^2 + n + m is
(-1)^m sqrt((2 - [m = 0]) (2 n + 1) / (4 pi) (n - |m|)! / (n + |m|)!) P_n^|m|(z) times Re (x + i y)^m for m >= 0 and
Im (x + i y)^|m| for m < 0, with P_n^m the m-th derivative of the Legendre polynomial of degree n.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import _check, _linalg

MAX_DEGREE = 4

DC = math.sqrt(1 / (4 * math.pi))
"""The constant basis function."""


def num_sh_coeffs(degree: int) -> int:
    """Number of coefficients a channel up to a degree: (degree + 1)^2."""
    _check.choice("num_sh_coeffs", "degree", degree, tuple(range(MAX_DEGREE + 1)))
    return (degree + 1) ** 2


def rgb_to_sh(rgb: jax.Array) -> jax.Array:
    """Turns colours into the degree-0 coefficients that show them: (rgb - 0.5) / 0.2821."""
    return (rgb - 0.5) / DC


def sh_to_rgb(coeffs: jax.Array) -> jax.Array:
    """Turns degree-0 coefficients into the colours that they show: 0.2821 coeffs + 0.5, not clamped."""
    return coeffs * DC + 0.5


def spherical_harmonics(
    degree: int, dirs: jax.Array, coeffs: jax.Array, *, masks: jax.Array | None = None
) -> jax.Array:
    """Evaluates sums of spherical harmonics, without the offset of 0.5 and the clamp of the rendering pipeline.

    Args:
      degree: 0 to 4; static.
      dirs: [..., N, 3] directions of any length, from the camera to the splats. One without a component above 1e-12
        counts as x = y = z = 0, with zero gradient.
      coeffs: [..., N, K, D] with K >= (degree + 1)^2, of which the first ones are used; D is any number of channels.
        The leading axes broadcast against those of `dirs`.
      masks: [..., N] bool; rows with False give zeros and get zero gradients.

    Returns:
      [..., N, D] values.

    Raises:
      ValueError: if shapes do not agree, or the degree is not one of 0 to 4.
      TypeError: if an array is not of the right kind.

    Example:
      >>> dirs, coeffs = jnp.array([[0.0, 0.0, 1.0]]), jnp.ones((1, 4, 3))
      >>> spherical_harmonics(1, dirs, coeffs)
      Array([[0.7706973, 0.7706973, 0.7706973]], dtype=float32)
    """
    name = "spherical_harmonics"
    _check.choice(name, "degree", degree, tuple(range(MAX_DEGREE + 1)))
    sizes = _check.shapes(name, dirs=(dirs, "... N 3"), coeffs=(coeffs, "... N K D"), masks=(masks, "... N"))
    _check.floating(name, dirs=dirs, coeffs=coeffs)
    count = num_sh_coeffs(degree)
    if sizes["K"] < count:
        raise ValueError(
            f"{name}: coeffs must have shape [..., N, K, D] with K >= {count} for degree {degree}, "
            f"got {list(coeffs.shape)}."
        )
    rank = len(sizes["..."])
    dirs = _linalg.lift(dirs, rank + 2)
    terms = _linalg.lift(coeffs[..., :count, :], rank + 3)
    if masks is not None:
        _check.kind(name, jnp.bool_, masks=masks)
        masks = _linalg.lift(masks, rank + 1)[..., None]
        dirs = jnp.where(masks, dirs, 0)
    total = _sum(tuple(basis(degree, *_linalg.components(dirs))[1:]), terms)
    if masks is not None:
        total = jnp.where(masks, total, 0)
    return jnp.broadcast_to(total, (*sizes["..."], sizes["N"], sizes["D"]))


# XLA's own gradient of the sum pads one array for each coefficient and adds them all up: four times slower.
@jax.custom_vjp
def _sum(functions: tuple[jax.Array, ...], terms: jax.Array) -> jax.Array:
    """Adds up the constant term and function k, [..., N], times term k, [..., N, k, D]."""
    total = DC * terms[..., 0, :]
    for k, function in enumerate(functions, 1):
        total = total + function[..., None] * terms[..., k, :]
    return total


def _sum_fwd(functions: tuple[jax.Array, ...], terms: jax.Array):
    return _sum(functions, terms), (functions, terms)


def _sum_bwd(saved: tuple[tuple[jax.Array, ...], jax.Array], v: jax.Array):
    functions, terms = saved
    if not functions:
        return (), _unbroadcast(DC * v[..., None, :], terms.shape)
    values = _linalg.interleave(jnp.full_like(functions[0], DC), *functions)
    v_terms = _unbroadcast(values[..., None] * v[..., None, :], terms.shape)
    return tuple(
        _unbroadcast(_dot(terms[..., k, :], v), function.shape) for k, function in enumerate(functions, 1)
    ), v_terms


def _dot(p: jax.Array, q: jax.Array) -> jax.Array:
    """Sums p q over the last axis, without a reduction where there are few channels."""
    if p.shape[-1] > 4:
        return jnp.sum(p * q, -1)
    return sum(p[..., d] * q[..., d] for d in range(1, p.shape[-1])) + p[..., 0] * q[..., 0]


def _unbroadcast(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Sums over the axes along which an array of this shape was broadcast."""
    axes = tuple(i for i, (have, want) in enumerate(zip(x.shape, shape, strict=True)) if have != want)
    return jnp.sum(x, axes, keepdims=True) if axes else x


_sum.defvjp(_sum_fwd, _sum_bwd)


def basis(degree: int, x: jax.Array, y: jax.Array, z: jax.Array) -> list:
    """Basis functions up to a degree at directions given by components; the first one is a Python number."""
    x, y, z = _linalg.unit(x, y, z)
    squared = z * z
    values: list = [DC] * (degree + 1) ** 2
    real, imaginary = x, y
    for m in range(degree + 1):
        if m > 1:
            real, imaginary = x * real - y * imaginary, x * imaginary + y * real
        for n in range(max(m, 1), degree + 1):
            height = _horner(_polynomial(n, m), z, squared)
            values[n * n + n + m] = height * real if m else height
            if m:
                values[n * n + n - m] = height * imaginary
    return values


def _horner(polynomial: tuple[float, ...], z: jax.Array, squared: jax.Array):
    """Evaluates an even or odd polynomial."""
    value = polynomial[-1]
    for coefficient in polynomial[-3::-2]:
        value = value * squared + coefficient
    return value if len(polynomial) % 2 else value * z


@functools.cache
def _polynomial(n: int, m: int) -> tuple[float, ...]:
    """Coefficients, by ascending power of z, of the normalised m-th derivative of the n-th Legendre polynomial."""
    norm = (-1) ** m * math.sqrt((2 - (m == 0)) * (2 * n + 1) / (4 * math.pi) / math.perm(n + m, 2 * m))
    legendre = np.polynomial.Legendre.basis(n).deriv(m) if m else np.polynomial.Legendre.basis(n)
    return tuple(float(norm * c) for c in legendre.convert(kind=np.polynomial.Polynomial).coef)
