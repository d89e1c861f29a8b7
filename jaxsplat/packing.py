"""Splats in one array, in the two layouts that other programs read.

"rows" is [11 + 3 K, N], a parameter after the other: 3 of the means, 3 log scales, 4 of the quaternions (w, x, y, z),
3 for each of K coefficients, the opacity. "groups" is flat, splat after splat in each group: means 3 N, log scales 3 N,
quaternions 4 N, opacities N, colors as they look without direction 3 N, coefficients 3 K N.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxsplat import _check
from jaxsplat.sh import sh_to_rgb
from jaxsplat.types import Splats

Layout = Literal["rows", "groups"]
StoredOpacity = Literal["logit", "activated"]

_OWN = 11
"""Numbers of a splat beside its coefficients: mean, scales, quaternion and opacity."""


def pack_splats(splats: Splats, *, layout: Layout = "rows", opacities: StoredOpacity = "logit") -> jax.Array:
    """Puts splats into one array; a permutation, but for activated opacities and the colors of "groups".

    Args:
      splats: [..., N] rows.
      layout: "rows" or "groups".
      opacities: store logits, or "activated" opacities in 0..1.

    Returns:
      [..., 11 + 3 K, N], or [..., 14 N + 3 K N].

    Raises:
      ValueError: for shapes that disagree, or an unknown layout.

    Example:
      >>> pack_splats(splats).shape
      (23, 1000)
    """
    name = "pack_splats"
    _check_settings(name, layout, opacities)
    sizes = _check.splats(name, splats)
    rows = (*sizes["..."], sizes["N"])
    flat = Splats(*(_columns(x, own, rows) for x, own in zip(splats, _OWN_AXES, strict=True)))
    opacity = jax.nn.sigmoid(flat.logit_opacities) if opacities == "activated" else flat.logit_opacities
    geometry, coeffs = (flat.means, flat.log_scales, flat.quats), jnp.concatenate([flat.sh_dc, flat.sh_rest], -1)
    if layout == "rows":
        return jnp.swapaxes(jnp.concatenate([*geometry, coeffs, opacity], -1), -1, -2)
    groups = (*geometry, opacity, sh_to_rgb(flat.sh_dc), coeffs)
    return jnp.concatenate([group.reshape(*rows[:-1], rows[-1] * group.shape[-1]) for group in groups], -1)


_OWN_AXES = (1, 1, 1, 0, 2, 2)
"""Of each array, beside the rows."""


def _columns(x: jax.Array, own: int, rows: tuple[int, ...]) -> jax.Array:
    """[..., N, numbers of a splat], with all leading axes."""
    lead = x.shape[: x.ndim - own]
    columns = x.reshape(*lead, math.prod(x.shape[len(lead) :]))
    return jnp.broadcast_to(columns, (*rows, columns.shape[-1]))


def unpack_splats(
    packed: jax.Array, *, num_splats: int | None = None, layout: Layout = "rows", opacities: StoredOpacity = "logit"
) -> Splats:
    """Takes splats out of one array. A gradient with respect to that array has its layout.

    The colors of "groups" repeat the first coefficients; they are passed over and have no gradient.

    Args:
      packed: [..., 11 + 3 K, N], or [..., 14 N + 3 K N].
      num_splats: N; needed for "groups".
      layout: "rows" or "groups".
      opacities: what is stored. Activated ones of 0 and 1 become logits that are large, but finite.

    Returns:
      The splats.

    Raises:
      ValueError: for a size that does not fit, or an unknown layout.

    Example:
      >>> gradient = jax.grad(lambda packed: loss(unpack_splats(packed)))(pack_splats(splats))
    """
    name = "unpack_splats"
    _check_settings(name, layout, opacities)
    _check.floating(name, packed=packed)
    if layout == "groups" and num_splats is None:
        raise ValueError(f'{name}: num_splats must be given with layout="groups", got None.')
    _check.shapes(name, packed=(packed, "... P N" if layout == "rows" else "... P"))
    n = packed.shape[-1] if num_splats is None else num_splats
    parts = _split_rows(packed, n) if layout == "rows" else _split_groups(packed, n)
    means, log_scales, quats, stored, coeffs, count = parts
    lead = packed.shape[: -2 if layout == "rows" else -1]
    coeffs = coeffs.reshape(*lead, n, count, 3)
    logits = stored.reshape(*lead, n)
    return Splats(
        means.reshape(*lead, n, 3),
        quats.reshape(*lead, n, 4),
        log_scales.reshape(*lead, n, 3),
        _logits(logits) if opacities == "activated" else logits,
        coeffs[..., :1, :],
        coeffs[..., 1:, :],
    )


_Parts = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, int]
"""Means, log scales, quaternions, opacities and coefficients, splat after splat; number of coefficients of a splat."""


def _split_rows(packed: jax.Array, n: int) -> _Parts:
    rows = packed.shape[-2]
    if rows < _OWN + 3 or (rows - _OWN) % 3 or packed.shape[-1] != n:
        raise _misfit(packed, f"[..., {_OWN} + 3 K, N]", n)
    columns = jnp.swapaxes(packed, -1, -2)
    means, log_scales, quats, coeffs, stored = jnp.split(columns, (3, 6, 10, rows - 1), -1)
    return means, log_scales, quats, stored, coeffs, (rows - _OWN) // 3


def _split_groups(packed: jax.Array, n: int) -> _Parts:
    size, own = packed.shape[-1], _OWN + 3  # colors too
    count = (size - own * n) // (3 * n) if n else 1
    if count < 1 or size != (own + 3 * count) * n:
        raise _misfit(packed, f"[..., {own} N + 3 K N]", n)
    means, log_scales, quats, stored, _, coeffs = jnp.split(packed, (3 * n, 6 * n, 10 * n, _OWN * n, own * n), -1)
    return means, log_scales, quats, stored, coeffs, count


def _misfit(packed: jax.Array, shape: str, n: int) -> ValueError:
    wanted = f"shape {shape} with K >= 1 and N = {n}"
    return ValueError(f"unpack_splats: packed must have {wanted}, got {list(packed.shape)}.")


def _logits(opacities: jax.Array) -> jax.Array:
    limits: Any = jnp.finfo(opacities.dtype)
    inside = jnp.clip(opacities, limits.tiny, 1 - limits.epsneg)
    return jnp.log(inside) - jnp.log1p(-inside)


def _check_settings(function: str, layout: str, opacities: str) -> None:
    _check.choice(function, "layout", layout, ("rows", "groups"))
    _check.choice(function, "opacities", opacities, ("logit", "activated"))
