"""Rows of a scene: which of them are splats, and what a refinement did to them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat.types import Splats

UNUSED_LOGIT = -20.0
"""Logit of the opacity of rows that are not in use: far below what any renderer draws."""


class Refined(NamedTuple):
    """Outcome of a refinement.

    Attributes:
      splats: the new rows.
      num_splats: [] int32, rows in use.
      moved: [N] bool, or a `Splats` of such masks: the rows whose moments must be cleared.
      dead: [] int32, dead splats that were found.
      live: [] int32, splats that are alive; where zero, nothing was done.
      sources: [N] int32, the row that each row's moments come from; None where every row keeps its place.
      denied: [] int32, splats that were not made because of the cap.
    """

    splats: Splats
    num_splats: jax.Array
    moved: jax.Array | Splats
    dead: jax.Array
    live: jax.Array
    sources: jax.Array | None = None
    denied: jax.Array | int = 0


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
