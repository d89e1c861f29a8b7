"""Rasterization of 3D Gaussians along rays."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from jaxsplat import _backend, _check, _constants, _ffi, _linalg, _validate, reference_world
from jaxsplat._index import sum_to
from jaxsplat.rasterize.gaussians_3d import Settings, check_backgrounds, list_specs, over_backgrounds, reference_lists
from jaxsplat.types import Backend, Blend, Projected, TileAssignment, TileIntersections

_NAME = "rasterize_gaussians_world"


class RasterizedWorld(NamedTuple):
    """Pictures of splats along rays.

    Attributes:
      colors: [..., H, W, D] blended channels, background included.
      alphas: [..., H, W, 1] accumulated opacity.
      last_ids: [..., H, W] int32, index of the last splat blended at each pixel, -1 for none.
      left_out: [...] int32, the number of entries of tile lists beyond `max_list_entries`, which are not blended.
      list_count: [...] int32, the number of tile intersections, also of those that a limit left out.
      distances: [..., H, W, 1] hit distances along the ray, accumulated by weight; divided by `alphas` they are the
        expected ones. None without `hits`.
      normals: [..., H, W, 3] normals turned to the ray, in the world, accumulated by weight. None without `hits`.
    """

    colors: jax.Array
    alphas: jax.Array
    last_ids: jax.Array
    left_out: jax.Array
    list_count: jax.Array
    distances: jax.Array | None
    normals: jax.Array | None


def rasterize_gaussians_world(
    means: jax.Array,
    quats: jax.Array,
    scales: jax.Array,
    opacities: jax.Array,
    colors: jax.Array,
    rays: jax.Array,
    *,
    extents: Projected | None = None,
    tiles: TileIntersections | None = None,
    backgrounds: jax.Array | None = None,
    depth_limit: jax.Array | None = None,
    masks: jax.Array | None = None,
    tile_size: int = _constants.TILE_SIZE,
    blend: Blend = Blend(),  # noqa: B008 (frozen)
    hits: bool = False,
    tile_assignment: TileAssignment = "ellipse",
    max_intersections: int | None = None,
    max_list_entries: int | None = None,
    backend: Backend = "auto",
    validate: bool = False,
) -> RasterizedWorld:
    """Blends 3D Gaussians front to back, each where it is greatest along a pixel's ray (Wu et al. 2025, 3DGUT).

    alpha = min(alpha_max, opacity exp(-p^2 / 2)) with p the distance between ray and mean after both are taken to the
    space where the splat is a unit ball; a splat whose closest approach is behind the ray's origin adds nothing. There
    is no linearisation and no dilation, so any camera is exact that has rays. Leading axes are images; those of the
    arguments broadcast, and a shared argument is not copied. Gradients reach every float argument but `extents` and
    `depth_limit`, which only say where a splat is seen, in which order, and what is hidden. Values and gradients have
    the same bits in every run, whatever the number of threads.

    Args:
      means: [..., N, 3] centres, in world units.
      quats: [..., N, 4] rotations as w, x, y, z, of any length. A splat whose quaternion is zero is not drawn.
      scales: [..., N, 3] standard deviations, in world units. A splat with a scale of zero is not drawn.
      opacities: [..., N] in [0, 1].
      colors: [..., N, D] any number of channels. A splat with a value that is not finite is not drawn.
      rays: [..., H, W, 6] origin and unit direction of each pixel, in the world. Where the direction is zero or not
        finite, the pixel shows the background and has no gradient.
      extents: what a projection returns, [..., N, ...]: `means2d`, `conics` and the opacities bound where each splat is
        seen, `depths` order them. The reference back end uses depths and radii alone. Needed unless `tiles` is given.
      tiles: lists made by `intersect_tiles` with the same `tile_size`, in place of `extents`: every pixel of a tile
        then tries every splat of its list.
      backgrounds: [..., D] or [..., H, W, D] color behind everything; 0 by default.
      depth_limit: [..., H, W] a pixel shows the splats whose depth in `extents` is less than this; `inf` for no limit.
        A hard cut, with zero gradient.
      masks: [..., ceil(H / tile_size), ceil(W / tile_size)] bool; a tile that is False shows the background.
      tile_size: side of a tile in pixels, a multiple of 4 up to 32.
      blend: the blend rule.
      hits: whether to compute distances and normals too. The normal of a splat is its shortest axis.
      tile_assignment: as in `rasterize_gaussians_3d`, of the outlines in `extents`.
      max_intersections: capacity of the tile lists of each image, as for `rasterize_gaussians_3d`; None for no limit.
      max_list_entries: as in `rasterize_gaussians_3d`.
      backend: "auto", "native" or "reference".
      validate: also check values: ids, offsets, finite inputs. Under `jit` this needs `checkify`.

    Returns:
      `RasterizedWorld`.

    Raises:
      ValueError: for shapes or settings that do not fit.
      TypeError: for arrays of a wrong type.
      jax.errors.JaxRuntimeError: (or ValueError, outside `jit`) when run, if `tiles` is incomplete or holds ids out of
        range, or if one image has more than 2^31 - 1 tile intersections; the message says how many.

    Example:
      >>> extents = project_gaussians(means, quats, scales, viewmats, Ks, width=640, height=480)
      >>> rays = camera_rays(viewmats, Ks, width=640, height=480)
      >>> splats = [x[..., None, :, :] for x in (means, quats, scales)]  # an axis for the cameras
      >>> rasterize_gaussians_world(*splats, opacities[None], colors[None], rays, extents=extents).colors.shape
      (1, 480, 640, 3)
    """
    floats = {"means": means, "quats": quats, "scales": scales, "opacities": opacities, "colors": colors, "rays": rays}
    floats = {name: jnp.asarray(array) for name, array in floats.items()}
    check_arguments(_NAME, floats, extents, tiles, backgrounds, depth_limit, masks, tile_size, blend)
    if validate:
        _validate.finite(_NAME, **floats)
        if tiles is not None:
            _validate.tile_lists(_NAME, tiles, means.shape[-2])
    chosen = _backend.resolve(_NAME, backend, **floats)
    height, width = floats["rays"].shape[-3:-1]
    normals = _normals(floats["quats"], floats["scales"]) if hits else None
    settings = Settings(width, height, tile_size, blend, tile_assignment, max_intersections, max_list_entries)
    settings.check(_NAME, tiles)
    render = _reference if chosen == "reference" else _native
    blended, transmittances, last_ids, left_out, list_count, *accumulated = render(
        floats, normals, extents, tiles, depth_limit, masks, settings
    )
    blended = over_backgrounds(blended, transmittances, backgrounds)
    distances, facing = (accumulated[0][..., :1], accumulated[0][..., 1:]) if hits else (None, None)
    return RasterizedWorld(blended, 1 - transmittances[..., None], last_ids, left_out, list_count, distances, facing)


def _normals(quats: jax.Array, scales: jax.Array) -> jax.Array:
    """[..., N, 3] the axis of least scale."""
    rank = max(quats.ndim, scales.ndim)
    # Their gradient would be 0 * NaN; the kernels see what was given.
    quats = jnp.where(jnp.all(jnp.isfinite(quats), -1, keepdims=True), quats, 0)
    columns = zip(*_linalg.rotation(*_linalg.components(_linalg.lift(quats, rank))), strict=True)
    shortest = jnp.argmin(jnp.abs(_linalg.lift(scales, rank)), -1)
    choose = lambda axis: jnp.where(shortest == 0, axis[0], jnp.where(shortest == 1, axis[1], axis[2]))  # noqa: E731
    return _linalg.interleave(*(choose(axis) for axis in zip(*columns, strict=True)))


def bounds_of(extents: Projected | None, opacities: jax.Array) -> tuple[Any, Any, Any, Any, Any]:
    """What tile lists are found from: means2d, conics, opacities, depths and radii."""
    if extents is None:
        return None, None, None, None, None
    return extents.means2d, extents.conics, opacities, extents.depths, extents.radii


def _reference(floats, normals, extents, tiles, depth_limit, masks, settings) -> tuple[jax.Array, ...]:
    bounds = bounds_of(extents, floats["opacities"])
    found = reference_lists(settings, *bounds, tiles)
    blended, transmittances, last_ids, *accumulated = reference_world.rasterize_gaussians_world(
        **floats, normals=normals, tiles=found.tiles, depth_limit=depth_limit, masks=masks,
        tile_size=settings.tile_size, blend=settings.blend, depths=bounds[3], radii=found.radii,
    )  # fmt: skip
    counts = [jnp.broadcast_to(x, transmittances.shape[:-2]) for x in (found.left_out, found.list_count)]
    return blended, transmittances, last_ids, *counts, *accumulated


# Number of own axes of the operands of the kernel: means, quats, scales, opacities, colors, normals, rays, means2d,
# conics, depths, depth_limit, radii, masks, gaussian_ids, tile_offsets, count. What is not given is passed as an empty
# array.
RANKS: tuple[int, ...] = (2, 2, 2, 1, 2, 2, 3, 2, 2, 1, 2, 2, 2, 1, 1, 0)
_FLOATS = 7
"""Operands that have gradients."""


def operands_of(floats, normals, extents, tiles, depth_limit, masks) -> list[jax.Array]:
    """What the kernels take."""
    empty = jnp.zeros((0,), jnp.int32)
    bounds = (
        [jnp.zeros((0,) * rank, jnp.float32) for rank in (2, 2, 1)]
        if extents is None
        else [x.astype(jnp.float32) for x in (extents.means2d, extents.conics, extents.depths)]
    )
    return [
        *(floats[name].astype(jnp.float32) for name in ("means", "quats", "scales", "opacities", "colors")),
        jnp.zeros((0, 3), jnp.float32) if normals is None else normals.astype(jnp.float32),
        floats["rays"].astype(jnp.float32),
        *bounds,
        jnp.zeros((0, 0), jnp.float32) if depth_limit is None else depth_limit.astype(jnp.float32),
        jnp.zeros((0, 2), jnp.int32) if extents is None else extents.radii.astype(jnp.int32),
        jnp.ones((1, 1), jnp.bool_) if masks is None else masks,
        *((empty, empty, jnp.int32(0)) if tiles is None else (tiles.gaussian_ids, tiles.tile_offsets, tiles.count)),
    ]


def _native(floats, normals, extents, tiles, depth_limit, masks, settings) -> tuple[jax.Array, ...]:
    operands = operands_of(floats, normals, extents, tiles, depth_limit, masks)
    return _rasterize(settings, normals is not None, tuple(_ffi.vary_alike(operands)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _rasterize(settings: Settings, hits: bool, operands: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    return _blend(settings, hits, operands, keep=False)


def _blend(settings: Settings, hits: bool, operands: tuple[jax.Array, ...], *, keep: bool) -> tuple[jax.Array, ...]:
    """Calls the forward kernel; with `keep` it keeps its tile lists for the backward pass."""
    pixels = (settings.height, settings.width)
    n, channels = operands[4].shape[-2:]
    results = [((*pixels, channels), jnp.float32), (pixels, jnp.float32), (pixels, jnp.int32)]
    results += [((), jnp.int32)] * 2  # left out, and all entries
    results += [((*(pixels if hits else (0, 0)), 4), jnp.float32)]
    more = {"size": n, "channels": channels, "hits": hits, "keep": keep}
    return tuple(settings.call(f"{_NAME}_forward", operands, RANKS, results, **more))


def _forward(settings: Settings, hits: bool, operands: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    values = tuple(operand.value for operand in operands)
    outputs = _blend(settings, hits, values, keep=True)
    # The gradient to the rays costs a third more: computed for those who ask.
    rays_move = () if operands[_FLOATS - 1].perturbed else None
    return outputs, (values, rays_move, outputs[0], outputs[1], outputs[5])


def _backward(
    settings: Settings, hits: bool, residuals: tuple[Any, ...], cotangents: tuple[Any, ...]
) -> tuple[tuple[Any, ...]]:
    operands, rays_move, picture, transmittances, accumulated = residuals
    cotangents = tuple(jnp.zeros(v.shape, jnp.float32) if isinstance(v, SymbolicZero) else v for v in cotangents)
    v_picture, v_transmittances, _, _, _, v_accumulated = cotangents
    n, channels = operands[4].shape[-2:]
    shapes = [(n, 3), (n, 4), (n, 3), (n,), (n, channels), operands[5].shape[-2:]]
    shapes.append((settings.height, settings.width, 6) if rays_move is not None else (0, 0, 6))
    gradients = settings.call(
        f"{_NAME}_backward",
        (*operands, picture, transmittances, accumulated, v_picture, v_transmittances, v_accumulated),
        (*RANKS, 3, 2, 3, 3, 2, 3),
        [(shape, jnp.float32) for shape in shapes],
        size=n,
        channels=channels,
        alpha_gradient_max=float(settings.blend.alpha_gradient_max),
        hits=hits,
    )
    floats = [sum_to(g, o.shape) for g, o in zip(gradients[:-1], operands, strict=False)]
    v_rays = None if rays_move is None else sum_to(gradients[-1], operands[_FLOATS - 1].shape)
    # The extents and the limit only decide where and in which order.
    decide = [jnp.zeros_like(o) for o in operands[_FLOATS : _FLOATS + 4]]
    return ((*floats, v_rays, *decide, *(np.zeros(o.shape, jax.dtypes.float0) for o in operands[_FLOATS + 4 :])),)


_rasterize.defvjp(_forward, _backward, symbolic_zeros=True)


def check_arguments(name, floats, extents, tiles, backgrounds, depth_limit, masks, tile_size, blend) -> None:
    """Raises unless the arguments of a function of that name fit."""
    if (extents is None) == (tiles is None):
        raise ValueError(f"{name}: give either extents or tiles, got {'neither' if tiles is None else 'both'}.")
    colors, rays = floats["colors"], floats["rays"]
    specs = {
        "means": "... N 3", "quats": "... N 4", "scales": "... N 3", "opacities": "... N", "colors": "... N D",
        "rays": "... H W 6",
    }  # fmt: skip
    bounds = {} if extents is None else {f"extents.{name}": value for name, value in extents._asdict().items()}
    own = {"means2d": "... N 2", "conics": "... N 3", "depths": "... N", "radii": "... N 2", "compensations": "... N"}
    shapes: dict[str, Any] = {name: (floats[name], spec) for name, spec in specs.items()}
    shapes |= {name: (value, own[name.removeprefix("extents.")]) for name, value in bounds.items()}
    _check.shapes(name, rays=shapes["rays"])
    height, width = rays.shape[-3:-1]
    _check.grid(name, tile_size, **{"width of rays": width, "height of rays": height})
    if depth_limit is not None and extents is None:
        raise ValueError(f"{name}: depth_limit needs the depths of extents, got tiles.")
    shapes |= {"depth_limit": (depth_limit, "... H W"), **list_specs(tiles, masks, width, height, tile_size)}
    sizes = _check.shapes(name, **shapes)
    check_backgrounds(name, backgrounds, colors, len(sizes["..."]), width, height)
    radii = bounds.pop("extents.radii", None)
    _check.floating(name, **floats, **bounds, backgrounds=backgrounds, depth_limit=depth_limit)
    _check.kind(name, jnp.integer, **{"extents.radii": radii})
    if colors.shape[-1] < 1:
        raise ValueError(f"{name}: colors must have at least one channel, got {list(colors.shape)}.")
    _check.blend(name, blend)
