"""Real spherical harmonics, the view-dependent colours of splats.

The basis, its order and its signs are the field's: function n^2 + n + m is
(-1)^m sqrt((2 - [m = 0]) (2 n + 1) / (4 pi) (n - |m|)! / (n + |m|)!) P_n^|m|(z) times Re (x + i y)^m for m >= 0 and
Im (x + i y)^|m| for m < 0, with P_n^m the m-th derivative of the Legendre polynomial of degree n.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsplat import _check, _ffi, _linalg
from jaxsplat.types import Backend, SHCoeffs

MAX_DEGREE = 4

DC = math.sqrt(1 / (4 * math.pi))
"""The constant basis function."""


def num_sh_coeffs(degree: int) -> int:
    """Number of coefficients a channel up to a degree: (degree + 1)^2."""
    _check.choice("num_sh_coeffs", "degree", degree, tuple(range(MAX_DEGREE + 1)))
    return (degree + 1) ** 2


def degree_of(function: str, rest: int) -> int:
    """The degree up to which so many coefficients beside the first are complete."""
    complete = [num_sh_coeffs(degree) - 1 for degree in range(MAX_DEGREE + 1)]
    if rest not in complete:
        listed = ", ".join(map(str, complete[:-1]))
        raise ValueError(f"{function}: sh_rest must hold {listed} or {complete[-1]} coefficients, got {rest}.")
    return complete.index(rest)


def sh_factors(active: jax.Array | float, *, degree: int) -> jax.Array:
    """Which functions are in use: [K] 1 up to the degree `active`, which is traced, and 0 above.

    Args:
      active: [] highest degree in use; a fraction counts as the integer below.
      degree: 0 to 4, up to which there are functions; static.

    Returns:
      [K] `factors` of `SHCoeffs`.

    Example:
      >>> sh_factors(1, degree=2)
      Array([1., 1., 1., 1., 0., 0., 0., 0., 0.], dtype=float32)
    """
    degrees = np.floor(np.sqrt(np.arange(num_sh_coeffs(degree))))
    return jnp.asarray(degrees <= active, float)


def rgb_to_sh(rgb: jax.Array) -> jax.Array:
    """Turns colours into the degree-0 coefficients that show them: (rgb - 0.5) / 0.2821."""
    return (rgb - 0.5) / DC


def sh_to_rgb(coeffs: jax.Array) -> jax.Array:
    """Turns degree-0 coefficients into the colours that they show: 0.2821 coeffs + 0.5, not clamped."""
    return coeffs * DC + 0.5


def spherical_harmonics(
    degree: int,
    dirs: jax.Array,
    coeffs: jax.Array | SHCoeffs,
    *,
    masks: jax.Array | None = None,
    backend: Backend = "auto",
) -> jax.Array:
    """Evaluates sums of spherical harmonics, without the offset of 0.5 and the clamp of the rendering pipeline.

    Args:
      degree: 0 to 4; static.
      dirs: [..., N, 3] directions of any length, from the camera to the splats. One without a component above 1e-12
        counts as x = y = z = 0, with zero gradient.
      coeffs: [..., N, K, D] with K >= (degree + 1)^2, of which the first ones are used; D is any number of channels.
        The leading axes broadcast against those of `dirs`. Or the same in two parts.
      masks: [..., N] bool; rows with False give zeros and get zero gradients.
      backend: "reference" for plain JAX; otherwise it is used where there is no kernel for the platform or precision.

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
    _check.choice(name, "backend", backend, ("auto", "native", "reference"))
    sizes = check_coeffs(name, degree, {"dirs": (dirs, "... N 3"), "masks": (masks, "... N")}, coeffs=coeffs)
    _check.floating(name, dirs=dirs)
    lead = sizes["..."]
    dirs = _linalg.lift(dirs, len(lead) + 2)
    if masks is not None:
        _check.kind(name, jnp.bool_, masks=masks)
        masks = _linalg.lift(masks, len(lead) + 1)
        dirs = jnp.where(masks[..., None], dirs, 0)
    direction = _linalg.unit(*_linalg.components(dirs))
    first, rest, factors = _parts(coeffs, degree, len(lead) + 3)
    if backend != "reference" and _ffi.takes(*direction, first, rest):
        total = _native(degree, direction, first, rest, factors, masks)
    else:
        total = _plain(degree, direction, first, rest, factors)
        if masks is not None:
            total = jnp.where(masks[..., None], total, 0)
    return jnp.broadcast_to(total, (*lead, sizes["N"], sizes["D"]))


