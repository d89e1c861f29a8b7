"""The readable truth: rasterization in plain jnp, for any device and precision.

Every splat is evaluated at every pixel, some pixels at a time so that the memory stays bounded. Simple and slow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _constants as const
from jaxsplat.gradients import clip_alphas
from jaxsplat.reference_blend import (
    Composited,
    blended_layers,
    blended_picture,
    candidates,
    complete,
    composited,
    contributors,
    over_pixels,
)
from jaxsplat.reference_tiles import over_images
from jaxsplat.types import Blend, Contributors, TileIntersections


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


def trace_contributors(
    means2d: jax.Array,
    conics: jax.Array,
    colors: jax.Array,
    opacities: jax.Array,
    *,
    width: int,
    height: int,
    max_hits: int,
    by_weight: bool = False,
    depths: jax.Array | None = None,
    radii: jax.Array | None = None,
    tiles: TileIntersections | None = None,
    depth_limit: jax.Array | None = None,
    masks: jax.Array | None = None,
    tile_size: int = const.TILE_SIZE,
    blend: Blend = Blend(),  # noqa: B008 (frozen)
) -> Contributors:
    """Lists what each pixel blends: the splats of `rasterize_gaussians_3d` with the same arguments.

    Args:
      means2d: [..., N, 2] centres in pixels.
      conics: [..., N, 3] upper triangles of the inverse 2D covariances.
      colors: [..., N, D]; only whether they are finite matters.
      opacities: [..., N].
      width: image width in pixels.
      height: image height in pixels.
      max_hits: most splats listed at a pixel.
      by_weight: list those of the largest weight, not the nearest.
      depths: as in `rasterize_gaussians_3d`.
      radii: as in `rasterize_gaussians_3d`.
      tiles: as in `rasterize_gaussians_3d`.
      depth_limit: as in `rasterize_gaussians_3d`.
      masks: as in `rasterize_gaussians_3d`.
      tile_size: side of a tile in pixels.
      blend: the blend rule.

    Returns:
      `Contributors`, without colors.

    Example:
      >>> trace_contributors(means2d, conics, colors, opacities, width=64, height=48, max_hits=4).ids.shape
      (48, 64, 4)
    """

    def trace(image: _Image) -> Contributors:
        layers, composite = _compositor(image, width, blend)
        return contributors(
            composite, layers.ids, len(image.means2d), width=width, height=height, tile_size=tile_size,
            tiles=image.tiles, masks=image.masks, max_hits=max_hits, by_weight=by_weight,
        )  # fmt: skip

    operands = _Image(
        means2d, conics, colors, opacities, depths, radii, tiles, None, masks, jnp.zeros_like(means2d), depth_limit
    )
    return over_images(trace, operands, _RANKS)


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
    layers, composite = _compositor(image, width, blend)

    def blend_pixels(index: jax.Array, candidate: jax.Array):
        return blended_picture(composite(index, candidate), layers.ids, layers.colors)

    picture, transmittance, last = over_pixels(
        blend_pixels, len(layers.ids), width, height, tile_size, image.tiles, image.masks
    )
    if image.tiles is not None:
        picture = jnp.where(complete(len(image.means2d), image.tiles), picture, jnp.nan)
    if image.backgrounds is not None:
        picture = picture + transmittance[..., None] * image.backgrounds[None, None]
    return picture, transmittance, last


def _compositor(
    image: _Image, width: int, blend: Blend
) -> tuple[_Layers, Callable[[jax.Array, jax.Array], Composited]]:
    """The layers, and what they do to pixels, given which of them may be seen there."""
    ids, valid = candidates(len(image.means2d), image.depths, image.radii, image.tiles)
    layers = _layers(image, ids, valid)

    def composite(index: jax.Array, candidate: jax.Array) -> Composited:
        column, row = index % width, index // width
        candidate &= layers.drawable[:, None]
        if image.depth_limit is not None:
            assert image.depths is not None
            candidate &= image.depths[layers.ids][:, None] < image.depth_limit[row, column][None]
        return _composite(layers, candidate, column, row, blend)

    return layers, composite


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


def _composite(layers: _Layers, candidate: jax.Array, column: jax.Array, row: jax.Array, blend: Blend) -> Composited:
    """Evaluates [M, P] layers at pixels."""
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
    return composited(clip_alphas(jnp.where(blended, alpha, 0), blend), blended)
