"""Rows of a scene: which of them are splats, and what a refinement did to them."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat.types import Splats

UNUSED_LOGIT = -20.0
"""Logit of the opacity of rows that are not in use: far below what any renderer draws."""


_SPARE = 0.5
"""Arrays have at least this part of their splats as rows to spare: each size is compiled anew."""


class Refined(NamedTuple):
    """Outcome of a refinement.

    Attributes:
      splats: the new rows.
      num_splats: [] int32, rows in use.
      moved: [N] bool, or a `Splats` of such masks: the rows whose moments must be cleared.
      dead: [] int32, dead splats that were found.
      live: [] int32, splats that are alive; where zero, nothing was done.
      sources: [N] int32, the row that each row's moments come from; None where every row keeps its place.
      denied: [] int32, splats that were not made because of the cap, or because the arrays have no rows for them.
    """

    splats: Splats
    num_splats: jax.Array
    moved: jax.Array | Splats
    dead: jax.Array
    live: jax.Array
    sources: jax.Array | None = None
    denied: jax.Array | int = 0


def roomy(count: int, *, cap: int, growth: float = 0.0) -> int:
    """Rows for so many splats and those to come, up to the cap: half as many again, or two refinements' `growth`."""
    return min(cap, math.ceil((1.0 + max(_SPARE, 2.0 * growth)) * count))


def in_use(splats: Splats, count: jax.Array) -> jax.Array:
    """Which rows are splats: [N] bool, true for the first `count`."""
    return jnp.arange(splats.means.shape[0]) < count


def finite(splats: Splats) -> jax.Array:
    """Which rows have a place and a size: [N] bool. The renderer culls the others."""
    return jnp.isfinite(splats.means).all(-1) & jnp.isfinite(splats.log_scales).all(-1)


def select(rows: jax.Array, chosen: jax.Array, others: jax.Array) -> jax.Array:
    """`chosen` in the rows that are marked, `others` elsewhere."""
    return jnp.where(rows.reshape(rows.shape + (1,) * (chosen.ndim - 1)), chosen, others)


def unused_rows(splats: Splats, rows: jax.Array) -> Splats:
    """Makes the marked rows [N] invisible."""
    cleared = jax.tree.map(lambda leaf: select(rows, jnp.zeros_like(leaf), leaf), splats)
    return cleared._replace(
        quats=cleared.quats.at[:, 0].set(jnp.where(rows, 1.0, cleared.quats[:, 0])),
        logit_opacities=jnp.where(rows, UNUSED_LOGIT, cleared.logit_opacities),
    )


def with_capacity(splats: Splats, capacity: int) -> Splats:
    """Adds invisible rows up to a capacity."""
    count = splats.means.shape[0]

    def extended(leaf: jax.Array, value: float) -> jax.Array:
        pads = [(0, capacity - count)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, pads, constant_values=value)

    padded = jax.tree.map(lambda leaf: extended(leaf, 0.0), splats)
    return padded._replace(
        logit_opacities=extended(splats.logit_opacities, UNUSED_LOGIT),
        quats=padded.quats.at[count:, 0].set(1.0),
    )