def check_coeffs(
    function: str, degree: int, others: dict[str, tuple[Any, str]], **arguments: jax.Array | SHCoeffs
) -> dict[str, Any]:
    """Checks coefficients together with other arguments.

    Args:
      function: name for messages.
      degree: that they must suffice for.
      others: name: (array or None, specification) of arguments whose shapes must agree with them.
      **arguments: name=coefficients, one.

    Returns:
      The sizes, as of `_check.shapes`; "K" of all parts together.
    """
    ((name, coeffs),) = arguments.items()
    if not isinstance(coeffs, SHCoeffs):
        sizes = _check.shapes(function, **others, **{name: (coeffs, "... N K D")})
        _check.floating(function, **{name: coeffs})
        shape = f"[..., N, K, D] with K >= {num_sh_coeffs(degree)} for degree {degree}, got {list(coeffs.shape)}"
    else:
        parts = {f"{name}.{part}": getattr(coeffs, part) for part in coeffs._fields}
        specs = dict(zip(parts, ("... N K1 D", "... N K2 D", "K"), strict=True))
        sizes = _check.shapes(function, **others, **{part: (x, specs[part]) for part, x in parts.items()})
        _check.floating(function, **parts)
        total = sizes["K1"] + sizes["K2"]
        if sizes.setdefault("K", total) != total:
            raise ValueError(f"{function}: {name}.factors must have shape [{total}], got [{sizes['K']}].")
        shape = f"K >= {num_sh_coeffs(degree)} coefficients in both parts for degree {degree}, got {total}"
    if sizes["K"] < num_sh_coeffs(degree):
        raise ValueError(f"{function}: {name} must have {'shape ' if '[' in shape else ''}{shape}.")
    return sizes


