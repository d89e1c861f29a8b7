"""Soft silhouettes of triangle meshes, in no more memory than the picture takes."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsplat import _backend, _check, _ffi
from jaxsplat import _constants as const
from jaxsplat._index import sum_to
from jaxsplat.rasterize.meshes import RANKS, mesh_operands, rasterize_meshes
from jaxsplat.shading import soft_silhouette
from jaxsplat.types import Backend, Convention

_NAME = "rasterize_silhouettes"


def rasterize_silhouettes(
    verts: jax.Array,
    faces: jax.Array | None,
    *,
    width: int,
    height: int,
    sigma: jax.Array | float,
    blur_radius: jax.Array | float,
    cull_backfaces: bool = False,
    near_plane: jax.Array | float = 0.0,
    far_plane: jax.Array | float = const.FAR,
    first_faces: jax.Array | None = None,
    face_counts: jax.Array | None = None,
    clipped_faces_neighbor_idx: jax.Array | None = None,
    convention: Convention = "opencv",
    bin_size: int = const.TILE_SIZE,
    backend: Backend = "auto",
) -> jax.Array:
    """Computes how far each pixel is covered: 1 - product (1 - sigmoid(-dist / sigma)) over all faces (SoftRas).

    That is `soft_silhouette` of `rasterize_meshes` with as many faces per pixel as there are, but the faces stream by
    and none is kept. Gradients reach `verts`, in reverse mode; depths have none, as they do not matter.

    Args:
      verts: [..., V, 3] as `rasterize_meshes` takes them; without `faces`, [..., F, 3, 3].
      faces: [..., F, 3] integers, or None.
      width: image width in pixels.
      height: image height in pixels.
      sigma: softness, in the units of `blur_radius`, a scalar or [...]. No gradient.
      blur_radius: squared distance on the screen up to which a face counts, for example `sigma * log(1e4 - 1)`, where
        its coverage falls below 1e-4.
      cull_backfaces: as in `rasterize_meshes`.
      near_plane: as in `rasterize_meshes`.
      far_plane: as in `rasterize_meshes`.
      first_faces: as in `rasterize_meshes`.
      face_counts: as in `rasterize_meshes`.
      clipped_faces_neighbor_idx: as in `rasterize_meshes`.
      convention: as in `rasterize_meshes`.
      bin_size: as in `rasterize_meshes`.
      backend: as in `rasterize_meshes`.

    Returns:
      [..., H, W] from 0 to 1.

    Raises:
      ValueError: for shapes or settings that do not fit.
      TypeError: for arrays of a wrong type.

    Example:
      >>> rasterize_silhouettes(screen_verts, faces, width=64, height=48, sigma=0.5, blur_radius=4.6).shape
      (48, 64)
    """
    verts = jnp.asarray(verts)
    _check.shapes(_NAME, sigma=(sigma, "..."))
    shared: dict[str, Any] = {
        "width": width, "height": height, "blur_radius": blur_radius, "near_plane": near_plane,
        "far_plane": far_plane, "first_faces": first_faces, "face_counts": face_counts,
        "clipped_faces_neighbor_idx": clipped_faces_neighbor_idx, "convention": convention, "bin_size": bin_size,
    }  # fmt: skip
    if _backend.resolve(_NAME, backend, verts=verts) == "reference":
        fragments = rasterize_meshes(
            verts, faces, faces_per_pixel=max(verts.shape[-3] if faces is None else faces.shape[-2], 1),
            clip_barycentric_coords=True, cull_backfaces=cull_backfaces, backend="reference", **shared,
        )  # fmt: skip
        each = jnp.asarray(sigma, verts.dtype)
        return soft_silhouette(fragments, sigma=lax.stop_gradient(each.reshape(*each.shape, 1, 1, 1)))
    operands = mesh_operands(_NAME, verts, faces, **shared)
    operands = [operands[0].astype(jnp.float32), *operands[1:], lax.stop_gradient(jnp.asarray(sigma, jnp.float32))]
    settings = _Settings(width, height, cull_backfaces, bin_size)
    transmittances: Any = _rasterize(settings, tuple(_ffi.vary_alike(operands)))
    return 1 - transmittances


class _Settings(NamedTuple):
    width: int
    height: int
    cull_backfaces: bool
    bin_size: int

    def attributes(self) -> dict[str, Any]:
        return {"tile_size": self.bin_size, "cull_backfaces": self.cull_backfaces}


_RANKS = (*RANKS, 0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rasterize(settings: _Settings, operands: tuple[jax.Array, ...]) -> jax.Array:
    """[..., H, W] the part that is not covered."""
    results = [((settings.height, settings.width), jnp.float32)]
    return _ffi.call(f"{_NAME}_forward", operands, _RANKS, results, **settings.attributes())[0]


def _forward(settings: _Settings, operands: tuple[jax.Array, ...]) -> tuple[jax.Array, tuple[Any, ...]]:
    transmittances: Any = _rasterize(settings, operands)
    return transmittances, (operands, transmittances)


def _backward(settings: _Settings, residuals: tuple[Any, ...], cotangent: jax.Array) -> tuple[tuple[Any, ...]]:
    operands, transmittances = residuals
    results = [(operands[0].shape[-2:], jnp.float32)]
    (v_face_verts,) = _ffi.call(
        f"{_NAME}_backward", (*operands, transmittances, cotangent), (*_RANKS, 2, 2), results, **settings.attributes()
    )
    rest = [
        jnp.zeros_like(o) if jnp.issubdtype(o.dtype, jnp.floating) else np.zeros(o.shape, jax.dtypes.float0)
        for o in operands[1:]
    ]
    return ((sum_to(v_face_verts, operands[0].shape), *rest),)


_rasterize.defvjp(_forward, _backward)
