"""Checks of values, which cost a pass over the data and are therefore asked for (`validate=True`).

Concrete arrays raise ValueError at once. Traced ones use `checkify.check`, so the program must be wrapped in
`jax.experimental.checkify.checkify`; without it, JAX says so when it traces.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.experimental import checkify

from jaxsplat.types import TileIntersections


def finite(function: str, **arrays: Any) -> None:
    """Every value of every given array, or tuple of arrays, must be finite."""
    for name, value in arrays.items():
        for array in jax.tree.leaves(value):
            _require(jnp.all(jnp.isfinite(array)), f"{function}: {name} must be finite.")


def tile_lists(function: str, tiles: TileIntersections, size: int) -> None:
    """Lists must be complete, offsets ascend within the capacity, and ids lie in [0, size)."""
    ids, offsets, count = tiles.gaussian_ids, tiles.tile_offsets, tiles.count
    capacity = ids.shape[-1]
    _require(
        jnp.all(count <= capacity), f"{function}: tiles.count exceeds the capacity {capacity}; lists are incomplete."
    )
    ascending = jnp.all(offsets[..., 1:] >= offsets[..., :-1]) & jnp.all(offsets[..., 0] >= 0)
    _require(
        ascending & jnp.all(offsets[..., -1] <= capacity),
        f"{function}: tiles.tile_offsets must ascend from 0 to at most the capacity {capacity}.",
    )
    used = jnp.arange(capacity).reshape((1,) * (ids.ndim - 1) + (capacity,)) < offsets[..., -1:]
    _require(jnp.all(~used | ((ids >= 0) & (ids < size))), f"{function}: tiles.gaussian_ids must lie in [0, {size}).")


def _require(condition: jax.Array, message: str) -> None:
    if isinstance(condition, Tracer):
        checkify.check(condition, message)
    elif not bool(condition):
        raise ValueError(message)
