"""Rasterization of triangle meshes: the nearest faces of each pixel."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxsplat import _backend, _check, _ffi, _linear, reference_meshes
from jaxsplat import _constants as const
from jaxsplat import _triangles as triangles
from jaxsplat._index import flat_index
from jaxsplat.types import Backend, Convention, Fragments

_NAME = "rasterize_meshes"


def rasterize_meshes(
    verts: jax.Array,
    faces: jax.Array | None,
    *,
    width: int,
    height: int,
    faces_per_pixel: int = 1,
    blur_radius: jax.Array | float = 0.0,
    perspective_correct: bool = True,
    clip_barycentric_coords: bool = False,
    cull_backfaces: bool = False,
    near_plane: jax.Array | float = 0.0,
    far_plane: jax.Array | float = const.FAR,
    first_faces: jax.Array | None = None,
    face_counts: jax.Array | None = None,
    clipped_faces_neighbor_idx: jax.Array | None = None,
    convention: Convention = "opencv",
    bin_size: int = const.TILE_SIZE,
    backend: Backend = "auto",
) -> Fragments:
    """Finds the `faces_per_pixel` nearest faces of every pixel, by (depth, index), as PyTorch3D's function does.

    A face is seen where it covers the pixel's centre, or comes nearer to it than the square root of `blur_radius`. Of
    two faces that share an edge, exactly one covers a centre on it. Faces are bucketed exactly, by threads, and none
    is ever left out for want of room. Not drawn are faces without area and those with a corner that is not finite or
    not in front of the camera (depth below 1e-8): `clip_faces` cuts those.

    Depths, coordinates and distances have derivatives to `verts` of any order, forward and reverse, computed anew from
    `pix_to_face`. Which faces are seen is not differentiated.

    Args:
      verts: [..., V, 3] x and y on the screen and depth, as `project_meshes` returns them; without `faces`,
        [..., F, 3, 3] the corners of each face.
      faces: [..., F, 3] integers, corners of each face, or None.
      width: image width in pixels.
      height: image height in pixels.
      faces_per_pixel: K.
      blur_radius: squared distance on the screen, in the units of `dists`, a scalar or [...].
      perspective_correct: whether coordinates are those in space instead of those on the screen.
      clip_barycentric_coords: whether coordinates outside the face are moved to its outline.
      cull_backfaces: whether faces that turn clockwise on the screen as seen with y down, their back, are left out.
      near_plane: least depth that is drawn, a scalar or [...], in world units.
      far_plane: largest depth that is drawn, a scalar or [...].
      first_faces: [...] integers, where the mesh of each image begins among the faces (0 by default). With
        `face_counts` this draws many meshes packed into one list; `pix_to_face` counts from the list's beginning.
      face_counts: [...] integers, number of faces of each image's mesh, where the list is longer.
      clipped_faces_neighbor_idx: [..., F] integers; the other half of a face that was cut in two, or -1. A pixel that
        sees both halves keeps that with the lesser signed distance.
      convention: "opencv": pixels, +x right, +y down; "pytorch3d": NDC, +x left, +y up, the shorter side from -1 to 1.
      bin_size: side of a tile in pixels, a multiple of 4 up to 32. It does not change the result.
      backend: "auto", "native", or "reference": plain JAX, any device and precision, slow.

    Returns:
      `Fragments`.

    Raises:
      ValueError: for shapes or settings that do not fit.
      TypeError: for arrays of a wrong type.

    Example:
      >>> verts = jnp.array([[2.0, 1.0, 5.0], [30.0, 3.0, 5.0], [4.0, 20.0, 5.0]])
      >>> rasterize_meshes(verts, jnp.array([[0, 1, 2]]), width=32, height=24).pix_to_face[5, 8]
      Array([0], dtype=int32)
    """
    verts = jnp.asarray(verts)
    _check.positive_int(_NAME, faces_per_pixel=faces_per_pixel)
    operands = mesh_operands(
        _NAME, verts, faces, width=width, height=height, blur_radius=blur_radius, near_plane=near_plane,
        far_plane=far_plane, first_faces=first_faces, face_counts=face_counts,
        clipped_faces_neighbor_idx=clipped_faces_neighbor_idx, convention=convention, bin_size=bin_size,
    )  # fmt: skip
    settings = _Settings(faces_per_pixel, perspective_correct, clip_barycentric_coords, cull_backfaces, bin_size)
    if _backend.resolve(_NAME, backend, verts=verts) == "reference":
        return _reference(settings, operands)
    return Fragments(*_rasterize(settings, *_ffi.vary_alike(operands)))


def mesh_operands(
    function: str,
    verts: jax.Array,
    faces: jax.Array | None,
    *,
    width: int,
    height: int,
    blur_radius: jax.Array | float,
    near_plane: jax.Array | float,
    far_plane: jax.Array | float,
    first_faces: jax.Array | None,
    face_counts: jax.Array | None,
    clipped_faces_neighbor_idx: jax.Array | None,
    convention: Convention,
    bin_size: int,
) -> list[jax.Array]:
    """Checks the arguments and returns the operands that all kernels share, whose own axes `RANKS` tells.

    The precision is that of `verts`, but at least float32.
    """
    _check_arguments(
        function, verts, faces, first_faces, face_counts, clipped_faces_neighbor_idx, blur_radius, near_plane, far_plane
    )
    _check.grid(function, bin_size, name="bin_size", width=width, height=height)
    _check.choice(function, "convention", convention, ("opencv", "pytorch3d"))
    face_verts = corners(verts, faces).reshape(*_leading(verts, faces), -1, 9)
    face_verts = face_verts.astype(jnp.promote_types(face_verts.dtype, jnp.float32))
    xs, ys = pixel_centres(width, height, convention, face_verts.dtype)
    count, neighbors = face_verts.shape[-2], clipped_faces_neighbor_idx
    return [
        face_verts,
        jnp.int32(0) if first_faces is None else jnp.asarray(first_faces, jnp.int32),
        jnp.int32(count) if face_counts is None else jnp.asarray(face_counts, jnp.int32),
        jnp.zeros((0,), jnp.int32) if neighbors is None else jnp.asarray(neighbors, jnp.int32),
        limits_of(blur_radius, near_plane, far_plane, dtype=face_verts.dtype),
        xs,
        ys,
    ]


def corners(verts: jax.Array, faces: jax.Array | None) -> jax.Array:
    """Gathers the corners of each face: [..., F, 3, 3]. An index out of range gives NaN, and so a face not drawn."""
    if faces is None:
        return verts
    leading, count = _leading(verts, faces), verts.shape[-2]
    table, index = flat_index(verts, faces, leading, 2)
    # The offset of the batch would turn an index that is out of range into a vertex of another mesh.
    index = jnp.where(jnp.broadcast_to((faces >= 0) & (faces < count), index.shape), index, len(table))
    return table.at[index].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


def pixel_centres(width: int, height: int, convention: Convention, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Screen coordinates of the centres of columns [W] and rows [H]."""
    if convention == "opencv":
        return jnp.arange(width, dtype=dtype) + 0.5, jnp.arange(height, dtype=dtype) + 0.5
    return _ndc_centres(width, height, dtype), _ndc_centres(height, width, dtype)


