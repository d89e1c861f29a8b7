"""From fragments of a mesh to pictures: attributes, textures, normals, light, and what is blended how."""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat import _check
from jaxsplat import _constants as const
from jaxsplat._index import gather_faces
from jaxsplat.types import Fragments

_TINY = 1e-10
"""Least weight of the background, and what it is compared with, in soft blending."""


def interpolate_vertex_attributes(fragments: Fragments, face_attributes: jax.Array) -> jax.Array:
    """Interpolates attributes of the corners of faces at every slot of every pixel.

    Args:
      fragments: from `rasterize_meshes`.
      face_attributes: [..., F, 3, D] attributes of each corner of each face, `attributes[faces]` for a single mesh.

    Returns:
      [..., H, W, K, D], zero where there is no face.

    Raises:
      ValueError: for shapes that do not fit.

    Example:
      >>> colors = interpolate_vertex_attributes(fragments, vertex_colors[faces])
    """
    name = "interpolate_vertex_attributes"
    _check.shapes(
        name, **{"fragments.pix_to_face": (fragments.pix_to_face, "... H W K")},
        face_attributes=(face_attributes, "... F 3 D"),
    )  # fmt: skip
    _check.floating(name, face_attributes=face_attributes)
    corners = gather_faces(face_attributes, fragments.pix_to_face)
    return sum(fragments.bary_coords[..., k, None] * corners[..., k, :] for k in range(3))  # pyright: ignore


def sample_texture(
    texture: jax.Array,
    uvs: jax.Array,
    *,
    mode: Literal["bilinear", "nearest"] = "bilinear",
    levels: jax.Array | None = None,
) -> jax.Array:
    """Reads a texture, as OBJ files and PyTorch3D mean it: (0, 0) is the middle of its lower left texel.

    Args:
      texture: [TH, TW, D], its first row on top.
      uvs: [..., 2] from 0 to 1, to the right and up; beyond, the nearest texel of the border.
      mode: "bilinear" or "nearest".
      levels: [...] from `texture_levels`: reads smaller copies of the texture, each the mean of 2x2 texels of the one
        before it, and blends the two next to the level (Williams 1983, Pyramidal parametrics). With "bilinear" only.

    Returns:
      [..., D]. Gradients reach the texture, and with "bilinear" coordinates and levels.

    Raises:
      ValueError: for shapes or settings that do not fit.

    Example:
      >>> sample_texture(jnp.arange(4.0).reshape(2, 2, 1), jnp.array([0.5, 0.0]))
      Array([2.5], dtype=float32)
    """
    _check.shapes("sample_texture", texture=(texture, "TH TW D"), uvs=(uvs, "... 2"), levels=(levels, "..."))
    _check.floating("sample_texture", texture=texture, uvs=uvs, levels=levels)
    _check.choice("sample_texture", "mode", mode, ("bilinear", "nearest"))
    if levels is not None and mode == "nearest":
        raise ValueError('sample_texture: levels must be None with mode "nearest".')
    height, width, _ = texture.shape
    x = jnp.clip(uvs[..., 0], 0, 1) * (width - 1)
    y = (1 - jnp.clip(uvs[..., 1], 0, 1)) * (height - 1)
    if mode == "nearest":
        return texture[jnp.round(y).astype(jnp.int32), jnp.round(x).astype(jnp.int32)]
    if levels is None:
        return _bilinear([texture], jnp.zeros(x.shape, jnp.int32), x, y)
    pyramid = [texture]
    while max(pyramid[-1].shape[:2]) > 1:
        pyramid.append(_halved(pyramid[-1]))
    levels = jnp.clip(levels, 0, len(pyramid) - 1)
    finer = jnp.minimum(jnp.floor(levels).astype(jnp.int32), max(len(pyramid) - 2, 0))
    coarser = jnp.minimum(finer + 1, len(pyramid) - 1)
    part = (levels - finer)[..., None]
    return _bilinear(pyramid, finer, x, y) * (1 - part) + _bilinear(pyramid, coarser, x, y) * part


