"""Which splats a pixel blends, and what each splat adds to a picture: for inspection and pruning."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _backend, _check, _constants, _ffi, reference, reference_world
from jaxsplat._index import gather_rows
from jaxsplat.rasterize import gaussians_3d, gaussians_world
from jaxsplat.rasterize.gaussians_3d import Settings
from jaxsplat.types import Backend, Blend, Contributors, Projected, TileAssignment, TileIntersections

_NAME = "trace_contributors"
_NAME_WORLD = "trace_contributors_world"
Order = Literal["depth", "weight"]


def trace_contributors(
    means2d: jax.Array,
    conics: jax.Array,
    opacities: jax.Array,
    *,
    width: int,
    height: int,
    max_hits: int,
    order: Order = "depth",
    colors: jax.Array | None = None,
    depths: jax.Array | None = None,
    radii: jax.Array | None = None,
    tiles: TileIntersections | None = None,
    depth_limit: jax.Array | None = None,
    masks: jax.Array | None = None,
    tile_size: int = _constants.TILE_SIZE,
    blend: Blend = Blend(),  # noqa: B008 (frozen)
    tile_assignment: TileAssignment = "ellipse",
    max_intersections: int | None = None,
    max_list_entries: int | None = None,
    backend: Backend = "auto",
) -> Contributors:
    """Lists the splats that `rasterize_gaussians_3d` blends at each pixel, and sums up what each splat adds.

    The lists are those of the picture with the same arguments: the sum of color alpha transmittance over a list of all
    contributors is the pixel. The leading axes are images, as there; the order of all sums is fixed. Nothing here has
    a gradient.

    Args:
      means2d: [..., N, 2] centres in pixels.
      conics: [..., N, 3] upper triangle of the inverse 2D covariance, in 1 / pixel^2.
      opacities: [..., N] in [0, 1].
      width: image width in pixels.
      height: image height in pixels.
      max_hits: K, most splats listed at a pixel; with 0 there are only the counts and sums. Static.
      order: "depth" lists the nearest, front to back; "weight" those of the largest weight, the largest first, of equal
        ones the nearer.
      colors: [..., N, D]; without, none are returned.
      depths: as in `rasterize_gaussians_3d`.
      radii: as in `rasterize_gaussians_3d`.
      tiles: as in `rasterize_gaussians_3d`.
      depth_limit: as in `rasterize_gaussians_3d`.
      masks: as in `rasterize_gaussians_3d`.
      tile_size: side of a tile in pixels, a multiple of 4 up to 32.
      blend: the blend rule.
      tile_assignment: as in `rasterize_gaussians_3d`.
      max_intersections: as in `rasterize_gaussians_3d`.
      max_list_entries: as in `rasterize_gaussians_3d`.
      backend: "auto", "native" or "reference".

    Returns:
      `Contributors`. Where `counts` exceeds K, the list is not complete; the sums over splats always are.

    Raises:
      ValueError: for shapes or settings that do not fit.
      TypeError: for arrays of a wrong type.
      jax.errors.JaxRuntimeError: as `rasterize_gaussians_3d`.

    Example:
      >>> info = rasterization(means, quats, scales, opacities, colors, viewmats, Ks, width=640, height=480).info
      >>> p = info.projected
      >>> trace_contributors(p.means2d, p.conics, info.opacities, depths=p.depths, radii=p.radii,
      ...                    width=640, height=480, max_hits=8).ids.shape
      (1, 480, 640, 8)
    """
    means2d, conics, opacities = (jnp.asarray(a) for a in (means2d, conics, opacities))
    seen = _colors(colors, means2d)
    gaussians_3d.check_arguments(
        _NAME, means2d, conics, seen, opacities, depths, radii, tiles, None, depth_limit, masks, None, width, height,
        tile_size, blend,
    )  # fmt: skip
    settings = Settings(width, height, tile_size, blend, tile_assignment, max_intersections, max_list_entries)
    settings.check(_NAME, tiles)
    _check_lists(_NAME, max_hits, order)
    chosen = _backend.resolve(_NAME, backend, means2d=means2d, conics=conics, opacities=opacities, colors=seen)
    if chosen == "reference":
        operands = lax.stop_gradient((means2d, conics, seen, opacities))
        lists = gaussians_3d.reference_lists(settings, *operands[:2], opacities, depths, radii, tiles)
        found = reference.trace_contributors(
            *operands, depths=depths, radii=lists.radii, tiles=lists.tiles, depth_limit=depth_limit, masks=masks,
            width=width, height=height, tile_size=tile_size, blend=blend, max_hits=max_hits,
            by_weight=order == "weight",
        )  # fmt: skip
    else:
        operands = gaussians_3d.operands_of(means2d, conics, seen, opacities, depths, depth_limit, radii, tiles, masks)
        found = _native(_NAME, operands, gaussians_3d.RANKS, settings, means2d.shape[-2], max_hits, order)
    return _with_colors(found, colors)


def trace_contributors_world(
    means: jax.Array,
    quats: jax.Array,
    scales: jax.Array,
    opacities: jax.Array,
    rays: jax.Array,
    *,
    max_hits: int,
    order: Order = "depth",
    colors: jax.Array | None = None,
    extents: Projected | None = None,
    tiles: TileIntersections | None = None,
    depth_limit: jax.Array | None = None,
    masks: jax.Array | None = None,
    tile_size: int = _constants.TILE_SIZE,
    blend: Blend = Blend(),  # noqa: B008 (frozen)
    tile_assignment: TileAssignment = "ellipse",
    max_intersections: int | None = None,
    max_list_entries: int | None = None,
    backend: Backend = "auto",
) -> Contributors:
    """Lists the splats that `rasterize_gaussians_world` blends along each pixel's ray, and sums up what each adds.

    As `trace_contributors`, for splats evaluated along rays. Nothing here has a gradient.

    Args:
      means: [..., N, 3] centres, in world units.
      quats: [..., N, 4] rotations as w, x, y, z, of any length.
      scales: [..., N, 3] standard deviations, in world units.
      opacities: [..., N] in [0, 1].
      rays: [..., H, W, 6] origin and unit direction of each pixel, in the world.
      max_hits: as in `trace_contributors`.
      order: as in `trace_contributors`.
      colors: [..., N, D]; without, none are returned.
      extents: as in `rasterize_gaussians_world`.
      tiles: as in `rasterize_gaussians_world`.
      depth_limit: as in `rasterize_gaussians_world`.
      masks: as in `rasterize_gaussians_world`.
      tile_size: side of a tile in pixels, a multiple of 4 up to 32.
      blend: the blend rule.
      tile_assignment: as in `rasterize_gaussians_world`.
      max_intersections: as in `rasterize_gaussians_world`.
      max_list_entries: as in `rasterize_gaussians_world`.
      backend: "auto", "native" or "reference".

    Returns:
      `Contributors`.

    Raises:
      ValueError: for shapes or settings that do not fit.
      TypeError: for arrays of a wrong type.
      jax.errors.JaxRuntimeError: as `rasterize_gaussians_world`.

    Example:
      >>> trace_contributors_world(*splats, opacities, rays, extents=extents, max_hits=8).counts.shape
      (1, 480, 640)
    """
    floats = {"means": means, "quats": quats, "scales": scales, "opacities": opacities, "rays": rays}
    floats = {name: jnp.asarray(array) for name, array in floats.items()}
    floats["colors"] = _colors(colors, floats["means"])
    gaussians_world.check_arguments(_NAME_WORLD, floats, extents, tiles, None, depth_limit, masks, tile_size, blend)
    _check_lists(_NAME_WORLD, max_hits, order)
    height, width = floats["rays"].shape[-3:-1]
    settings = Settings(width, height, tile_size, blend, tile_assignment, max_intersections, max_list_entries)
    settings.check(_NAME_WORLD, tiles)
    if _backend.resolve(_NAME_WORLD, backend, **floats) == "reference":
        bounds = gaussians_world.bounds_of(extents, floats["opacities"])
        lists = gaussians_3d.reference_lists(settings, *bounds, tiles)
        found = reference_world.trace_contributors(
            **lax.stop_gradient(floats), depths=bounds[3], radii=lists.radii, tiles=lists.tiles,
            depth_limit=depth_limit, masks=masks, tile_size=tile_size, blend=blend, max_hits=max_hits,
            by_weight=order == "weight",
        )  # fmt: skip
    else:
        operands = gaussians_world.operands_of(floats, None, extents, tiles, depth_limit, masks)
        count = floats["means"].shape[-2]
        found = _native(_NAME_WORLD, operands, gaussians_world.RANKS, settings, count, max_hits, order)
    return _with_colors(found, colors)


def _native(
    target: str, operands: list[jax.Array], ranks: tuple[int, ...], settings: Settings, count: int, max_hits: int,
    order: Order,
) -> Contributors:  # fmt: skip
    pixels = (settings.height, settings.width)
    lists = (*pixels, max_hits)
    results: list[tuple[tuple[int, ...], Any]] = [
        (pixels, jnp.int32), (lists, jnp.int32), (lists, jnp.float32), (lists, jnp.float32), ((count,), jnp.float32),
        ((count,), jnp.int32),
    ]  # fmt: skip
    operands = _ffi.vary_alike([lax.stop_gradient(a) for a in operands])
    attributes = {**settings.attributes(), "by_weight": order == "weight"}
    return Contributors(*_ffi.call(target, operands, ranks, results, **attributes), colors=None)


def _colors(colors: jax.Array | None, means: jax.Array) -> jax.Array:
    """Those given, or some: what has no finite color is not drawn."""
    return jnp.zeros((*means.shape[-2:-1], 1), means.dtype) if colors is None else jnp.asarray(colors)


def _with_colors(found: Contributors, colors: jax.Array | None) -> Contributors:
    if colors is None:
        return found
    return found._replace(colors=gather_rows(lax.stop_gradient(jnp.asarray(colors)), found.ids))


def _check_lists(name: str, max_hits: int, order: str) -> None:
    if max_hits != 0:
        _check.positive_int(name, max_hits=max_hits)
    _check.choice(name, "order", order, ("depth", "weight"))
