"""Tile intersection: knows integers and extents, no primitive."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsplat import _backend, _check, _constants, _ffi, reference_tiles
from jaxsplat.types import Backend, TileIntersections

_NAME = "intersect_tiles"


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
    tile_size: int = _constants.TILE_SIZE,
    sort: bool = True,
    alpha_min: float = _constants.ALPHA_MIN,
    backend: Backend = "auto",
) -> TileIntersections:
    """Finds the splats that touch each tile of an image, nearest first.

    With conics and opacities, exactly: a splat touches a tile where the ellipse alpha >= alpha_min meets the tile's
    pixel centres. Without, the box means2d +- radii decides. Integers have no gradient.

    Args:
      means2d: [..., N, 2] centres in pixels.
      radii: [..., N, 2] (or [..., N]: the same for both axes) int32 half sizes in pixels; zero to leave a splat out.
      depths: [..., N] order within a tile, ties by index.
      width: image width in pixels.
      height: image height in pixels.
      capacity: room for this many intersections per image. It is never exceeded quietly: compare `count`;
        `rasterize_gaussians_3d` refuses incomplete lists.
      conics: [..., N, 3] upper triangle of the inverse 2D covariance.
      opacities: [..., N].
      tile_size: side of a tile in pixels, a multiple of 4 up to 32.
      sort: order each list by depth; otherwise by index.
      alpha_min: a splat reaches as far as its alpha is at least this.
      backend: "auto", "native" or "reference".

    Returns:
      Ids, offsets, tiles per splat, and the true count.

    Raises:
      ValueError: for shapes or settings that do not fit.
      TypeError: for arrays of a wrong type.

    Example:
      >>> tiles = intersect_tiles(means2d, radii, depths, width=640, height=480, capacity=100_000)
      >>> tiles.tile_offsets.shape
      (1201,)
    """
    means2d, radii, depths = jnp.asarray(means2d), jnp.asarray(radii), jnp.asarray(depths)
    _check.positive_int(_NAME, capacity=capacity)
    _check.grid(_NAME, tile_size, width=width, height=height)
    if (conics is None) != (opacities is None):
        raise ValueError(f"{_NAME}: exact extents need both conics and opacities; give both or neither.")
    if radii.ndim == means2d.ndim - 1:
        radii = jnp.stack([radii, radii], axis=-1)
    axes = _check.shapes(
        _NAME,
        means2d=(means2d, "... N 2"),
        radii=(radii, "... N 2"),
        depths=(depths, "... N"),
        conics=(conics, "... N 3"),
        opacities=(opacities, "... N"),
    )
    _check.floating(_NAME, means2d=means2d, depths=depths, conics=conics, opacities=opacities)
    _check.kind(_NAME, jnp.integer, radii=radii)
    if _backend.resolve(_NAME, backend, means2d=means2d, depths=depths, conics=conics) == "reference":
        return reference_tiles.intersect_tiles(
            means2d, radii, depths, conics=conics, opacities=opacities, width=width, height=height,
            tile_size=tile_size, capacity=capacity, sort=sort, alpha_min=alpha_min,
        )  # fmt: skip
    n = axes["N"]
    # What is not given is passed as an empty array.
    operands = [
        jax.lax.stop_gradient(a)
        for a in (
            means2d.astype(jnp.float32),
            radii.astype(jnp.int32),
            depths.astype(jnp.float32) if sort else jnp.zeros(0, jnp.float32),
            jnp.zeros((0, 3), jnp.float32) if conics is None else conics.astype(jnp.float32),
            jnp.zeros(0, jnp.float32) if opacities is None else opacities.astype(jnp.float32),
        )
    ]
    tiles = -(-height // tile_size) * -(-width // tile_size)
    results = [((capacity,), jnp.int32), ((tiles + 1,), jnp.int32), ((n,), jnp.int32), ((), jnp.int32)]
    settings = {"width": width, "height": height, "tile_size": tile_size, "alpha_min": float(alpha_min)}
    return TileIntersections(*_ffi.call(_NAME, _ffi.vary_alike(operands), (2, 2, 1, 2, 1), results, **settings))