def _ndc_centres(size: int, other: int, dtype: Any) -> jax.Array:
    # By numpy, which rounds a division as PyTorch3D does: faces that share an edge have almost equal depths there.
    kind = np.dtype(dtype).type
    extent = kind(2.0 * max(size / other, 1.0))
    offset = extent / kind(2)
    # Column 0 is at the largest coordinate.
    index = np.arange(size - 1, -1, -1, dtype=kind)
    return jnp.asarray(-offset + (extent * index + offset) / kind(size))


def limits_of(blur_radius: Any, near_plane: Any, far_plane: Any, *, dtype: Any) -> jax.Array:
    """[..., 3] blur radius, near and far plane, which decide and have no gradient."""
    parts = [jnp.asarray(x, dtype) for x in (blur_radius, near_plane, far_plane)]
    shape = jnp.broadcast_shapes(*(x.shape for x in parts))
    return lax.stop_gradient(jnp.stack([jnp.broadcast_to(x, shape) for x in parts], -1))


class _Settings(NamedTuple):
    faces_per_pixel: int
    perspective_correct: bool
    clip_barycentric_coords: bool
    cull_backfaces: bool
    bin_size: int


# Own axes of face_verts, first_faces, face_counts, neighbors, limits, xs, ys.
RANKS = (2, 0, 0, 1, 1, 1, 1)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _rasterize(settings: _Settings, *operands: jax.Array) -> tuple[jax.Array, ...]:
    shape = (operands[6].shape[-1], operands[5].shape[-1], settings.faces_per_pixel)
    results = [(shape, jnp.int32), (shape, jnp.float32), ((*shape, 3), jnp.float32), (shape, jnp.float32)]
    return tuple(
        _ffi.call(
            f"{_NAME}_forward",
            operands,
            RANKS,
            results,
            tile_size=settings.bin_size,
            perspective_correct=settings.perspective_correct,
            clip_barycentric_coords=settings.clip_barycentric_coords,
            cull_backfaces=settings.cull_backfaces,
        )
    )


