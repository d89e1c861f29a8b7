"""Rasterization of projected 3D Gaussians."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import _backend, _check, _constants, _ffi, _linalg, _validate, reference, reference_tiles
from jaxsplat._index import sum_to
from jaxsplat.types import Backend, Blend, ScreenProbe, TileAssignment, TileIntersections

_NAME = "rasterize_gaussians_3d"


class Rasterized(NamedTuple):
    """Pictures of projected splats.

    Attributes:
      colors: [..., H, W, D] blended channels, background included.
      alphas: [..., H, W, 1] accumulated opacity.
      last_ids: [..., H, W] int32, index of the last splat blended at each pixel, -1 for none.
      left_out: [...] int32, the number of entries of tile lists beyond `max_list_entries`, which are not blended.
      list_count: [...] int32, the number of tile intersections, also of those that a limit left out.
    """

    colors: jax.Array
    alphas: jax.Array
    last_ids: jax.Array
    left_out: jax.Array
    list_count: jax.Array


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
    tile_size: int = _constants.TILE_SIZE,
    blend: Blend = Blend(),  # noqa: B008 (frozen)
    probe: ScreenProbe | None = None,
    tile_assignment: TileAssignment = "ellipse",
    max_intersections: int | None = None,
    max_list_entries: int | None = None,
    backend: Backend = "auto",
    validate: bool = False,
) -> Rasterized:
    """Blends projected Gaussians front to back (Kerbl et al. 2023).

    alpha = min(alpha_max, opacity exp(-sigma)) with sigma = (a dx^2 + c dy^2) / 2 + b dx dy for the conic (a, b, c),
    and color = sum color alpha T + T background with the transmittance T. The leading axes are images; those of the
    arguments broadcast, and a shared argument is not copied. Gradients reach every float argument but `depths` and
    `depth_limit`, which only decide what comes first and what is hidden. Values and gradients have the same bits in
    every run, whatever the number of threads.

    Args:
      means2d: [..., N, 2] centres in pixels.
      conics: [..., N, 3] upper triangle of the inverse 2D covariance, in 1 / pixel^2. A splat whose conic is not
        positive definite, or not finite, is not drawn.
      colors: [..., N, D] any number of channels. A splat with a color that is not finite is not drawn.
      opacities: [..., N] in [0, 1].
      width: image width in pixels.
      height: image height in pixels.
      depths: [..., N] nearer splats are blended first, ties by index. Needed unless `tiles` is given, and with
        `depth_limit`.
      radii: [..., N, 2] int32, zero where a splat is culled. Needed unless `tiles` is given.
      tiles: lists made by `intersect_tiles` with the same `tile_size`, in place of `depths` and `radii`.
      backgrounds: [..., D] color behind everything; or, where it has more axes than the images and D, [..., H, W, D]
        the color behind each pixel. 0 by default.
      depth_limit: [..., H, W] a pixel shows the splats that are nearer than this; `inf` for no limit. A hard cut: its
        gradient is zero, as the picture stays the same until the limit crosses the depth of a splat, and jumps there.
      masks: [..., ceil(H / tile_size), ceil(W / tile_size)] bool; a tile that is False shows the background.
      tile_size: side of a tile in pixels, a multiple of 4 up to 32.
      blend: the blend rule.
      probe: zeros [..., N, 2] whose gradients are screen-space statistics.
      tile_assignment: which tiles a splat is tried in: "ellipse", those that it can reach; "box", those that the box
        means2d +- radii meets. The picture is the same where the box holds the ellipse, as that of a projection does.
      max_intersections: capacity of the tile lists of each image; None for no limit. On a CUDA device it makes the call
        one without a synchronisation of the host, in memory that is set aside when the program is compiled, so that XLA
        may record it in a CUDA graph. Where `list_count` exceeds it, picture and gradients are those of the nearest
        splats whose intersections fit; those behind them, all of their pixels, are left out. Else nothing changes.
      max_list_entries: most splats that are tried in one tile, the nearest; None for no limit. `left_out` says how many
        entries lie beyond. Not for CUDA devices, nor is "box".
      backend: "auto", "native" or "reference".
      validate: also check values: ids, offsets, finite inputs. Under `jit` this needs `checkify`.

    Returns:
      Colors, alphas and the last splat of each pixel.

    Raises:
      ValueError: for shapes or settings that do not fit.
      TypeError: for arrays of a wrong type.
      jax.errors.JaxRuntimeError: (or ValueError, outside `jit`) when run, if `tiles` is incomplete or holds ids out of
        range, or if one image has more than 2^31 - 1 tile intersections; the message says how many.

    Example:
      >>> out = rasterize_gaussians_3d(means2d, conics, colors, opacities, depths=depths, radii=radii,
      ...                              width=640, height=480)
      >>> out.colors.shape
      (480, 640, 3)
    """
    means2d, conics, colors, opacities = (jnp.asarray(a) for a in (means2d, conics, colors, opacities))
    check_arguments(
        _NAME, means2d, conics, colors, opacities, depths, radii, tiles, backgrounds, depth_limit, masks, probe, width,
        height, tile_size, blend,
    )  # fmt: skip
    settings = Settings(width, height, tile_size, blend, tile_assignment, max_intersections, max_list_entries)
    settings.check(_NAME, tiles)
    if validate:
        _validate.finite(_NAME, means2d=means2d, conics=conics, colors=colors, opacities=opacities)
        if tiles is not None:
            _validate.tile_lists(_NAME, tiles, means2d.shape[-2])
    chosen = _backend.resolve(_NAME, backend, means2d=means2d, conics=conics, colors=colors, opacities=opacities)
    if probe is not None:
        means2d = means2d + probe.grad.astype(means2d.dtype)
    if chosen == "reference":
        found = reference_lists(settings, means2d, conics, opacities, depths, radii, tiles)
        blended, transmittances, last_ids = reference.rasterize_gaussians_3d(
            means2d, conics, colors, opacities, depths=depths, radii=found.radii, tiles=found.tiles, masks=masks,
            depth_limit=depth_limit, width=width, height=height, tile_size=tile_size, blend=blend,
            absgrad=None if probe is None else probe.absgrad,
        )  # fmt: skip
        counts = [jnp.broadcast_to(x, transmittances.shape[:-2]) for x in (found.left_out, found.list_count)]
    else:
        blended, transmittances, last_ids, *counts = _native(
            operands_of(means2d, conics, colors, opacities, depths, depth_limit, radii, tiles, masks),
            probe,
            settings,
        )
    blended = over_backgrounds(blended, transmittances, backgrounds)
    return Rasterized(blended, 1 - transmittances[..., None], last_ids, *counts)


class Settings(NamedTuple):
    """What the kernels take as attributes, beside the size of the picture."""

    width: int
    height: int
    tile_size: int
    blend: Blend
    tile_assignment: TileAssignment = "ellipse"
    max_intersections: int | None = None
    max_list_entries: int | None = None

    def check(self, name: str, tiles: TileIntersections | None) -> None:
        """Raises unless the options of lists make sense, and are for lists that the rasterizer finds by itself."""
        _check.choice(name, "tile_assignment", self.tile_assignment, ("ellipse", "box"))
        limits = {"max_intersections": self.max_intersections, "max_list_entries": self.max_list_entries}
        limits = {option: value for option, value in limits.items() if value is not None}
        _check.positive_int(name, **limits)
        given = [*limits, *(["tile_assignment"] if self.tile_assignment != "ellipse" else [])]
        if given and tiles is not None:
            raise ValueError(f"{name}: {given[0]} is for lists that are found here, but tiles is given.")

    def lists(self) -> dict[str, Any]:
        """What `reference_tiles.find_lists` takes."""
        return {
            "width": self.width, "height": self.height, "tile_size": self.tile_size, "alpha_min": self.blend.alpha_min,
            "boxes": self.tile_assignment == "box", "max_intersections": self.max_intersections,
            "max_list_entries": self.max_list_entries,
        }  # fmt: skip

    def call(
        self,
        target: str,
        operands: Any,
        ranks: Any,
        results: Any,
        *,
        size: int,
        channels: int,
        **attributes: bool | float,
    ) -> list[jax.Array]:
        """Calls a kernel, or its form for tile lists of a fixed capacity.

        Args:
          target: name of the kernel.
          operands: arrays.
          ranks: number of own axes of each operand.
          results: (own shape, dtype) of each result.
          size: number of splats.
          channels: of the colors.
          **attributes: what is not among these settings.

        Returns:
          The results.
        """
        capacity = self.max_intersections
        bytes_of = functools.partial(
            _ffi.workspace_bytes, size=size, channels=channels, width=self.width, height=self.height,
            tile_size=self.tile_size, capacity=capacity or 0, backward=target.endswith("backward"),
            rays="world" in target,
        )  # fmt: skip
        return _ffi.call(
            target if capacity is None else f"{target}_static", operands, ranks, results,
            workspace=bytes_of if capacity is not None else lambda _: 0, **self.attributes(), **attributes,
        )  # fmt: skip

    def attributes(self) -> dict[str, Any]:
        """Attributes that every kernel takes."""
        return {
            "tile_size": self.tile_size,
            "alpha_max": float(self.blend.alpha_max),
            "alpha_min": float(self.blend.alpha_min),
            "transmittance_min": float(self.blend.transmittance_min),
            "blend_last": bool(self.blend.blend_last),
            "max_contributors": int(self.blend.max_contributors),
            "max_intersections": self.max_intersections or 0,
            "boxes": self.tile_assignment == "box",
            "max_list_entries": self.max_list_entries or 0,
        }


# Number of own axes of the operands of the kernel: means2d, conics, colors, opacities, depths, depth_limit, radii,
# masks, gaussian_ids, tile_offsets, count. What is not given is passed as an empty array.
RANKS: tuple[int, ...] = (2, 2, 2, 1, 1, 2, 2, 2, 1, 1, 0)


def operands_of(
    means2d: jax.Array,
    conics: jax.Array,
    colors: jax.Array,
    opacities: jax.Array,
    depths: jax.Array | None,
    depth_limit: jax.Array | None,
    radii: jax.Array | None,
    tiles: TileIntersections | None,
    masks: jax.Array | None,
) -> list[jax.Array]:
    """What the kernels take."""
    empty = jnp.zeros((0,), jnp.int32)
    return [
        *(a.astype(jnp.float32) for a in (means2d, conics, colors, opacities)),
        jnp.zeros((0,), jnp.float32) if depths is None else depths.astype(jnp.float32),
        jnp.zeros((0, 0), jnp.float32) if depth_limit is None else depth_limit.astype(jnp.float32),
        jnp.zeros((0, 2), jnp.int32) if radii is None else radii.astype(jnp.int32),
        jnp.ones((1, 1), jnp.bool_) if masks is None else masks,
        *((empty, empty, jnp.int32(0)) if tiles is None else (tiles.gaussian_ids, tiles.tile_offsets, tiles.count)),
    ]


def _native(operands: list[jax.Array], probe: ScreenProbe | None, settings: Settings) -> tuple[jax.Array, ...]:
    absgrad = None if probe is None or probe.absgrad is None else probe.absgrad.astype(jnp.float32)
    *operands, absgrad = _ffi.vary_alike([*operands, absgrad])
    return _rasterize(settings, tuple(operands), absgrad)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rasterize(settings: Settings, operands: tuple[jax.Array, ...], absgrad: jax.Array | None) -> tuple[jax.Array, ...]:
    del absgrad  # only the backward pass has something to say to it
    return _blend(settings, operands, keep=False)


def _blend(settings: Settings, operands: tuple[jax.Array, ...], *, keep: bool) -> tuple[jax.Array, ...]:
    """Calls the forward kernel; with `keep` it keeps its tile lists for the backward pass."""
    pixels = (settings.height, settings.width)
    n, channels = operands[2].shape[-2:]
    results = [((*pixels, channels), jnp.float32), (pixels, jnp.float32), (pixels, jnp.int32)]
    results += [((), jnp.int32)] * 2  # left out, and all entries
    return tuple(settings.call(f"{_NAME}_forward", operands, RANKS, results, size=n, channels=channels, keep=keep))


def _forward(
    settings: Settings, operands: tuple[jax.Array, ...], absgrad: jax.Array | None
) -> tuple[tuple[jax.Array, ...], tuple[Any, ...]]:
    outputs = _blend(settings, operands, keep=True)
    return outputs, (operands, absgrad, *outputs[:2])


def _backward(
    settings: Settings, residuals: tuple[Any, ...], cotangents: tuple[jax.Array, ...]
) -> tuple[tuple[Any, ...], jax.Array | None]:
    operands, absgrad, picture, transmittances = residuals
    v_picture, v_transmittances, *_ = cotangents
    n, channels = operands[2].shape[-2:]
    results = [((n, 2), jnp.float32), ((n, 3), jnp.float32), ((n, channels), jnp.float32), ((n,), jnp.float32)]
    results.append((((n, 2) if absgrad is not None else (0, 2)), jnp.float32))
    *gradients, v_absgrad = settings.call(
        f"{_NAME}_backward",
        (*operands, picture, transmittances, v_picture, v_transmittances),
        (*RANKS, 3, 2, 3, 2),
        results,
        size=n,
        channels=channels,
        alpha_gradient_max=float(settings.blend.alpha_gradient_max),
    )
    floats = [sum_to(g, o.shape) for g, o in zip(gradients, operands, strict=False)]
    decide = [jnp.zeros_like(o) for o in operands[4:6]]  # depths and their limit
    v_operands = (*floats, *decide, *(np.zeros(o.shape, jax.dtypes.float0) for o in operands[6:]))
    return v_operands, None if absgrad is None else sum_to(v_absgrad, absgrad.shape)


_rasterize.defvjp(_forward, _backward)


def over_backgrounds(blended: jax.Array, transmittances: jax.Array, backgrounds: jax.Array | None) -> jax.Array:
    """What was blended, in front of the backgrounds."""
    if backgrounds is None:
        return blended
    if not per_pixel(backgrounds, blended.ndim - 3):
        backgrounds = backgrounds[..., None, None, :]
    return blended + transmittances[..., None] * _linalg.lift(backgrounds, blended.ndim)


def per_pixel(backgrounds: jax.Array, image_axes: int) -> bool:
    """Whether the backgrounds of images with so many axes are [..., H, W, D] and not [..., D]."""
    return backgrounds.ndim > image_axes + 1


def check_backgrounds(
    name: str, backgrounds: jax.Array | None, colors: jax.Array, image_axes: int, width: int, height: int
) -> None:
    """Raises unless the backgrounds, of images or of pixels, fit the colors."""
    if backgrounds is not None:
        own = f"... {height} {width} D" if per_pixel(backgrounds, image_axes) else "... D"
        _check.shapes(name, colors=(colors, "... N D"), backgrounds=(backgrounds, own))


def reference_lists(
    settings: Settings, means2d: Any, conics: Any, opacities: Any, depths: Any, radii: Any,
    tiles: TileIntersections | None,
) -> reference_tiles.FoundLists:  # fmt: skip
    """The lists that the reference draws: those given, or what it finds."""
    if tiles is not None:
        return reference_tiles.FoundLists(radii, tiles, tiles.count, jnp.zeros_like(tiles.count))
    return reference_tiles.find_lists(means2d, conics, opacities, depths, radii, **settings.lists())


def list_specs(
    tiles: TileIntersections | None, masks: jax.Array | None, width: int, height: int, tile_size: int
) -> dict[str, tuple[Any, str]]:
    """Shapes that lists and masks of tiles must have, for `_check.shapes`."""
    tiles_y, tiles_x = -(-height // tile_size), -(-width // tile_size)
    specs = {"masks": (masks, f"... {tiles_y} {tiles_x}")}
    if tiles is not None:
        specs["tiles.gaussian_ids"] = (tiles.gaussian_ids, "... M")
        specs["tiles.tile_offsets"] = (tiles.tile_offsets, f"... {tiles_y * tiles_x + 1}")
        specs["tiles.count"] = (tiles.count, "...")
    return specs


def check_arguments(
    name, means2d, conics, colors, opacities, depths, radii, tiles, backgrounds, depth_limit, masks, probe, width,
    height, tile_size, blend,
) -> None:  # fmt: skip
    """Raises unless the arguments of a function of that name fit."""
    _check.grid(name, tile_size, width=width, height=height)
    if tiles is None and (depths is None or radii is None):
        raise ValueError(f"{name}: give depths and radii, or tiles.")
    if tiles is not None and (radii is not None or (depths is not None and depth_limit is None)):
        raise ValueError(f"{name}: tiles replaces depths and radii; give one or the other.")
    if depth_limit is not None and depths is None:
        raise ValueError(f"{name}: depth_limit needs depths, also where tiles is given.")
    sizes = _check.shapes(
        name,
        means2d=(means2d, "... N 2"),
        conics=(conics, "... N 3"),
        colors=(colors, "... N D"),
        opacities=(opacities, "... N"),
        depths=(depths, "... N"),
        radii=(radii, "... N 2"),
        depth_limit=(depth_limit, f"... {height} {width}"),
        **list_specs(tiles, masks, width, height, tile_size),
        **(
            {}
            if probe is None
            else {"probe.grad": (probe.grad, "... N 2"), "probe.absgrad": (probe.absgrad, "... N 2")}
        ),
    )
    check_backgrounds(name, backgrounds, colors, len(sizes["..."]), width, height)
    _check.floating(
        name,
        means2d=means2d,
        conics=conics,
        colors=colors,
        opacities=opacities,
        depths=depths,
        backgrounds=backgrounds,
        depth_limit=depth_limit,
    )
    _check.kind(name, jnp.integer, radii=radii)
    _check.kind(name, jnp.bool_, masks=masks)
    if colors.shape[-1] < 1:
        raise ValueError(f"{name}: colors must have at least one channel, got {list(colors.shape)}.")
    _check.blend(name, blend)
