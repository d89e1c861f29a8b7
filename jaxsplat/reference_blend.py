"""What the readable truths of all primitives share: which layers a pixel blends, and the loop over pixels."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat.types import Blend, Contributors, TileIntersections

PAIRS_AT_ONCE = 2**20
"""Pixel-splat pairs evaluated together: some tens of MB for each array over them."""


CandidatesAt = Callable[[jax.Array], jax.Array]
"""Of pixel numbers [P]: which of the layers may be seen there, [M, P]."""


def over_pixels(
    blend_pixels: Callable[[jax.Array, jax.Array], tuple[jax.Array, ...]], count: int, width: int, height: int,
    tile_size: int, tiles: TileIntersections | None, masks: jax.Array | None,
) -> list[jax.Array]:  # fmt: skip
    """Calls a function of pixel numbers [P] and of which of `count` layers may be seen there [count, P], by parts.

    Its results [P, ...] become [H, W, ...]. They are computed again in the backward pass.
    """
    index, candidates_at = _parts(count, width, height, tile_size, tiles, masks)

    @jax.checkpoint
    def chunk(index: jax.Array):
        return blend_pixels(index, candidates_at(index))

    return [_picture(x, width, height) for x in lax.map(chunk, index)]


def _parts(
    count: int, width: int, height: int, tile_size: int, tiles: TileIntersections | None, masks: jax.Array | None
) -> tuple[jax.Array, CandidatesAt]:
    """Numbers of the pixels [parts, P], the last one repeated at the end, and what may be seen there."""
    pixels = width * height
    together = min(max(PAIRS_AT_ONCE // max(count, 1), 1), pixels)
    chunks = -(-pixels // together)

    def candidates_at(index: jax.Array) -> jax.Array:
        tile = index // width // tile_size * -(-width // tile_size) + index % width // tile_size
        candidate = jnp.ones((count, together), bool)
        if tiles is not None:
            place = jnp.arange(count)[:, None]
            first, last = tiles.tile_offsets[tile], tiles.tile_offsets[tile + 1]
            candidate &= (place >= first[None]) & (place < last[None])
        if masks is not None:
            candidate &= masks.reshape(-1)[tile][None]
        return candidate

    return jnp.minimum(jnp.arange(chunks * together), pixels - 1).reshape(chunks, together), candidates_at


def _picture(x: jax.Array, width: int, height: int) -> jax.Array:
    """[parts, P, ...] as [H, W, ...]."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])[: width * height].reshape(height, width, *x.shape[2:])


def candidates(
    count: int, depths: jax.Array | None, radii: jax.Array | None, tiles: TileIntersections | None
) -> tuple[jax.Array, jax.Array]:
    """Ids in drawing order, [M], and which of them exist."""
    if tiles is not None:
        ids = tiles.gaussian_ids
        valid = (ids >= 0) & (ids < count)
        return jnp.where(valid, ids, 0), valid
    ids = jnp.arange(count) if depths is None else jnp.argsort(depths, stable=True)
    valid = jnp.ones(count, bool) if radii is None else jnp.all(radii > 0, -1)
    return ids, valid[ids]


def complete(count: int, tiles: TileIntersections) -> jax.Array:
    """Whether the lists hold all intersections, and ids below the count alone."""
    place = jnp.arange(len(tiles.gaussian_ids))
    out_of_range = (tiles.gaussian_ids < 0) | (tiles.gaussian_ids >= count)
    return (tiles.count <= len(place)) & ~jnp.any(out_of_range & (place < tiles.tile_offsets[-1]))


class Composited(NamedTuple):
    """What [M, P] layers in drawing order do to P pixels.

    Attributes:
      blended: [M, P] which of them are blended.
      alpha: [M, P], 0 where they are not.
      before: [M, P] transmittance in front of each.
      transmittance: [P] behind all.
    """

    blended: jax.Array
    alpha: jax.Array
    before: jax.Array
    transmittance: jax.Array


def composited(alpha: jax.Array, blended: jax.Array) -> Composited:
    """Puts the layers that are blended one behind the other."""
    alpha = jnp.where(blended, alpha, 0)
    before, transmittance = transmittances(alpha)
    return Composited(blended, alpha, before, transmittance)