@_rasterize.defjvp
def _rasterize_jvp(
    settings: _Settings, primals: tuple[jax.Array, ...], tangents: tuple[Any, ...]
) -> tuple[tuple[jax.Array, ...], tuple[Any, ...]]:
    """The kernel finds the faces; what they say at each pixel is differentiated in JAX, and transposed by a kernel."""
    outputs: Any = _rasterize(settings, *primals)
    pix_to_face, dists = outputs[0], outputs[3]
    table, index = _slots(primals[0], pix_to_face)
    operands = [table, index, dists.reshape(index.shape), primals[5], primals[6]]
    v_table = tangents[0].reshape(table.shape)
    v_depths, v_bary, v_dists = _linear.linear_call(_Tangent(settings), _Transpose(settings), operands, v_table)
    shape = pix_to_face.shape
    return outputs, (
        np.zeros(shape, jax.dtypes.float0), v_depths.reshape(shape), v_bary.reshape(*shape, 3), v_dists.reshape(shape),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Tangent:
    """Tangents of depths, coordinates and distances, from those of the table of faces."""

    settings: _Settings

    def __call__(self, table, index, dists, xs, ys, v_table) -> tuple[jax.Array, ...]:
        evaluate = functools.partial(_evaluate, self.settings, index=index, inside=jnp.signbit(dists), xs=xs, ys=ys)
        return jax.jvp(evaluate, (table,), (v_table,))[1]


@dataclasses.dataclass(frozen=True)
class _Transpose:
    """The cotangent of the table of faces, from those of depths, coordinates and distances."""

    settings: _Settings

    def __call__(self, table, index, dists, xs, ys, *cotangents) -> tuple[jax.Array]:
        return (_pull(self.settings, (index, dists, xs, ys), table, *_ffi.vary_alike(cotangents)),)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _pull(settings: _Settings, known: tuple[jax.Array, ...], table: jax.Array, *cotangents: jax.Array) -> jax.Array:
    (v_table,) = _ffi.call(
        f"{_NAME}_backward",
        (table, *known, *cotangents),
        (2, 4, 4, 1, 1, 4, 5, 4),
        [(table.shape[-2:], jnp.float32)],
        perspective_correct=settings.perspective_correct,
        clip_barycentric_coords=settings.clip_barycentric_coords,
    )
    return v_table


@_pull.defjvp
def _pull_jvp(settings: _Settings, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
    """For second derivatives: of what JAX derives itself."""
    index, dists, xs, ys = primals[0]
    evaluate = functools.partial(_evaluate, settings, index=index, inside=jnp.signbit(dists), xs=xs, ys=ys)

    def plain(table: jax.Array, *cotangents: jax.Array) -> jax.Array:
        return jax.vjp(evaluate, table)[1](cotangents)[0]

    return _pull(settings, *primals), jax.jvp(plain, primals[1:], tangents[1:])[1]


def _slots(face_verts: jax.Array, pix_to_face: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One table of the faces of all meshes [F, 9], and its row for each slot [B, H, W, K], -1 for none."""
    table, index = flat_index(face_verts, pix_to_face, pix_to_face.shape[:-3], 3)
    own = pix_to_face.shape[-3:]
    return table, jnp.where(pix_to_face >= 0, index, -1).reshape(-1, *own)


def _evaluate(
    settings: _Settings, table: jax.Array, *, index: jax.Array, inside: jax.Array, xs: jax.Array, ys: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Depths, coordinates and distances of known faces; -1 where there is none."""
    there = index >= 0
    rows = table[jnp.where(there, index, 0)] if len(table) else jnp.zeros((*index.shape, 9), table.dtype)
    # Harmless where there is no face, so that no NaN enters the gradient.
    harmless = (0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0)
    t = triangles.Triangle(*(jnp.where(there, rows[..., k], value) for k, value in enumerate(harmless)))
    found = triangles.evaluate(
        t, xs.reshape(1, 1, -1, 1), ys.reshape(1, -1, 1, 1),
        perspective_correct=settings.perspective_correct, clip_barycentric_coords=settings.clip_barycentric_coords,
    )  # fmt: skip
    bary = jnp.stack([jnp.where(there, part, -1) for part in found.bary], -1)
    dists = jnp.where(there, jnp.where(inside, -found.distance, found.distance), -1)
    return jnp.where(there, found.depth, -1), bary, dists


def _reference(settings: _Settings, operands: list[jax.Array]) -> Fragments:
    """Tests every face at every pixel, one image after another."""
    face_verts, xs, ys = operands[0], operands[5], operands[6]
    count = face_verts.shape[-2]
    if operands[3].shape[-1] != count:
        operands = [*operands[:3], jnp.full((count,), -1, jnp.int32), *operands[4:]]
    leading = jnp.broadcast_shapes(*(x.shape[: x.ndim - r] for x, r in zip(operands, RANKS, strict=True)))
    flat = [
        jnp.broadcast_to(
            x.reshape((1,) * (len(leading) - x.ndim + r) + x.shape), (*leading, *x.shape[x.ndim - r :])
        ).reshape(math.prod(leading), *x.shape[x.ndim - r :])
        for x, r in zip(lax.stop_gradient(operands[:5]), RANKS, strict=False)
    ]
    nearest = functools.partial(
        reference_meshes.nearest_faces, faces_per_pixel=settings.faces_per_pixel,
        perspective_correct=settings.perspective_correct, clip_barycentric_coords=settings.clip_barycentric_coords,
        cull_backfaces=settings.cull_backfaces,
    )  # fmt: skip
    pix_to_face, inside = lax.map(lambda image: nearest(*image, xs=xs, ys=ys), flat)
    pix_to_face, inside = (x.reshape(*leading, *x.shape[1:]) for x in (pix_to_face, inside))
    table, index = _slots(face_verts, pix_to_face)
    values = _evaluate(settings, table, index=index, inside=inside.reshape(index.shape), xs=xs, ys=ys)
    shape = pix_to_face.shape
    return Fragments(pix_to_face, *(x.reshape(*shape, *x.shape[4:]) for x in values))


def _leading(verts: jax.Array, faces: jax.Array | None) -> tuple[int, ...]:
    if faces is None:
        return verts.shape[:-3]
    return jnp.broadcast_shapes(verts.shape[:-2], faces.shape[:-2])


def _check_arguments(
    function, verts, faces, first_faces, face_counts, clipped_faces_neighbor_idx, blur_radius, near_plane, far_plane
) -> None:
    if faces is None:
        _check.shapes(
            function, verts=(verts, "... F 3 3"), first_faces=(first_faces, "..."), face_counts=(face_counts, "..."),
            clipped_faces_neighbor_idx=(clipped_faces_neighbor_idx, "... F"), blur_radius=(blur_radius, "..."),
            near_plane=(near_plane, "..."), far_plane=(far_plane, "..."),
        )  # fmt: skip
    else:
        _check.shapes(
            function, verts=(verts, "... V 3"), faces=(faces, "... F 3"), first_faces=(first_faces, "..."),
            face_counts=(face_counts, "..."), clipped_faces_neighbor_idx=(clipped_faces_neighbor_idx, "... F"),
            blur_radius=(blur_radius, "..."), near_plane=(near_plane, "..."), far_plane=(far_plane, "..."),
        )  # fmt: skip
    _check.floating(function, verts=verts)
    _check.kind(
        function, jnp.integer, faces=faces, first_faces=first_faces, face_counts=face_counts,
        clipped_faces_neighbor_idx=clipped_faces_neighbor_idx,
    )  # fmt: skip
