"""What all splat formats share: from arrays to splats and back, and the checks before a file is written."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import _check
from jaxsplat.io.files import InputError
from jaxsplat.sh import rgb_to_sh, sh_to_rgb
from jaxsplat.types import Splats


class SplatFile(NamedTuple):
    """What a file held.

    Attributes:
      splats: the scene, float32, in the file's order.
      format: name of the format, for people.
      notes: what the file holds beyond the splats, a sentence each.
      antialiased: whether the file says that they were trained with anti-aliasing.
    """

    splats: Splats
    format: str
    notes: tuple[str, ...] = ()
    antialiased: bool = False


class Rows(NamedTuple):
    """`Splats` as float32 NumPy arrays: `sh_dc` is [N, 3], the rest has the same shapes."""

    means: np.ndarray
    quats: np.ndarray
    log_scales: np.ndarray
    logit_opacities: np.ndarray
    sh_dc: np.ndarray
    sh_rest: np.ndarray


def to_splats(rows: Rows) -> Splats:
    """Makes splats of arrays, in float32."""
    rows = rows._replace(sh_dc=rows.sh_dc[:, None, :])
    return Splats(*(jnp.asarray(np.asarray(leaf, np.float32)) for leaf in rows))


def to_rows(function: str, splats: Splats) -> Rows:
    """Arrays of splats without batch axes; raises ValueError where the shapes disagree."""
    _check.shapes(
        function,
        means=(splats.means, "N 3"),
        quats=(splats.quats, "N 4"),
        log_scales=(splats.log_scales, "N 3"),
        logit_opacities=(splats.logit_opacities, "N"),
        sh_dc=(splats.sh_dc, "N 1 3"),
        sh_rest=(splats.sh_rest, "N R 3"),
    )
    rows = Rows(*(np.asarray(leaf, np.float32) for leaf in splats))
    return rows._replace(sh_dc=rows.sh_dc[:, 0])


def dc_from_rgb(rgb: np.ndarray) -> np.ndarray:
    """Degree-0 coefficients of colours in 0..1, as arrays."""
    return np.asarray(rgb_to_sh(cast(jax.Array, rgb.astype(np.float32))))  # plain arithmetic, which NumPy does at once


def rgb_from_dc(sh_dc: np.ndarray) -> np.ndarray:
    """Colours of degree-0 coefficients, as arrays; not clamped."""
    return np.asarray(sh_to_rgb(cast(jax.Array, sh_dc)))


def drawable(rows: Rows) -> np.ndarray:
    """[N] whether a row can show anything: all finite, though an opacity may be exactly 0 or 1, and a rotation."""
    known = ~np.isnan(rows.logit_opacities) & rows.quats.any(1)
    for leaf in rows._replace(logit_opacities=known):
        known = known & np.isfinite(leaf).all(tuple(range(1, leaf.ndim)))
    return known


def compact_rows(path: Path | str, function: str, splats: Splats) -> Rows:
    """Arrays for a format that has no place for rows that are not finite or have no rotation; quaternions of length 1.

    Raises:
      InputError: with the number of such rows.
      ValueError: where the shapes disagree.
    """
    rows = to_rows(function, splats)
    bad = int((~drawable(rows)).sum())
    if bad:
        raise InputError(
            f"{path}: this format cannot hold {bad} of {len(rows.means)} splats, whose values are not finite or whose "
            "quaternion is zero (they are invisible); 'jaxsplat export' drops them"
        )
    # Divided by the largest component first: the square of a tiny one would be zero.
    quats = rows.quats / np.abs(rows.quats).max(1, keepdims=True, initial=1e-45)
    return rows._replace(quats=quats / np.linalg.norm(quats, axis=1, keepdims=True))