def _parts(coeffs: jax.Array | SHCoeffs, degree: int, rank: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Both parts with all leading axes, and the factors of the functions."""
    if not isinstance(coeffs, SHCoeffs):
        coeffs = SHCoeffs(coeffs, coeffs[..., :0, :])
    first, rest = _linalg.lift(coeffs.dc, rank), _linalg.lift(coeffs.rest, rank)
    factors = jnp.ones(num_sh_coeffs(degree), first.dtype) if coeffs.factors is None else coeffs.factors
    return first, rest, lax.stop_gradient(factors.astype(first.dtype))


def _plain(
    degree: int, direction: Sequence[jax.Array], first: jax.Array, rest: jax.Array, factors: jax.Array
) -> jax.Array:
    functions = [factors[k] * value for k, value in enumerate(_basis(degree, *direction))]
    used = num_sh_coeffs(degree)
    terms = first[..., :used, :] if rest.shape[-2] == 0 else jnp.concatenate([first, rest], -2)[..., :used, :]
    return _sum(tuple(functions[1:]), terms, functions[0])


def _native(
    degree: int,
    direction: tuple[jax.Array, ...],
    first: jax.Array,
    rest: jax.Array,
    factors: jax.Array,
    masks: jax.Array | None,
) -> jax.Array:
    """Calls the kernel. The last leading axis becomes that of the cameras if they share the coefficients."""
    rank = first.ndim - 3
    lead = np.broadcast_shapes(
        *(x.shape[:rank] for x in (direction[0], first, rest, *([] if masks is None else [masks])))
    )
    shared = rank > 0 and first.shape[rank - 1] == rest.shape[rank - 1] == 1
    cameras = lead[-1] if shared else 1
    if shared:
        first, rest = first.squeeze(rank - 1), rest.squeeze(rank - 1)

    def by_camera(x: jax.Array) -> jax.Array:
        x = x if shared else jnp.expand_dims(x, rank)
        return jnp.broadcast_to(x, (*x.shape[:-2], cameras, x.shape[-1]))

    masks = jnp.ones((1,) * (first.ndim - 1), jnp.bool_) if masks is None else by_camera(masks)
    values: Any = _call(degree, tuple(map(by_camera, direction)), masks, first, rest, factors)
    return values if shared else values.squeeze(rank)


_RANKS = (2, 2, 2, 2, 3, 3, 1, 3)


def _operands(
    direction: tuple[jax.Array, ...], masks: jax.Array, first: jax.Array, rest: jax.Array, factors: jax.Array
) -> list[jax.Array]:
    table = jnp.asarray(_polynomials(), first.dtype)
    return list(_ffi.vary_alike([*direction, masks, first, rest, factors, table]))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _call(
    degree: int, direction: tuple[jax.Array, ...], masks: jax.Array, first: jax.Array, rest: jax.Array, factors: Any
) -> jax.Array:
    """[..., C, N, D] for components [..., C, N] and coefficients [..., N, K, D]."""

    def native(x: jax.Array, y: jax.Array, z: jax.Array, *others: jax.Array) -> jax.Array:
        operands = _operands((x, y, z), *others)
        shape = (*x.shape[-2:], others[1].shape[-1])
        return _ffi.call("spherical_harmonics", operands, _RANKS, [(shape, x.dtype)], degree=degree)[0]

    arguments = _ffi.vary_alike([*direction, masks, first, rest, factors])
    return _ffi.by_platform(native, functools.partial(_plain_call, degree), *arguments)


def _plain_call(
    degree: int,
    x: jax.Array,
    y: jax.Array,
    z: jax.Array,
    masks: jax.Array,
    first: jax.Array,
    rest: jax.Array,
    factors: jax.Array,
) -> jax.Array:
    """What the kernel computes."""
    first, rest = first[..., None, :, :, :], rest[..., None, :, :, :]
    total = _plain(degree, (x, y, z), first, rest, factors)
    shape = np.broadcast_shapes(x.shape, masks.shape, first.shape[:-2], rest.shape[:-2])
    return jnp.broadcast_to(jnp.where(masks[..., None], total, 0), (*shape, first.shape[-1]))


def _call_fwd(degree: int, *arguments: Any) -> tuple[jax.Array, Any]:
    return _call(degree, *arguments), arguments


def _call_bwd(degree: int, arguments: Any, v: jax.Array) -> tuple[Any, ...]:
    direction, masks, first, rest, factors = arguments

    def native(v: jax.Array, *operands: jax.Array) -> list[jax.Array]:
        x, y, z, masks, first, rest, factors = operands
        moving = (x, y, z, first, rest)
        own = [a.shape[-2:] for a in moving[:3]] + [a.shape[-3:] for a in moving[3:]]
        operands = (*_operands((x, y, z), masks, first, rest, factors), v)
        results = [(shape, v.dtype) for shape in own]
        gradients = _ffi.call("spherical_harmonics_gradient", operands, (*_RANKS, 3), results, degree=degree)
        return [_linalg.unbroadcast(g, a.shape) for g, a in zip(gradients, moving, strict=True)]

    def plain(v: jax.Array, *operands: jax.Array) -> list[jax.Array]:
        x, y, z, masks, first, rest, factors = operands

        def value(x: jax.Array, y: jax.Array, z: jax.Array, first: jax.Array, rest: jax.Array) -> jax.Array:
            return _plain_call(degree, x, y, z, masks, first, rest, factors)

        return list(jax.vjp(value, x, y, z, first, rest)[1](v))

    operands = _ffi.vary_alike([v, *direction, masks, first, rest, factors])
    *v_direction, v_first, v_rest = _ffi.by_platform(native, plain, *operands)
    return tuple(v_direction), None, v_first, v_rest, None


_call.defvjp(_call_fwd, _call_bwd)


# XLA's own gradient of the sum pads one array for each coefficient and adds them all up: four times slower.
@jax.custom_vjp
def _sum(functions: tuple[jax.Array, ...], terms: jax.Array, constant: jax.Array) -> jax.Array:
    """Adds up the constant times the first term and function k, [..., N], times term k, [..., N, k, D]."""
    total = constant * terms[..., 0, :]
    for k, function in enumerate(functions, 1):
        total = total + function[..., None] * terms[..., k, :]
    return total


def _sum_fwd(functions: tuple[jax.Array, ...], terms: jax.Array, constant: jax.Array):
    return _sum(functions, terms, constant), (functions, terms, constant)


def _sum_bwd(saved: tuple[tuple[jax.Array, ...], jax.Array, jax.Array], v: jax.Array):
    functions, terms, constant = saved
    if not functions:
        return (), _linalg.unbroadcast(constant * v[..., None, :], terms.shape), None
    values = _linalg.interleave(jnp.broadcast_to(constant, functions[0].shape), *functions)
    v_terms = _linalg.unbroadcast(values[..., None] * v[..., None, :], terms.shape)
    v_functions = tuple(
        _linalg.unbroadcast(_dot(terms[..., k, :], v), function.shape) for k, function in enumerate(functions, 1)
    )
    return v_functions, v_terms, None


def _dot(p: jax.Array, q: jax.Array) -> jax.Array:
    """Sums p q over the last axis, without a reduction where there are few channels."""
    if p.shape[-1] > 4:
        return jnp.sum(p * q, -1)
    return sum(p[..., d] * q[..., d] for d in range(1, p.shape[-1])) + p[..., 0] * q[..., 0]


_sum.defvjp(_sum_fwd, _sum_bwd)


def _basis(degree: int, x: jax.Array, y: jax.Array, z: jax.Array) -> list:
    """Basis functions up to a degree at unit directions given by components; the first one is a Python number."""
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


def _polynomials() -> np.ndarray:
    """The table of all coefficients that the kernel takes: [n, m, power]."""
    table = np.zeros((MAX_DEGREE + 1,) * 3)
    for n in range(MAX_DEGREE + 1):
        for m in range(n + 1):
            table[n, m, : n - m + 1] = _polynomial(n, m)
    return table
