"""The readable truth: tile intersection and rasterization in plain jnp, for any device and precision.

Every splat is evaluated at every pixel, some pixels at a time so that the memory stays bounded. Simple and slow.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _constants as const
from jaxsplat import _linalg
from jaxsplat.gradients import clip_alphas
from jaxsplat.types import Blend, TileIntersections

PAIRS_AT_ONCE = 2**20
"""Pixel-splat pairs evaluated together: some tens of MB for each array over them."""


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
        assert operands.radii is not None and operands.depths is not None
        touched &= jnp.all(operands.radii > 0, -1)[:, None]
        order = jnp.argsort(operands.depths, stable=True) if sort else jnp.arange(len(touched))
        (place,) = jnp.nonzero(touched[order].T.reshape(-1), size=capacity, fill_value=-1)
        ids = jnp.where(place >= 0, order[place % max(len(touched), 1)], -1) if len(touched) else place
        counts = jnp.cumsum(jnp.sum(touched, 0, dtype=jnp.int32), dtype=jnp.int32)
        offsets = jnp.minimum(jnp.concatenate([jnp.zeros(1, jnp.int32), counts]), capacity)
        return TileIntersections(
            ids.astype(jnp.int32), offsets, jnp.sum(touched, 1, dtype=jnp.int32), jnp.sum(touched, dtype=jnp.int32)
        )

    operands = _Image(means2d=means2d, conics=conics, opacities=opacities, depths=depths, radii=radii)
    return over_images(image, lax.stop_gradient(operands), _RANKS)


def rasterize_gaussians_3d(
    means2d: jax.Array,
    conics: jax.Array,
    colors: jax.Array,
    opacities: jax.Array,
    *,
    width: int,
    height: int,
    depths: jax.Array | None = None,
    radii: jax.Array | None = None,
    tiles: TileIntersections | None = None,
    backgrounds: jax.Array | None = None,
    depth_limit: jax.Array | None = None,
    masks: jax.Array | None = None,
    absgrad: jax.Array | None = None,
    tile_size: int = const.TILE_SIZE,
    blend: Blend = Blend(),  # noqa: B008 (frozen)
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Blends splats front to back at every pixel.

    With `tiles`, a pixel sees the list of its tile, in that order; incomplete lists, or ids out of range, give NaN.
    Without, it sees all splats whose radii are not zero, by (depth, index). A splat is not drawn where a value of it is
    not finite or its conic is not positive definite.

    Args:
      means2d: [..., N, 2] centres in pixels.
      conics: [..., N, 3] upper triangles of the inverse 2D covariances.
      colors: [..., N, D].
      opacities: [..., N].
      width: image width in pixels.
      height: image height in pixels.
      depths: [..., N]; without, the order is by index. With `tiles` only used for `depth_limit`.
      radii: [..., N, 2]; without, no splat is left out.
      tiles: lists from `intersect_tiles` with the same tile size.
      backgrounds: [..., D].
      depth_limit: [..., H, W] depth of the nearest splat that a pixel does not show.
      masks: [..., TY, TX] bool; the pixels of a tile with False show the background.
      absgrad: [..., N, 2] zeros whose gradient is the sum over the pixels of |dL/dmeans2d|.
      tile_size: side of a tile in pixels.
      blend: the blend rule.

    Returns:
      Colors [..., H, W, D], transmittances [..., H, W] and last ids [..., H, W] int32. The leading axes are those of
      all arguments, broadcast.

    Example:
      >>> picture, transmittance, _ = rasterize_gaussians_3d(means2d, conics, colors, opacities, width=64, height=48)
      >>> picture.shape
      (48, 64, 3)
    """
    operands = _Image(
        means2d, conics, colors, opacities, depths, radii, tiles, backgrounds, masks,
        jnp.zeros_like(means2d) if absgrad is None else absgrad, depth_limit,
    )  # fmt: skip
    render = functools.partial(_render, width=width, height=height, tile_size=tile_size, blend=blend)
    return over_images(render, operands, _RANKS)


