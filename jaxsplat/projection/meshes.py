"""Projection of triangle meshes, and what it must cut away first: the parts of faces behind the near plane."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat import _check
from jaxsplat import _constants as const
from jaxsplat._index import gather_faces
from jaxsplat._linalg import lift
from jaxsplat.cameras import MODELS, split
from jaxsplat.types import Fragments, MeshCameraModel


class ClippedFaces(NamedTuple):
    """Faces cut at the near plane. What is left of face i are the faces i and i + F; a part that is nothing is a point.

    Attributes:
      face_verts: [..., 2F, 3, 3] corners in camera space.
      weights: [..., 2F, 3, 3] for each corner (second axis from the end), how much of each corner of the original face
        (last axis) it holds: corners of any attribute follow from those of the original by these weights.
      neighbor_idx: [2F] int32, the other part of the same face.
    """

    face_verts: jax.Array
    weights: jax.Array
    neighbor_idx: jax.Array


def clip_faces(face_verts: jax.Array, *, near_plane: jax.Array | float = const.NEAR) -> ClippedFaces:
    """Cuts faces at a plane of constant depth. Differentiable, and nothing is computed for faces in front but copies.

    Args:
      face_verts: [..., F, 3, 3] corners in camera space, +z forward.
      near_plane: depth of the plane, a scalar or [...].

    Returns:
      `ClippedFaces`.

    Raises:
      ValueError: for shapes that do not fit.

    Example:
      >>> clip_faces(jnp.array([[[0.0, 0.0, -1.0], [0.0, 1.0, 3.0], [1.0, 0.0, 3.0]]]), near_plane=1.0).face_verts.shape
      (2, 3, 3)
    """
    _check.shapes("clip_faces", face_verts=(face_verts, "... F 3 3"), near_plane=(near_plane, "..."))
    _check.floating("clip_faces", face_verts=face_verts)
    near = jnp.asarray(near_plane, face_verts.dtype)[..., None]
    z = [face_verts[..., k, 2] for k in range(3)]
    front = [jnp.greater_equal(*jnp.broadcast_arrays(depth, near)) for depth in z]
    count = front[0].astype(jnp.int32) + front[1] + front[2]
    # The corner that is alone on its side comes first; 0 where there is none.
    alone = [(f == (count == 1)) & ((count == 1) | (count == 2)) for f in front]
    turn = jnp.where(alone[1], 1, jnp.where(alone[2], 2, 0))
    turned = [_pick(turn, [z[k], z[(k + 1) % 3], z[(k + 2) % 3]]) for k in range(3)]
    cut = (count == 1) | (count == 2)

    def crossing(other: jax.Array) -> jax.Array:
        """How far along the edge from the lone corner to another the plane is."""
        length = jnp.where(cut & (other != turned[0]), other - turned[0], 1)
        return jnp.where(cut, (jnp.broadcast_to(near, other.shape) - turned[0]) / length, 0)

    s, t = crossing(turned[1]), crossing(turned[2])
    zero, one = jnp.zeros_like(s), jnp.ones_like(s)
    first, second = (one - s, s, zero), (one - t, zero, t)
    corners = [(one, zero, zero), (zero, one, zero), (zero, zero, one)]
    lone_front, whole = count == 1, count == 3

    def part(clipped_to_one: list, clipped_to_two: list, uncut: list | None) -> list[list[jax.Array]]:
        rows = []
        for k in range(3):
            row = [jnp.where(lone_front, a, b) for a, b in zip(clipped_to_one[k], clipped_to_two[k], strict=True)]
            if uncut is not None:
                row = [jnp.where(whole, a, b) for a, b in zip(uncut[k], row, strict=True)]
            # Turn back to the order of the original's corners.
            rows.append([_pick(turn, [row[j], row[j - 1], row[j - 2]]) for j in range(3)])
        return rows

    point = [corners[0]] * 3
    parts = [
        (part([corners[0], first, second], [first, corners[1], corners[2]], corners), (count > 0)),
        (part(point, [first, corners[2], second], None), (count == 2)),
    ]
    verts, weights = zip(*(_corners_of(face_verts, rows, there, near) for rows, there in parts), strict=True)
    faces = face_verts.shape[-3]
    neighbors = jnp.arange(2 * faces, dtype=jnp.int32)
    return ClippedFaces(
        jnp.concatenate(verts, -3),
        jnp.concatenate(weights, -3),
        jnp.where(neighbors < faces, neighbors + faces, neighbors - faces),
    )


def _pick(turn: jax.Array, options: list[jax.Array]) -> jax.Array:
    return jnp.where(turn == 0, options[0], jnp.where(turn == 1, options[1], options[2]))


def _corners_of(
    face_verts: jax.Array, rows: list[list[jax.Array]], there: jax.Array, near: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """[..., F, 3, 3] corners and weights of one part; a point on the axis where there is nothing."""
    weights = jnp.stack([jnp.stack(row, -1) for row in rows], -2)
    verts = sum(weights[..., :, k, None] * face_verts[..., None, k, :] for k in range(3))
    axis = jnp.stack([jnp.zeros_like(there, face_verts.dtype)] * 2 + [jnp.broadcast_to(near, there.shape)], -1)
    return jnp.where(there[..., None, None], verts, axis[..., None, :]), weights


def unclip_fragments(fragments: Fragments, clipped: ClippedFaces) -> Fragments:
    """Turns fragments of clipped faces into those of the faces from which they were cut.

    Args:
      fragments: of `clipped`.
      clipped: from `clip_faces`, with the leading axes of the fragments.

    Returns:
      `Fragments` whose faces and barycentric coordinates are those of the original faces.

    Example:
      >>> fragments = unclip_fragments(rasterize_meshes(screen, None, width=64, height=64), clipped)
    """
    there = fragments.pix_to_face >= 0
    rows = gather_faces(clipped.weights, fragments.pix_to_face)
    bary = sum(fragments.bary_coords[..., k, None] * rows[..., k, :] for k in range(3))
    original = jnp.where(there, fragments.pix_to_face % (clipped.weights.shape[-3] // 2), -1)
    return fragments._replace(pix_to_face=original, bary_coords=jnp.where(there[..., None], bary, -1))


def project_meshes(
    verts: jax.Array, viewmats: jax.Array | None, Ks: jax.Array, *, camera_model: MeshCameraModel = "pinhole"
) -> jax.Array:
    """Projects points to pixels and depths, as `rasterize_meshes` takes them. Points must be in front of the camera.

    Args:
      verts: [..., V, 3] in world units.
      viewmats: [..., C, 4, 4] world-to-camera matrices, OpenCV axes; None where the points are in camera space, then
        they are [..., C, V, 3].
      Ks: [..., C, 3, 3] camera matrices, in pixels.
      camera_model: "pinhole" or "ortho": models that keep lines straight.

    Returns:
      [..., C, V, 3] column and row in pixels, and depth in world units.

    Raises:
      ValueError: for shapes or settings that do not fit.

    Example:
      >>> K = jnp.array([[[100.0, 0.0, 32.0], [0.0, 100.0, 24.0], [0.0, 0.0, 1.0]]])
      >>> project_meshes(jnp.array([[0.0, 0.0, 2.0]]), jnp.eye(4)[None], K)
      Array([[[32., 24.,  2.]]], dtype=float32)
    """
    _check.choice("project_meshes", "camera_model", camera_model, ("pinhole", "ortho"))
    _check.shapes(
        "project_meshes", verts=(verts, "... V 3" if viewmats is not None else "... C V 3"),
        viewmats=(viewmats, "... C 4 4"), Ks=(Ks, "... C 3 3"),
    )  # fmt: skip
    _check.floating("project_meshes", verts=verts, viewmats=viewmats, Ks=Ks)
    points = verts if viewmats is None else to_camera(verts, viewmats)
    x, y, z = (points[..., k] for k in range(3))
    rank = max(points.ndim, Ks.ndim)
    x, y, z = jnp.broadcast_arrays(*(lift(part, rank - 1) for part in (x, y, z)))
    u, v = MODELS[camera_model].project(x, y, z, split(lift(Ks, rank)[..., None, :, :]))
    return jnp.stack(jnp.broadcast_arrays(u, v, z), -1)


def to_camera(verts: jax.Array, viewmats: jax.Array) -> jax.Array:
    """Moves points [..., V, 3] into the space of each camera: [..., C, V, 3]."""
    points = verts[..., None, :, :]
    rank = max(points.ndim, viewmats.ndim)
    points, viewmats = lift(points, rank), lift(viewmats, rank)
    moved = [
        sum(viewmats[..., k, j, None] * points[..., j] for j in range(3)) + viewmats[..., k, 3, None] for k in range(3)
    ]
    return jnp.stack(moved, -1)
