"""Rows of batched tables, picked without copying tables that are shared."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np


def flat_index(
    table: jax.Array, index: jax.Array, leading: tuple[int, ...], index_rank: int
) -> tuple[jax.Array, jax.Array]:
    """Turns indices into the rows of each batch element into those of one flat table.

    Args:
      table: [..., N, D], whose leading axes are those given, of size 1, or missing.
      index: [..., own axes] into N.
      leading: the leading axes.
      index_rank: number of own axes of the index.

    Returns:
      [M, D] and [leading axes, own axes].
    """
    count, batch = table.shape[-2], table.shape[:-2]
    batch = (1,) * (len(leading) - len(batch)) + batch
    first = np.arange(math.prod(batch), dtype=np.int32).reshape(batch) * count
    first = np.broadcast_to(first, leading).reshape(*leading, *(1,) * index_rank)
    shape = (*leading, *index.shape[index.ndim - index_rank :])
    index = index.reshape((1,) * (len(shape) - index.ndim) + index.shape)
    return table.reshape(-1, table.shape[-1]), jnp.broadcast_to(index, shape) + jnp.asarray(first, index.dtype)


def gather_rows(values: jax.Array, ids: jax.Array) -> jax.Array:
    """The row of each slot: [..., N, D] and [..., H, W, K] give [..., H, W, K, D], zero where the id is negative."""
    table, index = flat_index(values, ids, ids.shape[:-3], 3)
    there = ids >= 0
    if len(table) == 0:
        return jnp.zeros((*index.shape, values.shape[-1]), values.dtype)
    return jnp.where(there[..., None], table[jnp.where(there, index, 0)], 0)


def gather_faces(values: jax.Array, pix_to_face: jax.Array) -> jax.Array:
    """Values of the corners of each slot's face: [..., F, 3, D] gives [..., H, W, K, 3, D], zero for none."""
    rows = gather_rows(values.reshape(*values.shape[:-2], -1), pix_to_face)
    return rows.reshape(*rows.shape[:-1], *values.shape[-2:])


def sum_to(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Sums over the axes that `shape` shares or lacks."""
    x = x.sum(axis=tuple(range(x.ndim - len(shape)))) if x.ndim > len(shape) else x
    shared = tuple(k for k, size in enumerate(shape) if size != x.shape[k])
    return x.sum(axis=shared, keepdims=True) if shared else x
