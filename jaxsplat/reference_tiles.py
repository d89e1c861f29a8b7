"""The readable truth of tile intersection, in plain jnp: every splat is tried against every tile."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _constants as const
from jaxsplat import _linalg
from jaxsplat.types import TileIntersections


def intersect_tiles(
    means2d: jax.Array,
    radii: jax.Array,
    depths: jax.Array,
    *,
    width: int,
    height: int,
    capacity: int,
    conics: jax.Array | None = None,
    opacities: jax.Array | None = None,
    tile_size: int = const.TILE_SIZE,
    sort: bool = True,
    alpha_min: float = const.ALPHA_MIN,
    max_list_entries: int | None = None,
) -> TileIntersections:
    """Lists the splats of every tile by trying each splat against each tile.

    Where `count` exceeds the capacity, the lists hold the first intersections only and the offsets end at the capacity.

    Args:
      means2d: [..., N, 2] centres in pixels.
      radii: [..., N, 2] or [..., N] half sizes in pixels; a splat with a zero one touches nothing.
      depths: [..., N].
      width: image width in pixels.
      height: image height in pixels.
      capacity: room for intersections per image.
      conics: [..., N, 3]; with `opacities`, ellipses decide, not boxes.
      opacities: [..., N].
      tile_size: side of a tile in pixels.
      sort: order a list by (depth, index), otherwise by index.
      alpha_min: opacity at which an ellipse ends.
      max_list_entries: most entries of one list, the first; None for no limit. `tiles_per_gaussian` counts all.

    Returns:
      `TileIntersections`.

    Raises:
      ValueError: if splats times tiles exceed what int32 can count.

    Example:
      >>> intersect_tiles(means2d, radii, depths, width=64, height=64, capacity=1000).count
      Array(42, dtype=int32)
    """
    tiles = -(-width // tile_size) * -(-height // tile_size)
    if means2d.shape[-2] * tiles >= 2**31:
        raise ValueError(f"intersect_tiles: {means2d.shape[-2]} splats x {tiles} tiles exceed the reference's int32.")
    if radii.ndim < means2d.ndim:
        radii = jnp.stack([radii, radii], -1)
    rectangles = _tile_rectangles(width, height, tile_size)

    def image(operands: _Image) -> TileIntersections:
        if conics is None or opacities is None:
            touched = _box_touches(operands, rectangles)
        else:
            touched = _ellipse_touches(operands, rectangles, alpha_min)
        touched &= jnp.all(operands.radii > 0, -1)[:, None]
        order = jnp.argsort(operands.depths, stable=True) if sort else jnp.arange(len(touched))
        listed = touched[order]
        if max_list_entries is not None:
            listed &= jnp.cumsum(listed, 0) <= max_list_entries
        (place,) = jnp.nonzero(listed.T.reshape(-1), size=capacity, fill_value=-1)
        ids = jnp.where(place >= 0, order[place % max(len(touched), 1)], -1) if len(touched) else place
        counts = jnp.cumsum(jnp.sum(listed, 0, dtype=jnp.int32), dtype=jnp.int32)
        offsets = jnp.minimum(jnp.concatenate([jnp.zeros(1, jnp.int32), counts]), capacity)
        return TileIntersections(
            ids.astype(jnp.int32), offsets, jnp.sum(touched, 1, dtype=jnp.int32), jnp.sum(listed, dtype=jnp.int32)
        )

    operands = _Image(means2d, radii, depths, conics, opacities)
    return over_images(image, lax.stop_gradient(operands), _RANKS)


class FoundLists(NamedTuple):
    """What the tile lists of images leave to be drawn.

    Attributes:
      radii: [..., N, 2], zero too where a splat does not fit.
      tiles: the lists, where each is bounded; None where the radii say all.
      list_count: [...] number of all entries.
      left_out: [...] number of the entries beyond the bound of a list.
    """

    radii: jax.Array
    tiles: TileIntersections | None
    list_count: jax.Array
    left_out: jax.Array


def find_lists(
    means2d: jax.Array, conics: jax.Array, opacities: jax.Array, depths: jax.Array, radii: jax.Array, *, width: int,
    height: int, tile_size: int, alpha_min: float, boxes: bool, max_intersections: int | None,
    max_list_entries: int | None,
) -> FoundLists:  # fmt: skip
    """Finds what the tile lists of a rasterizer hold, and leaves out what does not fit.

    Args:
      means2d: [..., N, 2] centres in pixels.
      conics: [..., N, 3] upper triangles of the inverse 2D covariances.
      opacities: [..., N].
      depths: [..., N]; the nearest splats stay.
      radii: [..., N, 2], zero where a splat is left out.
      width: image width in pixels.
      height: image height in pixels.
      tile_size: side of a tile in pixels.
      alpha_min: opacity at which an ellipse ends.
      boxes: whether boxes decide, not ellipses.
      max_intersections: room for entries per image, or None.
      max_list_entries: most entries of one list, or None.

    Returns:
      `FoundLists`.

    Example:
      >>> find_lists(means2d, conics, opacities, depths, radii, width=64, height=48, tile_size=16, alpha_min=1 / 255,
      ...            boxes=False, max_intersections=1000, max_list_entries=None).list_count
      Array(1234, dtype=int32)
    """

    def find(radii: jax.Array, capacity: int, most: int | None = None) -> TileIntersections:
        return intersect_tiles(
            means2d, radii, depths, width=width, height=height, capacity=capacity, tile_size=tile_size,
            conics=None if boxes else conics, opacities=None if boxes else opacities, alpha_min=alpha_min,
            max_list_entries=most,
        )  # fmt: skip

    touched = find(radii, 1).tiles_per_gaussian
    count = jnp.sum(touched, -1, dtype=jnp.int32)
    if max_intersections is not None:
        order = jnp.argsort(jnp.broadcast_to(depths, touched.shape), stable=True)
        fits = jnp.cumsum(jnp.take_along_axis(touched, order, -1), -1) <= max_intersections
        fits = jnp.take_along_axis(fits, jnp.argsort(order), -1)
        radii = jnp.where(fits[..., None], _linalg.lift(radii, touched.ndim + 1), 0)
        touched = jnp.where(fits, touched, 0)
    if max_list_entries is None:
        return FoundLists(radii, None, count, jnp.zeros_like(count))
    room = -(-width // tile_size) * -(-height // tile_size) * min(means2d.shape[-2], max_list_entries)
    tiles = find(radii, max(room, 1), max_list_entries)
    return FoundLists(radii, tiles, count, jnp.sum(touched, -1, dtype=jnp.int32) - tiles.count)


class _Image(NamedTuple):
    """The arguments; inside `over_images` those of one image, without leading axes."""

    means2d: jax.Array
    radii: jax.Array
    depths: jax.Array
    conics: jax.Array | None
    opacities: jax.Array | None


_RANKS = (2, 2, 1, 2, 1)


def over_images(function, operands, own_ranks):
    """Calls the function once for each image, with the leading axes broadcast, and stacks its results.

    The operands are a NamedTuple of arrays, of tuples of arrays, or None; `own_ranks` are their numbers of own axes.
    """
    leaves, structure = jax.tree.flatten(operands)
    ranks = jax.tree.leaves([rank for operand, rank in zip(operands, own_ranks, strict=True) if operand is not None])
    leading = jnp.broadcast_shapes(*(x.shape[: x.ndim - rank] for x, rank in zip(leaves, ranks, strict=True)))
    images = math.prod(leading)

    def flat(x: jax.Array, rank: int) -> jax.Array:
        own = x.shape[x.ndim - rank :]
        x = _linalg.lift(x, len(leading) + rank)
        return jnp.broadcast_to(x, (*leading, *own)).reshape(images, *own)

    flattened = structure.unflatten([flat(x, rank) for x, rank in zip(leaves, ranks, strict=True)])
    results = lax.map(function, flattened)
    return jax.tree.map(lambda x: x.reshape(*leading, *x.shape[1:]), results)


class _Rectangles(NamedTuple):
    """Corner pixels of tiles, [T], exclusive at the end."""

    left: jax.Array
    right: jax.Array
    top: jax.Array
    bottom: jax.Array


def _tile_rectangles(width: int, height: int, tile_size: int) -> _Rectangles:
    top, left = jnp.meshgrid(jnp.arange(0, height, tile_size), jnp.arange(0, width, tile_size), indexing="ij")
    left, top = left.reshape(-1), top.reshape(-1)
    return _Rectangles(left, jnp.minimum(left + tile_size, width), top, jnp.minimum(top + tile_size, height))


def _box_touches(image: _Image, tiles: _Rectangles) -> jax.Array:
    """Whether the box means2d +- radii overlaps each tile: [N, T]."""
    (x, y), (rx, ry) = ((v[:, 0, None], v[:, 1, None]) for v in (image.means2d, image.radii))
    left, right, top, bottom = (edge[None] for edge in tiles)
    return (x + rx > left) & (x - rx < right) & (y + ry > top) & (y - ry < bottom)


def _ellipse_touches(image: _Image, tiles: _Rectangles, alpha_min: float) -> jax.Array:
    """Whether alpha_min is reached somewhere in the rectangle spanned by each tile's pixel centres: [N, T]."""
    assert image.conics is not None and image.opacities is not None
    a, b, c = (image.conics[:, k, None] for k in range(3))
    x, y = image.means2d[:, 0, None], image.means2d[:, 1, None]
    left, right, top, bottom = (edge[None].astype(a.dtype) for edge in tiles)
    dx, dy = (left + 0.5 - x, right - 0.5 - x), (top + 0.5 - y, bottom - 0.5 - y)
    limit = 2 * jnp.log(image.opacities / alpha_min)[:, None]
    # The quadratic form is convex: its least value is at the centre if that is inside, else on an edge.
    touched = (dx[0] <= 0) & (dx[1] >= 0) & (dy[0] <= 0) & (dy[1] >= 0)
    points = [(edge, jnp.clip(-b * edge / c, *dy)) for edge in dx] + [
        (jnp.clip(-b * edge / a, *dx), edge) for edge in dy
    ]
    for px, py in points:
        form, size = a * px * px + c * py * py, 2 * b * px * py
        # Never fewer than the pixels themselves would find with their rounding errors.
        slack = 8 * float(jnp.finfo(a.dtype).eps) * (form + jnp.abs(size) + limit)
        touched |= form + size <= limit + slack
    drawable = (a > 0) & (a * c - b * b > 0) & jnp.isfinite(a + b + c + x + y)
    return touched & drawable & (image.opacities >= alpha_min)[:, None] & jnp.isfinite(limit)