def blended_picture(layers: Composited, ids: jax.Array, colors: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Colors [P, D], transmittances [P] and last ids [P] of layers with these ids [M] and colors [M, D]."""
    weight = layers.alpha * layers.before
    picture = jnp.einsum("mp,md->pd", weight, colors, precision=lax.Precision.HIGHEST)
    place = jnp.max(jnp.where(layers.blended, jnp.arange(len(ids))[:, None], -1), 0, initial=-1)
    last = jnp.where(place >= 0, ids[place], -1) if len(ids) else place
    return picture, layers.transmittance, last.astype(jnp.int32)


def blended_layers(alpha: jax.Array, counted: jax.Array, blend: Blend) -> jax.Array:
    """Which of the layers that count come before the end of the pixel."""
    before, _ = transmittances(alpha)
    # The transmittance never grows, so that once it is at the limit, all that follows is left out as well.
    reached = before if blend.blend_last else before * (1 - alpha)
    blended = counted & (reached > blend.transmittance_min)
    if blend.max_contributors:
        blended &= jnp.cumsum(counted, 0) <= blend.max_contributors
    return blended


def transmittances(alpha: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Transmittance [M, P] in front of each layer, and [P] behind all of them."""
    after = jnp.concatenate([jnp.ones((1, alpha.shape[1]), alpha.dtype), jnp.cumprod(1 - alpha, 0)])
    return after[:-1], after[-1]


def contributors(
    composite: Callable[[jax.Array, jax.Array], Composited], ids: jax.Array, size: int, *, width: int, height: int,
    tile_size: int, tiles: TileIntersections | None, masks: jax.Array | None, max_hits: int, by_weight: bool,
) -> Contributors:  # fmt: skip
    """Lists what each pixel of an image blends, without colors.

    Args:
      composite: of pixel numbers [P] and of which layers may be seen there [M, P]: what they do.
      ids: [M] splats of the layers.
      size: number of splats.
      width: image width in pixels.
      height: image height in pixels.
      tile_size: side of a tile in pixels.
      tiles: lists that decide which layers may be seen in which tile; NaN where they are incomplete.
      masks: [TY, TX] bool; the pixels of a tile with False see nothing.
      max_hits: K.
      by_weight: list those of the largest weight, not the nearest.

    Returns:
      `Contributors` with [H, W, K] lists and [N] sums.
    """
    index, candidates_at = _parts(len(ids), width, height, tile_size, tiles, masks)
    new = (jnp.arange(index.size) < width * height).reshape(index.shape)

    def chunk(sums: tuple[jax.Array, jax.Array], part: tuple[jax.Array, jax.Array]):
        index, new = part
        layers = composite(index, candidates_at(index))
        weight = layers.alpha * layers.before
        key = jnp.where(layers.blended, -weight if by_weight else 0, jnp.inf)
        order = jnp.argsort(key, axis=0, stable=True)[:max_hits]
        there = jnp.take_along_axis(layers.blended, order, 0)

        def listed(x: jax.Array, none: int) -> jax.Array:
            x = jnp.where(there, jnp.take_along_axis(x, order, 0), none)
            return jnp.pad(x, ((0, max_hits - len(x)), (0, 0)), constant_values=none).T

        lists = (
            listed(jnp.broadcast_to(ids[:, None], weight.shape), -1),
            listed(layers.alpha, 0),
            listed(layers.before, 0),
        )
        weights, hits = (
            jnp.sum(jnp.where(new[None], x, 0), 1, dtype=t.dtype)
            for x, t in zip((weight, layers.blended), sums, strict=True)
        )
        sums = (sums[0].at[ids].add(weights), sums[1].at[ids].add(hits))
        return sums, (jnp.sum(layers.blended, 0, dtype=jnp.int32), *lists)

    dtype = jax.eval_shape(composite, index[0], candidates_at(index[0])).alpha.dtype
    sums, pixels = lax.scan(chunk, (jnp.zeros(size, dtype), jnp.zeros(size, jnp.int32)), (index, new))
    counts, listed, alphas, before = (_picture(x, width, height) for x in pixels)
    if tiles is not None:
        alphas, weights = (jnp.where(complete(size, tiles), x, jnp.nan) for x in (alphas, sums[0]))
        sums = (weights, sums[1])
    return Contributors(counts, listed.astype(jnp.int32), alphas, before, *sums, colors=None)