def _halved(texture: jax.Array) -> jax.Array:
    """Means of 2x2 texels; a last odd row or column counts twice."""
    height, width, channels = texture.shape
    even = jnp.pad(texture, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return jnp.mean(even.reshape(-(-height // 2), 2, -(-width // 2), 2, channels), (1, 3))


def _bilinear(pyramid: list[jax.Array], level: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Reads one level of a pyramid for each pair of coordinates, which are those of the middles of level 0's texels."""
    sizes = jnp.array([texture.shape[:2] for texture in pyramid])
    begins = jnp.cumulative_sum(sizes[:, 0] * sizes[:, 1], include_initial=True)[:-1]
    table = jnp.concatenate([texture.reshape(-1, texture.shape[-1]) for texture in pyramid])
    height, width, begin = sizes[level, 0], sizes[level, 1], begins[level]
    scale = jnp.exp2(level.astype(x.dtype))
    x = jnp.clip((x + 0.5) / scale - 0.5, 0, width - 1)
    y = jnp.clip((y + 0.5) / scale - 0.5, 0, height - 1)

    def texel(column: jax.Array, row: jax.Array) -> jax.Array:
        return table[begin + jnp.minimum(row, height - 1) * width + jnp.minimum(column, width - 1)]

    left, top = jnp.floor(x).astype(jnp.int32), jnp.floor(y).astype(jnp.int32)
    right, down = (x - left)[..., None], (y - top)[..., None]
    upper = texel(left, top) * (1 - right) + texel(left + 1, top) * right
    lower = texel(left, top + 1) * (1 - right) + texel(left + 1, top + 1) * right
    return upper * (1 - down) + lower * down


def texture_levels(fragments: Fragments, uvs: jax.Array, texture: jax.Array) -> jax.Array:
    """How small a copy of a texture shows each pixel without aliasing: log2 of the texels from pixel to pixel, from 0.

    By differences: the longest step in the texture to those of the four neighbouring pixels that show the same face in
    the same slot. A face that has no two neighbouring pixels is read from the texture itself.

    Args:
      fragments: from `rasterize_meshes`.
      uvs: [..., H, W, K, 2] texture coordinates interpolated at the fragments.
      texture: [TH, TW, D].

    Returns:
      [..., H, W, K] levels for `sample_texture`. Gradients reach the coordinates.

    Raises:
      ValueError: for shapes that do not fit.

    Example:
      >>> levels = texture_levels(fragments, uvs, texture)
      >>> colors = sample_texture(texture, uvs, levels=levels)
    """
    faces = fragments.pix_to_face
    _check.shapes(
        "texture_levels", **{"fragments.pix_to_face": (faces, "... H W K")}, uvs=(uvs, "... H W K 2"),
        texture=(texture, "TH TW D"),
    )  # fmt: skip
    x, y = uvs[..., 0] * (texture.shape[1] - 1), uvs[..., 1] * (texture.shape[0] - 1)
    longest = jnp.ones((), x.dtype)
    for axis in (faces.ndim - 3, faces.ndim - 2):
        before, after = (
            [jax.lax.slice_in_dim(part, begin, part.shape[axis] - 1 + begin, axis=axis) for part in (faces, x, y)]
            for begin in (0, 1)
        )
        same = (before[0] >= 0) & (before[0] == after[0])
        squared = jnp.where(same, (after[1] - before[1]) ** 2 + (after[2] - before[2]) ** 2, 0)
        for pad in ((0, 1), (1, 0)):
            pads = [pad if k == axis else (0, 0) for k in range(faces.ndim)]
            longest = jnp.maximum(jnp.pad(squared, pads), longest)
    return 0.5 * jnp.log2(longest)


def face_normals(face_verts: jax.Array) -> jax.Array:
    """Unit normals of faces, towards the side from which their corners turn counter-clockwise.

    Args:
      face_verts: [..., F, 3, 3] corners in any space.

    Returns:
      [..., F, 3], zero for a face without area.

    Example:
      >>> face_normals(jnp.array([[[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]]))
      Array([[0., 0., 1.]], dtype=float32)
    """
    _check.shapes("face_normals", face_verts=(face_verts, "... F 3 3"))
    return _unit(_area_normals(face_verts))


def vertex_normals(verts: jax.Array, faces: jax.Array) -> jax.Array:
    """Unit normals of vertices: the mean of those of their faces, weighted by area.

    Args:
      verts: [..., V, 3].
      faces: [F, 3] integers.

    Returns:
      [..., V, 3], zero for a vertex without faces.

    Example:
      >>> vertex_normals(jnp.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), jnp.array([[0, 1, 2]]))[0]
      Array([0., 0., 1.], dtype=float32)
    """
    _check.shapes("vertex_normals", verts=(verts, "... V 3"), faces=(faces, "F 3"))
    _check.kind("vertex_normals", jnp.integer, faces=faces)
    normals = _area_normals(verts[..., faces, :])
    total = jnp.zeros_like(verts)
    for k in range(3):
        total = total.at[..., faces[:, k], :].add(normals)
    return _unit(total)


def _area_normals(face_verts: jax.Array) -> jax.Array:
    a, b, c = (face_verts[..., k, :] for k in range(3))
    return jnp.cross(b - a, c - a)


def _unit(vectors: jax.Array) -> jax.Array:
    """Vectors of length 1; zero, with zero gradient, for those too short to have a direction."""
    squared = jnp.sum(vectors * vectors, -1, keepdims=True)
    long_enough = squared > const.NORM_FLOOR**2
    return jnp.where(long_enough, vectors / jnp.sqrt(jnp.where(long_enough, squared, 1)), 0)


class PointLight(NamedTuple):
    """A light, and how surfaces answer to it (Phong 1975). Colors are [3] or whatever broadcasts to the channels.

    Attributes:
      location: [3] in the space of the points.
      ambient: color of the light from everywhere.
      diffuse: color that falls with the angle to the normal.
      specular: color of the highlight.
      shininess: exponent of the highlight; larger is smaller.
    """

    location: jax.Array
    ambient: jax.Array | float = 0.5
    diffuse: jax.Array | float = 0.3
    specular: jax.Array | float = 0.2
    shininess: jax.Array | float = 64.0


def light_points(
    points: jax.Array, normals: jax.Array, colors: jax.Array, camera: jax.Array, light: PointLight
) -> jax.Array:
    """Lights points: color (ambient + diffuse cos) + specular cos^shininess.

    With interpolated normals this is Phong shading, with those of faces flat shading; for vertices, interpolated
    afterwards, Gouraud shading.

    Args:
      points: [..., 3].
      normals: [..., 3] any length; zero gives ambient light alone.
      colors: [..., 3] of the surface.
      camera: [..., 3] where the eye is.
      light: the light.

    Returns:
      [..., 3].

    Example:
      >>> light_points(points, normals, colors, jnp.zeros(3), PointLight(jnp.array([0.0, 2.0, 0.0]))).shape
      (240, 320, 1, 3)
    """
    _check.shapes("light_points", points=(points, "... 3"), normals=(normals, "... 3"), colors=(colors, "... 3"))
    grid = (1,) * (points.ndim - 1)
    location, camera = (
        jnp.asarray(p).reshape((1,) * (points.ndim - jnp.ndim(p)) + jnp.shape(p)) for p in (light.location, camera)
    )
    ambient, diffuse, specular = (
        jnp.broadcast_to(jnp.asarray(x, colors.dtype), (colors.shape[-1],)).reshape(*grid, -1)
        for x in (light.ambient, light.diffuse, light.specular)
    )
    normal, towards = _unit(normals), _unit(location - points)
    cosine = jnp.sum(normal * towards, -1, keepdims=True)
    reflected = 2 * cosine * normal - towards
    highlight = jnp.sum(_unit(camera - points) * reflected, -1, keepdims=True)
    lit = (cosine > 0) & (highlight > 0)
    highlight = jnp.where(lit, jnp.where(lit, highlight, 1) ** jnp.asarray(light.shininess, colors.dtype), 0)
    return colors * (ambient + diffuse * jnp.maximum(cosine, 0)) + specular * highlight


def soft_silhouette(fragments: Fragments, *, sigma: jax.Array | float) -> jax.Array:
    """Probability that a pixel is covered: 1 - product (1 - sigmoid(-dist / sigma)) (Liu et al. 2019, SoftRas).

    Args:
      fragments: from `rasterize_meshes` with a blur radius of some multiple of sigma and as many faces per pixel as
        matter. `rasterize_silhouettes` takes all of them, and less memory.
      sigma: softness, in the units of `dists`.

    Returns:
      [..., H, W].

    Example:
      >>> soft_silhouette(fragments, sigma=0.5).shape
      (480, 640)
    """
    # log(1 - sigmoid(x)) = -softplus(x), which stays finite, and so does its gradient.
    there = fragments.pix_to_face >= 0
    return -jnp.expm1(jnp.sum(jnp.where(there, -jax.nn.softplus(-fragments.dists / sigma), 0), -1))


def blend_hard(
    fragments: Fragments, colors: jax.Array, *, backgrounds: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Shows the nearest face.

    Args:
      fragments: from `rasterize_meshes`.
      colors: [..., H, W, K, D] of each slot.
      backgrounds: [..., D] where there is no face; 0 by default.

    Returns:
      Colors [..., H, W, D] and alphas [..., H, W, 1], 1 where there is a face.

    Example:
      >>> picture, alphas = blend_hard(fragments, colors, backgrounds=jnp.ones(3))
    """
    there = fragments.pix_to_face[..., 0, None] >= 0
    behind = 0 if backgrounds is None else _background(backgrounds, colors)
    return jnp.where(there, colors[..., 0, :], behind), there.astype(colors.dtype)


def blend_softmax(
    fragments: Fragments,
    colors: jax.Array,
    *,
    backgrounds: jax.Array | None = None,
    sigma: jax.Array | float,
    gamma: jax.Array | float,
    near_plane: jax.Array | float,
    far_plane: jax.Array | float,
) -> tuple[jax.Array, jax.Array]:
    """Blends the faces of a pixel by coverage and by a softmax of their inverted depths (SoftRas).

    Args:
      fragments: from `rasterize_meshes`.
      colors: [..., H, W, K, D] of each slot.
      backgrounds: [..., D]; 0 by default.
      sigma: softness of outlines, in the units of `dists`.
      gamma: softness of occlusion; the nearest face alone as it goes to 0.
      near_plane: depth that counts as 1.
      far_plane: depth that counts as 0.

    Returns:
      Colors [..., H, W, D] and alphas [..., H, W, 1].

    Example:
      >>> picture, alphas = blend_softmax(fragments, colors, sigma=0.5, gamma=1e-4, near_plane=1.0, far_plane=100.0)
    """
    there = fragments.pix_to_face >= 0
    coverage = jnp.where(there, jax.nn.sigmoid(-fragments.dists / sigma), 0)
    closeness = jnp.where(there, (far_plane - fragments.zbuf) / (far_plane - near_plane), 0)
    largest = jnp.maximum(jnp.max(closeness, -1, keepdims=True), _TINY)
    weights = coverage * jnp.exp((closeness - largest) / gamma)
    rest = jnp.maximum(jnp.exp((_TINY - largest) / gamma), _TINY)
    total = jnp.sum(weights, -1, keepdims=True) + rest
    picture = jnp.sum(weights[..., None] * colors, -2)
    if backgrounds is not None:
        picture = picture + rest * _background(backgrounds, colors)
    return picture / total, soft_silhouette(fragments, sigma=sigma)[..., None]


def _background(backgrounds: jax.Array, colors: jax.Array) -> jax.Array:
    """[..., D] with axes for rows and columns."""
    backgrounds = jnp.asarray(backgrounds, colors.dtype)
    return backgrounds[..., None, None, :].reshape(
        (1,) * (colors.ndim - backgrounds.ndim - 3) + backgrounds.shape[:-1] + (1, 1, backgrounds.shape[-1])
    )