def limit_lists(
    means2d: jax.Array, conics: jax.Array, opacities: jax.Array, depths: jax.Array, radii: jax.Array, *, width: int,
    height: int, tile_size: int, alpha_min: float, capacity: int | None,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Leaves the splats out that do not fit into tile lists of a fixed capacity.

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
      capacity: room for intersections per image, or None.

    Returns:
      The radii, zero too where a splat does not fit, and the number of all intersections.

    Example:
      >>> radii, count = limit_lists(means2d, conics, opacities, depths, radii, width=64, height=48, tile_size=16,
      ...                            alpha_min=1 / 255, capacity=1000)
    """
    touched = intersect_tiles(
        means2d, radii, depths, width=width, height=height, capacity=1, conics=conics, opacities=opacities,
        tile_size=tile_size, alpha_min=alpha_min,
    ).tiles_per_gaussian  # fmt: skip
    count = jnp.sum(touched, -1, dtype=jnp.int32)
    if capacity is None:
        return radii, count
    order = jnp.argsort(jnp.broadcast_to(depths, touched.shape), stable=True)
    fits = jnp.cumsum(jnp.take_along_axis(touched, order, -1), -1) <= capacity
    fits = jnp.take_along_axis(fits, jnp.argsort(order), -1)
    return jnp.where(fits[..., None], _linalg.lift(radii, touched.ndim + 1), 0), count


class _Image(NamedTuple):
    """The arguments; inside `over_images` those of one image, without leading axes."""

    means2d: jax.Array
    conics: jax.Array | None = None
    colors: jax.Array | None = None
    opacities: jax.Array | None = None
    depths: jax.Array | None = None
    radii: jax.Array | None = None
    tiles: TileIntersections | None = None
    backgrounds: jax.Array | None = None
    masks: jax.Array | None = None
    absgrad: jax.Array | None = None
    depth_limit: jax.Array | None = None


# Number of own axes of each field.
_RANKS = (2, 2, 2, 1, 1, 2, (1, 1, 1, 0), 1, 2, 2, 2)


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


class _Layers(NamedTuple):
    """The candidates of one image in drawing order, [M] arrays but `colors` [M, D]."""

    ids: jax.Array
    x: jax.Array
    y: jax.Array
    a: jax.Array
    b: jax.Array
    c: jax.Array
    opacity: jax.Array
    colors: jax.Array
    absgrad_x: jax.Array
    absgrad_y: jax.Array
    drawable: jax.Array


def _render(image: _Image, *, width: int, height: int, tile_size: int, blend: Blend):
    ids, valid = candidates(len(image.means2d), image.depths, image.radii, image.tiles)
    layers = _layers(image, ids, valid)

    def blend_pixels(index: jax.Array, candidate: jax.Array):
        column, row = index % width, index // width
        candidate &= layers.drawable[:, None]
        if image.depth_limit is not None:
            assert image.depths is not None
            candidate &= image.depths[ids][:, None] < image.depth_limit[row, column][None]
        return _blend_pixels(layers, candidate, column, row, blend)

    picture, transmittance, last = over_pixels(
        blend_pixels, len(ids), width, height, tile_size, image.tiles, image.masks
    )
    if image.tiles is not None:
        picture = jnp.where(complete(len(image.means2d), image.tiles), picture, jnp.nan)
    if image.backgrounds is not None:
        picture = picture + transmittance[..., None] * image.backgrounds[None, None]
    return picture, transmittance, last


def over_pixels(
    blend_pixels: Callable[[jax.Array, jax.Array], tuple[jax.Array, ...]], count: int, width: int, height: int,
    tile_size: int, tiles: TileIntersections | None, masks: jax.Array | None,
) -> list[jax.Array]:  # fmt: skip
    """Calls a function of pixel numbers [P] and of which of `count` layers may be seen there [count, P], by parts.

    Its results [P, ...] become [H, W, ...]. They are computed again in the backward pass.
    """
    pixels = width * height
    together = min(max(PAIRS_AT_ONCE // max(count, 1), 1), pixels)
    chunks = -(-pixels // together)

    @jax.checkpoint
    def chunk(index: jax.Array):
        tile = index // width // tile_size * -(-width // tile_size) + index % width // tile_size
        candidate = jnp.ones((count, together), bool)
        if tiles is not None:
            place = jnp.arange(count)[:, None]
            first, last = tiles.tile_offsets[tile], tiles.tile_offsets[tile + 1]
            candidate &= (place >= first[None]) & (place < last[None])
        if masks is not None:
            candidate &= masks.reshape(-1)[tile][None]
        return blend_pixels(index, candidate)

    results = lax.map(chunk, jnp.minimum(jnp.arange(chunks * together), pixels - 1).reshape(chunks, together))
    return [x.reshape(-1, *x.shape[2:])[:pixels].reshape(height, width, *x.shape[2:]) for x in results]


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


def _layers(image: _Image, ids: jax.Array, valid: jax.Array) -> _Layers:
    """Gathers the splats in drawing order, and replaces what cannot be drawn by zeros."""
    assert image.conics is not None and image.colors is not None and image.opacities is not None
    assert image.absgrad is not None
    dtype = jnp.result_type(image.means2d, image.conics, image.colors, image.opacities)
    values = jnp.concatenate(
        [x.astype(dtype) for x in (image.means2d, image.conics, image.opacities[:, None], image.colors)], -1
    )
    a, b, c = values[:, 2], values[:, 3], values[:, 4]
    drawable = jnp.all(jnp.isfinite(values), -1) & (a > 0) & (a * c - b * b > 0)
    if len(values) == 0:
        ids, valid, values = (jnp.zeros((0, *x.shape[1:]), x.dtype) for x in (ids, valid, values))
    else:
        values, drawable = jnp.where(drawable[:, None], values, 0)[ids], drawable[ids]
    absgrad = image.absgrad.astype(dtype)[ids]
    x, y, a, b, c, opacity = (values[:, k] for k in range(6))
    return _Layers(ids, x, y, a, b, c, opacity, values[:, 6:], absgrad[:, 0], absgrad[:, 1], drawable & valid)


@jax.custom_vjp
def _offsets(centre: jax.Array, absgrad: jax.Array, pixel: jax.Array) -> jax.Array:
    """[M, P] distances from pixels to splats, which give `absgrad` the sums of the absolute gradients."""
    del absgrad
    return centre[:, None] - pixel[None, :]


def _offsets_fwd(centre: jax.Array, absgrad: jax.Array, pixel: jax.Array):
    return _offsets(centre, absgrad, pixel), None


def _offsets_bwd(_: None, v: jax.Array):
    return jnp.sum(v, 1), jnp.sum(jnp.abs(v), 1), -jnp.sum(v, 0)


_offsets.defvjp(_offsets_fwd, _offsets_bwd)


def _blend_pixels(layers: _Layers, candidate: jax.Array, column: jax.Array, row: jax.Array, blend: Blend):
    """Blends [M, P] layers into pixels: colors [P, D], transmittances [P], last ids [P]."""
    dtype = layers.x.dtype
    dx = _offsets(layers.x, layers.absgrad_x, column.astype(dtype) + 0.5)
    dy = _offsets(layers.y, layers.absgrad_y, row.astype(dtype) + 0.5)

    def alphas(dx: jax.Array, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
        sigma = 0.5 * (layers.a[:, None] * dx * dx + layers.c[:, None] * dy * dy) + layers.b[:, None] * dx * dy
        alpha = layers.opacity[:, None] * jnp.exp(-sigma)
        return jnp.where(alpha > blend.alpha_max, blend.alpha_max, alpha), sigma

    # First which splats count, then their values with the others' distances set to zero: those may overflow.
    alpha, sigma = lax.stop_gradient(alphas(dx, dy))
    counted = candidate & (sigma >= 0) & (alpha >= blend.alpha_min)
    blended = blended_layers(jnp.where(counted, alpha, 0), counted, blend)
    alpha, _ = alphas(jnp.where(blended, dx, 0), jnp.where(blended, dy, 0))
    alpha = clip_alphas(jnp.where(blended, alpha, 0), blend)
    before, transmittance = transmittances(alpha)
    picture = jnp.einsum("mp,md->pd", alpha * before, layers.colors, precision=lax.Precision.HIGHEST)
    place = jnp.max(jnp.where(blended, jnp.arange(len(alpha))[:, None], -1), 0, initial=-1)
    last = jnp.where(place >= 0, layers.ids[place], -1) if len(alpha) else place
    return picture, transmittance, last.astype(jnp.int32)


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
    assert image.radii is not None
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
