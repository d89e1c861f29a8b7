"""The pipelines: what most users call. Each composes the stages and has no mathematics of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxsplat import _check, _constants, _validate
from jaxsplat._camera_chunks import render_in_chunks
from jaxsplat.cameras import AnyCameraModel, Lens, Shutter, camera_centres, camera_rays, per_camera_lens
from jaxsplat.projection import Unscented, project_gaussians, project_outlines, project_unscented
from jaxsplat.rasterize.gaussians_3d import Rasterized, per_pixel, rasterize_gaussians_3d
from jaxsplat.rasterize.gaussians_world import RasterizedWorld, rasterize_gaussians_world
from jaxsplat.sh import check_coeffs, num_sh_coeffs, spherical_harmonics
from jaxsplat.types import (
    Backend,
    Blend,
    CameraModel,
    Evaluate,
    Projected,
    Projection,
    RenderInfo,
    RenderMode,
    RenderOutput,
    ScreenProbe,
    SHCoeffs,
    TileAssignment,
)

_NAME = "rasterization"
_TINY_ALPHA = 1e-10
"""Expected depth divides by at least this, so that an empty pixel gives 0."""


def rasterization(
    means: jax.Array,
    quats: jax.Array | None,
    scales: jax.Array | None,
    opacities: jax.Array,
    colors: jax.Array | SHCoeffs,
    viewmats: jax.Array,
    Ks: jax.Array,
    *,
    width: int,
    height: int,
    sh_degree: int | None = None,
    near_plane: jax.Array | float = _constants.NEAR,
    far_plane: jax.Array | float = _constants.FAR,
    radius_clip: jax.Array | float = 0.0,
    eps2d: jax.Array | float = _constants.EPS2D,
    tile_size: int = _constants.TILE_SIZE,
    backgrounds: jax.Array | None = None,
    depth_limit: jax.Array | None = None,
    masks: jax.Array | None = None,
    render_mode: RenderMode = "RGB",
    antialiased: bool = False,
    camera_model: AnyCameraModel = "pinhole",
    projection: Projection | Unscented | None = None,
    shutter: Shutter | None = None,
    evaluate: Evaluate = "ellipse",
    rays: jax.Array | None = None,
    covars: jax.Array | None = None,
    blend: Blend = Blend(),  # noqa: B008 (frozen)
    probe: ScreenProbe | None = None,
    tile_assignment: TileAssignment = "ellipse",
    max_intersections: int | None = None,
    max_list_entries: int | None = None,
    camera_chunk: int | None = None,
    backend: Backend = "auto",
    validate: bool = False,
) -> RenderOutput:
    """Renders 3D Gaussians (Kerbl et al. 2023) from every camera.

    Project, color, blend. Gradients reach every float argument, poses and intrinsics included; culling and depth order
    are not differentiated. All leading axes broadcast; prefer the camera axis `C` to `jax.vmap` where both would do.

    Args:
      means: [..., N, 3] centres, in world units.
      quats: [..., N, 4] rotations as w, x, y, z, of any length; None when `covars` are given.
      scales: [..., N, 3] standard deviations, in world units; None when `covars` are given.
      opacities: [..., N] in [0, 1].
      colors: [..., N, D] or, per camera, [..., C, N, D]; with `sh_degree`, coefficients [..., N, K, D], in one piece or
        as `SHCoeffs`.
      viewmats: [..., C, 4, 4] world-to-camera matrices, OpenCV axes.
      Ks: [..., C, 3, 3] camera matrices, in pixels. New values never compile anew.
      width: image width in pixels.
      height: image height in pixels.
      sh_degree: 0 to 4 if `colors` are spherical-harmonics coefficients: then colour = max(SH + 0.5, 0).
      near_plane: smallest visible depth, a scalar or [..., C], in world units.
      far_plane: largest visible depth, a scalar or [..., C], in world units.
      radius_clip: splats no larger than this, in pixels, are left out.
      eps2d: variance added to every screen-space covariance, in squared pixels.
      tile_size: side of a tile in pixels, a multiple of 4 up to 32. It does not change the picture.
      backgrounds: [..., C, D] color behind everything; or, where it has more axes than the images and D,
        [..., C, H, W, D] the color behind each pixel. 0 by default.
      depth_limit: [..., C, H, W] a pixel shows the splats whose depth (camera-space z of the centre) is less; `inf` for
        no limit. Give the depths and the colors of `render_meshes` as limit and backgrounds to put splats in front of
        a mesh and to hide those behind it: the mesh has its gradient through its colors. The cut is hard: its own
        gradient is zero, as the picture stays the same until the limit crosses the depth of a splat, and jumps there.
        The depths of `Fragments` hold -1 where no face is, which would hide all: replace it by `inf`.
      masks: [..., C, ceil(H / tile_size), ceil(W / tile_size)] bool; a tile that is False shows the background.
      render_mode: "RGB", "D" (depth accumulated by weight), "ED" (depth expected: D / alpha), or "RGB+D", "RGB+ED".
      antialiased: multiply opacities by the compensation for `eps2d` (Yu et al. 2024, Mip-Splatting).
      camera_model: "pinhole", "ortho", "fisheye" (equidistant, what is in front), or a `Lens`.
      projection: "ewa", by a linearisation of the camera at each mean; or "unscented", by seven points of each splat,
        `Unscented()` in full: more exact for wide splats and strong lenses. None: "unscented" with a shutter, else
        "ewa"; along rays, bounds that lose no part of a splat in any camera (`project_outlines`).
      shutter: how the lines are read out while the camera moves; not with "ewa".
      evaluate: "ellipse": on the screen, after the projection and the dilation by `eps2d`; "ray": in the world along
        each pixel's ray, exact for any camera; the projection then only says where and in which order a splat is seen.
        Depth is the distance along the ray, and `info.normals` come with the depth modes. `eps2d` only widens bounds;
        `probe`, `covars` and `antialiased` do not apply.
      rays: [..., C, H, W, 6] origins and unit directions in the world, for `evaluate="ray"`; those of the camera model
        and the shutter by default.
      covars: [..., N, 3, 3] or [..., N, 6] covariances in place of `quats` and `scales`.
      blend: the blend rule.
      probe: zeros [..., C, N, 2] whose gradients are screen-space statistics.
      tile_assignment: "ellipse" or "box": see `rasterize_gaussians_3d`. It does not change the picture.
      max_intersections: capacity of the tile lists of each camera, for GPUs: see `rasterize_gaussians_3d`. Where
        `info.list_count` exceeds it, the farthest splats are missing. None for no limit.
      max_list_entries: most splats tried in one tile, the nearest; `info.left_out` counts those beyond. None: no limit.
      camera_chunk: render so many cameras at a time, forward and backward, to bound the memory; `info` is then None.
      backend: "auto", "native", or "reference": plain JAX, any device and precision, slow.
      validate: also check that all inputs are finite. Under `jit` this needs `checkify`.

    Returns:
      Colors, alphas, and the intermediate results.

    Raises:
      ValueError: for shapes or settings that do not fit.
      TypeError: for arrays of a wrong type.

    Example:
      >>> out = rasterization(means, quats, scales, opacities, colors, viewmats, Ks, width=640, height=480)
      >>> out.colors.shape
      (1, 480, 640, 3)
    """
    arrays = {
        "means": means, "quats": quats, "scales": scales, "opacities": opacities, "colors": colors,
        "viewmats": viewmats, "Ks": Ks, "backgrounds": backgrounds, "depth_limit": depth_limit, "covars": covars,
    }  # fmt: skip
    arrays: dict[str, Any] = {name: jax.tree.map(jnp.asarray, a) for name, a in arrays.items()}
    planes = {"near_plane": jnp.asarray(near_plane), "far_plane": jnp.asarray(far_plane)}
    _check_evaluate(evaluate, rays, probe=probe, covars=covars, antialiased=antialiased or None)
    _check_projection(projection, arrays["covars"], shutter)
    limits = {"max_intersections": max_intersections, "max_list_entries": max_list_entries}
    for option, limit in limits.items():
        if limit is not None and camera_chunk is not None:
            raise ValueError(f"{_NAME}: {option} needs info, which camera_chunk leaves out; give one of them.")
    image_axes = _check_arguments(
        arrays, planes, masks, probe, rays, sh_degree, render_mode, camera_chunk, height, width
    )
    depth_limit = arrays.pop("depth_limit")
    if validate:
        _validate.finite(_NAME, **arrays)
    lens = None
    if isinstance(camera_model, Lens):
        lens = per_camera_lens(camera_model, arrays["viewmats"].shape[-3])
    per_camera = {
        "viewmats": arrays.pop("viewmats"), "Ks": arrays.pop("Ks"), "backgrounds": arrays.pop("backgrounds"),
        "depth_limit": depth_limit, "masks": masks, "probe": probe, "rays": rays, "colors": None, "shutter": shutter,
        "lens": lens, **planes,
    }  # fmt: skip
    if sh_degree is None and arrays["colors"].ndim > arrays["means"].ndim:
        per_camera["colors"], arrays["colors"] = arrays["colors"], None
    render = functools.partial(
        _render, width=width, height=height, sh_degree=sh_degree, radius_clip=radius_clip, eps2d=eps2d,
        tile_size=tile_size, render_mode=render_mode, antialiased=antialiased, projection=projection,
        named=None if isinstance(camera_model, Lens) else camera_model, evaluate=evaluate, blend=blend,
        lists={"tile_assignment": "box" if blend.tile_sigmas else tile_assignment, **limits}, backend=backend,
    )  # fmt: skip
    if camera_chunk is None:
        return render(arrays, per_camera)
    return render_in_chunks(render, arrays, per_camera, chunk=camera_chunk, image_axes=image_axes)


def _render(
    splats: dict[str, Any], cameras: dict[str, Any], *, width: int, height: int, sh_degree: int | None,
    radius_clip: Any, eps2d: Any, tile_size: int, render_mode: RenderMode, antialiased: bool,
    named: CameraModel | None, projection: Projection | Unscented | None, evaluate: Evaluate, blend: Blend,
    lists: dict[str, Any], backend: Backend,
) -> RenderOutput:  # fmt: skip
    """The pipeline: project, color, blend."""
    camera_model = cameras["lens"] if named is None else named
    project = _projector(splats, cameras, camera_model, projection, evaluate, blend, antialiased, backend)
    projected = project(
        splats["means"], splats["quats"], splats["scales"], cameras["viewmats"], cameras["Ks"],
        opacities=splats["opacities"], width=width, height=height, eps2d=eps2d, near_plane=cameras["near_plane"],
        far_plane=cameras["far_plane"], radius_clip=radius_clip, alpha_min=blend.alpha_min,
    )  # fmt: skip
    opacities = splats["opacities"][..., None, :]
    if antialiased:
        opacities = opacities * projected.compensations
    colors = _colors(splats, cameras, projected, sh_degree, backend)
    settings = {
        "tile_size": tile_size, "masks": cameras["masks"], "depth_limit": cameras["depth_limit"], "blend": blend,
        "backend": backend, **lists,
    }  # fmt: skip
    if evaluate == "ray":
        rays = cameras["rays"]
        if rays is None:
            rays = camera_rays(
                cameras["viewmats"], cameras["Ks"], width=width, height=height, camera_model=camera_model,
                shutter=cameras["shutter"],
            )  # fmt: skip
        return _along_rays(
            splats, projected, colors, opacities, rays, render_mode, backgrounds=cameras["backgrounds"], **settings
        )
    rasterized = rasterize_gaussians_3d(
        projected.means2d, projected.conics, _channels(colors, projected.depths, render_mode), opacities,
        depths=projected.depths, radii=projected.radii, width=width, height=height, probe=cameras["probe"],
        backgrounds=_channel_backgrounds(cameras["backgrounds"], render_mode), **settings,
    )  # fmt: skip
    image = rasterized.colors
    if render_mode in ("ED", "RGB+ED"):
        depth = image[..., -1:] / jnp.maximum(rasterized.alphas, _TINY_ALPHA)
        image = jnp.concatenate([image[..., :-1], depth], axis=-1)
    return RenderOutput(image, rasterized.alphas, _info(projected, opacities, rasterized))


def _projector(
    splats: dict[str, Any], cameras: dict[str, Any], camera_model: Any, projection: Projection | Unscented | None,
    evaluate: Evaluate, blend: Blend, antialiased: bool, backend: Backend,
) -> Callable[..., Projected]:  # fmt: skip
    """The projection that the settings ask for."""
    shutter = cameras["shutter"]
    if projection is None and evaluate == "ray":
        return functools.partial(project_outlines, camera_model=camera_model, shutter=shutter)
    rule = {
        "camera_model": camera_model, "antialiased": antialiased, "compensation_min": blend.compensation_min,
        "tile_sigmas": blend.tile_sigmas,
    }  # fmt: skip
    if projection == "ewa" or (projection is None and shutter is None):
        return functools.partial(project_gaussians, covars=splats["covars"], backend=backend, **rule)
    transform = projection if isinstance(projection, Unscented) else Unscented()
    return functools.partial(project_unscented, shutter=shutter, transform=transform, **rule)


def _colors(
    splats: dict[str, Any], cameras: dict[str, Any], projected: Projected, sh_degree: int | None, backend: Backend
) -> jax.Array:
    """[..., C or 1, N, D] the colors that the cameras see: those given, or what the harmonics say."""
    if sh_degree is None:
        return splats["colors"][..., None, :, :] if cameras["colors"] is None else cameras["colors"]
    visible = jnp.all(projected.radii > 0, axis=-1)
    directions = splats["means"][..., None, :, :] - _centres(cameras)[..., None, :]
    # One axis for the cameras, which share the coefficients.
    coeffs = jax.tree.map(lambda x: x if x.ndim == 1 else x[..., None, :, :, :], splats["colors"])
    return jnp.maximum(spherical_harmonics(sh_degree, directions, coeffs, masks=visible, backend=backend) + 0.5, 0.0)


def _along_rays(
    splats: dict[str, Any], projected: Projected, colors: jax.Array, opacities: jax.Array, rays: jax.Array,
    render_mode: RenderMode, *, backgrounds: jax.Array | None, **settings: Any,
) -> RenderOutput:  # fmt: skip
    """Blends splats evaluated along rays; depth is the distance of the hits."""
    if render_mode in ("D", "ED"):
        colors, backgrounds = jnp.zeros_like(projected.depths[..., None]), None
    means, quats, scales = (splats[name][..., None, :, :] for name in ("means", "quats", "scales"))
    out = rasterize_gaussians_world(
        means, quats, scales, opacities, colors, rays, extents=projected, backgrounds=backgrounds,
        hits=render_mode != "RGB", **settings,
    )  # fmt: skip
    image = out.colors
    if out.distances is not None:
        depth = out.distances / jnp.maximum(out.alphas, _TINY_ALPHA) if "ED" in render_mode else out.distances
        image = jnp.concatenate([image, depth], axis=-1) if "RGB" in render_mode else depth
    return RenderOutput(image, out.alphas, _info(projected, opacities, out)._replace(normals=out.normals))


def _info(projected: Projected, opacities: jax.Array, rasterized: Rasterized | RasterizedWorld) -> RenderInfo:
    visible_count = jnp.sum(jnp.all(projected.radii > 0, axis=-1), axis=-1, dtype=jnp.int32)
    counts = (rasterized.list_count, rasterized.left_out, visible_count)
    return RenderInfo(projected, opacities, rasterized.last_ids, *counts)


def _centres(cameras: dict[str, Any]) -> jax.Array:
    """[..., C, 3] where the cameras are; halfway through the read-out of a shutter."""
    start = camera_centres(cameras["viewmats"])
    return start if cameras["shutter"] is None else 0.5 * (start + camera_centres(cameras["shutter"].viewmats_end))


def _channels(colors: jax.Array, depths: jax.Array, render_mode: RenderMode) -> jax.Array:
    """[..., C, N, D] what is blended: colours, then depth, as the mode asks."""
    if render_mode == "RGB":
        return colors
    depth = depths[..., None]
    if render_mode in ("D", "ED"):
        return depth
    leading = jnp.broadcast_shapes(colors.shape[:-1], depth.shape[:-1])
    parts = [jnp.broadcast_to(c, (*leading, c.shape[-1])) for c in (colors, depth.astype(colors.dtype))]
    return jnp.concatenate(parts, axis=-1)


def _channel_backgrounds(backgrounds: jax.Array | None, render_mode: RenderMode) -> jax.Array | None:
    if backgrounds is None or render_mode in ("D", "ED"):
        return None
    if render_mode == "RGB":
        return backgrounds
    return jnp.concatenate([backgrounds, jnp.zeros_like(backgrounds[..., :1])], axis=-1)


def _check_evaluate(evaluate: str, rays: Any, **ellipse_only: Any) -> None:
    _check.choice(_NAME, "evaluate", evaluate, ("ellipse", "ray"))
    if evaluate == "ellipse" and rays is not None:
        raise ValueError(f'{_NAME}: rays are for evaluate="ray", got "ellipse".')
    given = [name for name, value in ellipse_only.items() if value is not None]
    if evaluate == "ray" and given:
        raise ValueError(f'{_NAME}: {given[0]} is for evaluate="ellipse", got "ray".')


def _check_projection(projection: Any, covars: Any, shutter: Shutter | None) -> None:
    if projection is not None and not isinstance(projection, Unscented):
        _check.choice(_NAME, "projection", projection, ("ewa", "unscented"))
    if covars is not None and (shutter is not None or projection not in (None, "ewa")):
        raise ValueError(f"{_NAME}: the unscented projection needs quats and scales, got covars.")
    if projection == "ewa" and shutter is not None:
        raise ValueError(f'{_NAME}: shutter needs projection="unscented", got "ewa".')


def _check_arguments(
    arrays: dict[str, Any], planes: dict[str, Any], masks: Any, probe: Any, rays: Any, sh_degree: int | None,
    render_mode: str, camera_chunk: int | None, height: int, width: int,
) -> int:  # fmt: skip
    """Checks shapes and settings, and returns how many axes the images have, cameras included."""
    _check.choice(_NAME, "render_mode", render_mode, ("RGB", "D", "ED", "RGB+D", "RGB+ED"))
    if camera_chunk is not None:
        _check.positive_int(_NAME, camera_chunk=camera_chunk)
    colors = arrays["colors"]
    specs = {
        "means": (arrays["means"], "... N 3"),
        "quats": (arrays["quats"], "... N 4"),
        "scales": (arrays["scales"], "... N 3"),
        "opacities": (arrays["opacities"], "... N"),
        "viewmats": (arrays["viewmats"], "... C 4 4"),
        "Ks": (arrays["Ks"], "... C 3 3"),
        "depth_limit": (arrays["depth_limit"], f"... C {height} {width}"),
        "masks": (masks, "... C Y X"),
        "rays": (rays, f"... C {height} {width} 6"),
        **({} if probe is None else {"probe.grad": (probe.grad, "... C N 2")}),
    }
    if sh_degree is not None:
        num_sh_coeffs(sh_degree)
        check_coeffs(_NAME, sh_degree, {"means": specs["means"]}, colors=colors)
        specs["colors"] = (colors.dc if isinstance(colors, SHCoeffs) else colors, "... N K D")
    elif isinstance(colors, SHCoeffs):
        raise ValueError(f"{_NAME}: sh_degree must be given with colors of type SHCoeffs, got None.")
    else:
        specs["colors"] = (colors, "... C N D" if colors.ndim > arrays["means"].ndim else "... N D")
        _check.floating(_NAME, colors=colors)
    # The colors before the cameras: of two that disagree, the message names the later one.
    order = ("means", "quats", "scales", "opacities", "colors", *specs)
    leading = _check.shapes(_NAME, **{name: specs[name] for name in dict.fromkeys(order)})["..."]
    backgrounds, image_axes = arrays["backgrounds"], max(len(leading) + 1, *(p.ndim for p in planes.values()))
    if backgrounds is not None:
        own = f"... C {height} {width} D" if per_pixel(backgrounds, image_axes) else "... C D"
        shared = {name: specs[name] for name in ("colors", "viewmats")}
        _check.shapes(_NAME, **shared, backgrounds=(backgrounds, own))
    _check.floating(_NAME, **{name: array for name, array in arrays.items() if name != "colors"})
    return image_axes
