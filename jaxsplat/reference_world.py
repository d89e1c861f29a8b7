"""The readable truth of splats along rays: rasterization in plain jnp, for any device and precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _constants as const
from jaxsplat import _linalg
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


def rasterize_gaussians_world(
    means: jax.Array,
    quats: jax.Array,
    scales: jax.Array,
    opacities: jax.Array,
    colors: jax.Array,
    rays: jax.Array,
    *,
    normals: jax.Array | None = None,
    depths: jax.Array | None = None,
    radii: jax.Array | None = None,
    tiles: TileIntersections | None = None,
    depth_limit: jax.Array | None = None,
    masks: jax.Array | None = None,
    tile_size: int = const.TILE_SIZE,
    blend: Blend = Blend(),  # noqa: B008 (frozen)
) -> tuple[jax.Array, ...]:
    """Blends splats front to back at every pixel, each evaluated at its closest approach to the pixel's ray.

    With `tiles`, a pixel sees the list of its tile, in that order; incomplete lists, or ids out of range, give NaN.
    Without, it sees all splats whose radii are not zero, by (depth, index).

    Args:
      means: [..., N, 3] centres.
      quats: [..., N, 4] rotations as w, x, y, z, of any length; a splat with a zero one is not drawn.
      scales: [..., N, 3] standard deviations; a splat with a zero one is not drawn.
      opacities: [..., N].
      colors: [..., N, D].
      rays: [..., H, W, 6] origins and unit directions; a ray with a direction that is zero or not finite sees nothing.
      normals: [..., N, 3], of unit length.
      depths: [..., N]; without, the order is by index.
      radii: [..., N, 2]; without, no splat is left out.
      tiles: lists from `intersect_tiles` with the same tile size.
      depth_limit: [..., H, W] depth of the nearest splat that a pixel does not show.
      masks: [..., TY, TX] bool; the pixels of a tile with False see nothing.
      tile_size: side of a tile in pixels.
      blend: the blend rule.

    Returns:
      Colors [..., H, W, D], transmittances [..., H, W], last ids [..., H, W] int32 and, with `normals`, the sums of
      weight times distance along the ray, and of weight times normal turned to the ray, [..., H, W, 4].

    Example:
      >>> picture, *_ = rasterize_gaussians_world(means, quats, scales, opacities, colors, rays)
    """
    image = _Image(means, quats, scales, opacities, colors, rays, normals, depths, radii, tiles, depth_limit, masks)
    return over_images(lambda one: _render(one, tile_size, blend), image, _RANKS)


def trace_contributors(
    means: jax.Array,
    quats: jax.Array,
    scales: jax.Array,
    opacities: jax.Array,
    colors: jax.Array,
    rays: jax.Array,
    *,
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
    """Lists what each pixel blends: the splats of `rasterize_gaussians_world` with the same arguments.

    Args:
      means: [..., N, 3] centres.
      quats: [..., N, 4] rotations as w, x, y, z.
      scales: [..., N, 3] standard deviations.
      opacities: [..., N].
      colors: [..., N, D]; only whether they are finite matters.
      rays: [..., H, W, 6] origins and unit directions.
      max_hits: most splats listed at a pixel.
      by_weight: list those of the largest weight, not the nearest.
      depths: as in `rasterize_gaussians_world`.
      radii: as in `rasterize_gaussians_world`.
      tiles: as in `rasterize_gaussians_world`.
      depth_limit: as in `rasterize_gaussians_world`.
      masks: as in `rasterize_gaussians_world`.
      tile_size: side of a tile in pixels.
      blend: the blend rule.

    Returns:
      `Contributors`, without colors.

    Example:
      >>> trace_contributors(means, quats, scales, opacities, colors, rays, max_hits=4).ids.shape
      (48, 64, 4)
    """

    def trace(image: _Image) -> Contributors:
        height, width = image.rays.shape[:2]
        layers, composite = _compositor(image, blend)
        return contributors(
            lambda index, candidate: composite(index, candidate).layers, layers.ids, len(image.means), width=width,
            height=height, tile_size=tile_size, tiles=image.tiles, masks=image.masks, max_hits=max_hits,
            by_weight=by_weight,
        )  # fmt: skip

    image = _Image(means, quats, scales, opacities, colors, rays, None, depths, radii, tiles, depth_limit, masks)
    return over_images(trace, image, _RANKS)


class _Image(NamedTuple):
    """The arguments; inside `over_images` those of one image, without leading axes."""

    means: jax.Array
    quats: jax.Array
    scales: jax.Array
    opacities: jax.Array
    colors: jax.Array
    rays: jax.Array
    normals: jax.Array | None
    depths: jax.Array | None
    radii: jax.Array | None
    tiles: TileIntersections | None
    depth_limit: jax.Array | None
    masks: jax.Array | None


_RANKS = (2, 2, 2, 1, 2, 3, 2, 1, 2, (1, 1, 1, 0), 2, 2)


class _Layers(NamedTuple):
    """The candidates in drawing order, [M] arrays by component."""

    ids: jax.Array
    mean: tuple[jax.Array, ...]
    axes: tuple[tuple[jax.Array, ...], ...]  # rows of S^-1 R^T
    opacity: jax.Array
    colors: jax.Array  # [M, D]
    normal: tuple[jax.Array, ...] | None
    drawable: jax.Array


def _render(image: _Image, tile_size: int, blend: Blend) -> tuple[jax.Array, ...]:
    height, width = image.rays.shape[:2]
    layers, composite = _compositor(image, blend)

    def blend_pixels(index: jax.Array, candidate: jax.Array) -> tuple[jax.Array, ...]:
        found = composite(index, candidate)
        results = blended_picture(found.layers, layers.ids, layers.colors)
        return results if layers.normal is None else (*results, _hits(layers.normal, found))

    picture, *rest = over_pixels(blend_pixels, len(layers.ids), width, height, tile_size, image.tiles, image.masks)
    if image.tiles is not None:
        picture = jnp.where(complete(len(image.means), image.tiles), picture, jnp.nan)
    return picture, *rest


class _Found(NamedTuple):
    """What layers do to pixels, their distances along the rays [M, P], and the directions of these, 3 x [P]."""

    layers: Composited
    distance: jax.Array
    direction: tuple[jax.Array, ...]


def _compositor(image: _Image, blend: Blend) -> tuple[_Layers, Callable[[jax.Array, jax.Array], _Found]]:
    """The layers, and what they do to pixels, given which of them may be seen there."""
    ids, valid = candidates(len(image.means), image.depths, image.radii, image.tiles)
    layers = _layers(image, ids, valid)
    rays = image.rays.reshape(-1, 6)

    def composite(index: jax.Array, candidate: jax.Array) -> _Found:
        candidate &= layers.drawable[:, None]
        if image.depth_limit is not None:
            assert image.depths is not None
            candidate &= image.depths[layers.ids][:, None] < image.depth_limit.reshape(-1)[index][None]
        return _composite(layers, candidate, rays[index], blend)

    return layers, composite


def _layers(image: _Image, ids: jax.Array, valid: jax.Array) -> _Layers:
    """Gathers the splats in drawing order, and replaces those that cannot be drawn by harmless ones."""
    normals = jnp.zeros_like(image.means) if image.normals is None else image.normals
    parts = (image.means, image.quats, image.scales, image.opacities[:, None], image.colors, normals)
    dtype = jnp.result_type(*parts)
    finite = [jnp.all(jnp.isfinite(part), -1) for part in parts]
    drawable = jnp.all(jnp.stack(finite), 0) & jnp.all(image.scales != 0, -1)
    drawable &= jnp.max(jnp.abs(image.quats), -1) > const.NORM_FLOOR
    if len(image.means) == 0:
        ids, valid, drawable = jnp.zeros(0, jnp.int32), jnp.zeros(0, bool), jnp.zeros(0, bool)
    harmless = (0.0, jnp.array([1.0, 0, 0, 0]), 1.0, 0.0, 0.0, 0.0)
    mean, quat, scale, opacity, colors, normal = (
        jnp.where(drawable[:, None], part.astype(dtype), jnp.asarray(value, dtype).reshape(1, -1))[ids]
        for part, value in zip(parts, harmless, strict=True)
    )
    rotation = _linalg.rotation(*_linalg.components(quat))
    axes = tuple(tuple(entry / scale[:, k] for entry in column) for k, column in enumerate(zip(*rotation, strict=True)))
    return _Layers(
        ids, _linalg.components(mean), axes, opacity[:, 0], colors,
        None if image.normals is None else _linalg.components(normal), drawable[ids] & valid,
    )  # fmt: skip


def _composite(layers: _Layers, candidate: jax.Array, rays: jax.Array, blend: Blend) -> _Found:
    """Evaluates [M, P] layers at pixels."""
    seeing = jnp.all(jnp.isfinite(rays), -1) & jnp.any(rays[:, 3:] != 0, -1)
    rays = jnp.where(seeing[:, None], rays, jnp.array([0, 0, 0, 0, 0, 1], rays.dtype).reshape(1, 6))
    origin, direction = (_linalg.components(part) for part in (rays[:, :3], rays[:, 3:]))
    candidate = candidate & seeing[None]

    def evaluate(drawn: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        """Opacities, and distances along the ray, [M, P]; those not drawn are moved to the ray's origin."""
        offset = [o[None, :] - mean[:, None] for o, mean in zip(origin, layers.mean, strict=True)]
        if drawn is not None:
            offset = [jnp.where(drawn, part, 0) for part in offset]
        ways = [d[None] for d in direction]
        g, a = ([_dot([entry[:, None] for entry in row], part) for row in layers.axes] for part in (offset, ways))
        moment = [g[i - 2] * a[i - 1] - g[i - 1] * a[i - 2] for i in range(3)]
        squared = _dot(a, a)
        t = -_dot(g, a) / squared
        alpha = layers.opacity[:, None] * jnp.exp(-0.5 * _dot(moment, moment) / squared)
        return jnp.where(alpha > blend.alpha_max, blend.alpha_max, alpha), t

    # First which splats count, then their values with the others made harmless: those may overflow.
    alpha, t = lax.stop_gradient(evaluate(None))
    counted = candidate & (t > 0) & (alpha >= blend.alpha_min)
    blended = blended_layers(jnp.where(counted, alpha, 0), counted, blend)
    alpha, t = evaluate(blended)
    return _Found(composited(clip_alphas(jnp.where(blended, alpha, 0), blend), blended), t, direction)


def _hits(normal: tuple[jax.Array, ...], found: _Found) -> jax.Array:
    """[P, 4] sums of weight times distance, and of weight times normal turned to the ray."""
    weight = found.layers.alpha * found.layers.before
    away = sum(n[:, None] * d[None] for n, d in zip(normal, found.direction, strict=True)) > 0
    facing = [jnp.where(away, -n[:, None], n[:, None]) for n in normal]
    return _linalg.interleave(*(jnp.sum(weight * part, 0) for part in (found.distance, *facing)))


def _dot(p: list[jax.Array], q: list[jax.Array]) -> jax.Array:
    return p[0] * q[0] + p[1] * q[1] + p[2] * q[2]
