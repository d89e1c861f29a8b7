"""Which faces a pixel sees, by testing every face at every pixel: the readable truth, any device and precision."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _constants as const
from jaxsplat import _triangles as triangles

PAIRS_AT_ONCE = 1 << 19
"""Pixel-face pairs evaluated together, to bound the memory."""


def hits(
    t: triangles.Triangle,
    px: jax.Array,
    py: jax.Array,
    drawn: jax.Array,
    neighbors: jax.Array,
    limits: jax.Array,
    *,
    perspective_correct: bool,
    clip_barycentric_coords: bool,
    cull_backfaces: bool,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Finds which of [F] faces take part at [P] pixels.

    Args:
      t: components [1, F].
      px: [P, 1].
      py: [P, 1].
      drawn: [F] bool, faces that belong to this image's mesh.
      neighbors: [F] int32, other half of a clipped face or -1.
      limits: [3] squared blur radius, least and largest depth.
      perspective_correct: as in `rasterize_meshes`.
      clip_barycentric_coords: as in `rasterize_meshes`.
      cull_backfaces: as in `rasterize_meshes`.

    Returns:
      Whether each face is hit [P, F], whether it covers the pixel's centre, and its depth.
    """
    area = triangles.double_area(t)
    depths = jnp.minimum(jnp.minimum(t.z0, t.z1), t.z2)
    drawn = drawn[None] & (jnp.abs(area) > const.TRIANGLE_EPSILON) & (depths >= const.TRIANGLE_EPSILON)
    for part in t:
        drawn &= jnp.isfinite(part)
    if cull_backfaces:
        drawn &= area > 0
    found = triangles.evaluate(
        t, px, py, perspective_correct=perspective_correct, clip_barycentric_coords=clip_barycentric_coords
    )
    inside = triangles.covers(t, px, py)
    hit = drawn & (inside | (found.distance < limits[0])) & (found.depth >= limits[1]) & (found.depth <= limits[2])
    # Of the two halves of a clipped face, the pixel sees the nearer on the screen.
    other = jnp.where(neighbors >= 0, neighbors, 0)
    signed = jnp.where(inside, -found.distance, found.distance)
    closer = signed[:, other] < signed
    closer |= (signed[:, other] == signed) & (other < jnp.arange(len(other)))[None]
    return hit & ~((neighbors >= 0)[None] & hit[:, other] & closer), inside, found.depth


def nearest_faces(
    face_verts: jax.Array,
    first_face: jax.Array,
    num_faces: jax.Array,
    neighbors: jax.Array,
    limits: jax.Array,
    xs: jax.Array,
    ys: jax.Array,
    *,
    faces_per_pixel: int,
    perspective_correct: bool,
    clip_barycentric_coords: bool,
    cull_backfaces: bool,
) -> tuple[jax.Array, jax.Array]:
    """Finds the nearest faces of one image at each pixel, by (depth, index).

    Args:
      face_verts: [F, 9].
      first_face: [] first face of this image's mesh.
      num_faces: [] its number of faces.
      neighbors: [F] int32.
      limits: [3], see `hits`.
      xs: [W] pixel centres.
      ys: [H] pixel centres.
      faces_per_pixel: K.
      perspective_correct: as in `rasterize_meshes`.
      clip_barycentric_coords: as in `rasterize_meshes`.
      cull_backfaces: as in `rasterize_meshes`.

    Returns:
      [H, W, K] index of each face or -1, and whether it covers the pixel's centre.
    """
    count, width, height = len(face_verts), len(xs), len(ys)
    shape = (height, width, faces_per_pixel)
    if count == 0:
        return jnp.full(shape, -1, jnp.int32), jnp.zeros(shape, bool)
    t = triangles.Triangle(*(face_verts[None, :, k] for k in range(9)))
    place = jnp.arange(count, dtype=jnp.int32)
    drawn = (place >= first_face) & (place < first_face + num_faces)
    together = min(max(PAIRS_AT_ONCE // count, 1), width * height)
    chunks = -(-width * height // together)
    slots = min(faces_per_pixel, count)

    def chunk(pixel: jax.Array) -> tuple[jax.Array, jax.Array]:
        px, py = xs[pixel % width][:, None], ys[jnp.minimum(pixel // width, height - 1)][:, None]
        hit, inside, depth = hits(
            t, px, py, drawn, neighbors, limits, perspective_correct=perspective_correct,
            clip_barycentric_coords=clip_barycentric_coords, cull_backfaces=cull_backfaces,
        )  # fmt: skip
        order = jnp.argsort(jnp.where(hit, depth, jnp.inf), axis=1, stable=True)[:, :slots]
        there = jnp.take_along_axis(hit, order, 1)
        faces = jnp.where(there, order.astype(jnp.int32), -1)
        return faces, there & jnp.take_along_axis(inside, order, 1)

    found = lax.map(chunk, jnp.arange(chunks * together).reshape(chunks, together))
    faces, inside = (x.reshape(-1, slots)[: width * height].reshape(height, width, slots) for x in found)
    extra = [(0, 0), (0, 0), (0, faces_per_pixel - slots)]
    return jnp.pad(faces, extra, constant_values=-1), jnp.pad(inside, extra)
