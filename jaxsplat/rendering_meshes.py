"""The pipeline of meshes: clip, project, rasterize, interpolate, blend."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxsplat import _check
from jaxsplat import _constants as const
from jaxsplat.projection.meshes import clip_faces, project_meshes, to_camera, unclip_fragments
from jaxsplat.rasterize.meshes import corners, rasterize_meshes
from jaxsplat.shading import blend_hard, blend_softmax, interpolate_vertex_attributes
from jaxsplat.types import Backend, MeshBlend, MeshCameraModel, MeshOutput

_NAME = "render_meshes"


def render_meshes(
    verts: jax.Array,
    faces: jax.Array,
    attributes: jax.Array,
    viewmats: jax.Array,
    Ks: jax.Array,
    *,
    width: int,
    height: int,
    shade: Callable[[jax.Array], jax.Array] | None = None,
    backgrounds: jax.Array | None = None,
    blend: MeshBlend = MeshBlend(),  # noqa: B008 (frozen)
    near_plane: jax.Array | float = const.NEAR,
    far_plane: jax.Array | float = 100.0,
    cull_backfaces: bool = False,
    clip: bool = True,
    camera_model: MeshCameraModel = "pinhole",
    face_counts: jax.Array | None = None,
    backend: Backend = "auto",
) -> MeshOutput:
    """Renders triangle meshes from every camera.

    Faces are cut at the near plane, projected, rasterized; attributes of their corners are interpolated in space,
    shaded and blended. Gradients reach vertices, attributes, poses and intrinsics: with hard outlines through
    attributes and depths only, with soft ones (`blend.sigma` > 0) also through where the outlines are.

    Args:
      verts: [..., V, 3] in world units.
      faces: [..., F, 3] integers, corners of each face.
      attributes: [..., V, D] of each vertex, for example colors; or, with one more axis, [..., F, 3, D] of each corner
        of each face, as for texture coordinates with seams.
      viewmats: [..., C, 4, 4] world-to-camera matrices, OpenCV axes.
      Ks: [..., C, 3, 3] camera matrices, in pixels.
      width: image width in pixels.
      height: image height in pixels.
      shade: from interpolated attributes [..., C, H, W, K, D] to colors [..., C, H, W, K, E]; None keeps them.
      backgrounds: [..., C, E] color behind everything; 0 by default.
      blend: how the faces of a pixel are blended.
      near_plane: where faces are cut, a scalar or [..., C], in world units.
      far_plane: largest visible depth, a scalar or [..., C].
      cull_backfaces: whether faces that turn clockwise on the screen are left out.
      clip: False skips the cutting, which doubles the list of faces: then those that reach behind the camera are not
        drawn at all.
      camera_model: "pinhole" or "ortho".
      face_counts: [...] integers, number of faces of each mesh where the list is padded.
      backend: "auto", "native", or "reference": plain JAX, any device and precision, slow.

    Returns:
      `MeshOutput`.

    Raises:
      ValueError: for shapes or settings that do not fit.
      TypeError: for arrays of a wrong type.

    Example:
      >>> out = render_meshes(verts, faces, vertex_colors, viewmats, Ks, width=640, height=480)
      >>> out.colors.shape
      (1, 480, 640, 3)
    """
    verts, attributes, viewmats, Ks = (jnp.asarray(x) for x in (verts, attributes, viewmats, Ks))
    per_corner = attributes.ndim > 2 and attributes.shape[-3:-1] == (*faces.shape[-2:-1], 3)
    _check_arguments(
        verts, faces, attributes, viewmats, Ks, backgrounds, near_plane, far_plane, face_counts, per_corner, blend
    )
    near, far = (jnp.asarray(plane, verts.dtype) for plane in (near_plane, far_plane))
    face_attributes = attributes if per_corner else corners(attributes, faces)
    face_verts, face_attributes = corners(verts, faces), face_attributes[..., None, :, :, :]
    if face_counts is not None:
        # A point at the camera is not drawn; so counts hold for the parts of cut faces too.
        place = jnp.arange(faces.shape[-2]).reshape((1,) * face_counts.ndim + (-1,))
        kept = place < face_counts[..., None]
        face_verts = jnp.where(kept[..., None, None], face_verts, 0)
    points = to_camera(face_verts.reshape(*face_verts.shape[:-3], -1, 3), viewmats)
    points = points.reshape(*points.shape[:-2], -1, 3, 3)
    clipped = clip_faces(points, near_plane=near) if clip else None
    in_front = points if clipped is None else clipped.face_verts
    screen = project_meshes(in_front.reshape(*in_front.shape[:-3], -1, 3), None, Ks, camera_model=camera_model)
    fragments = rasterize_meshes(
        screen.reshape(*screen.shape[:-2], -1, 3, 3), None, width=width, height=height,
        faces_per_pixel=blend.faces_per_pixel, blur_radius=blend.sigma * math.log(1 / blend.cutoff - 1),
        perspective_correct=camera_model == "pinhole", clip_barycentric_coords=blend.sigma > 0,
        cull_backfaces=cull_backfaces, far_plane=far,
        clipped_faces_neighbor_idx=None if clipped is None else clipped.neighbor_idx, backend=backend,
    )  # fmt: skip
    if clipped is not None:
        fragments = unclip_fragments(fragments, clipped)
    values = interpolate_vertex_attributes(fragments, face_attributes)
    colors = values if shade is None else shade(values)
    if blend.sigma > 0:
        planes = [jnp.broadcast_to(p, (1,) * (colors.ndim - 1) if p.ndim == 0 else p.shape) for p in (near, far)]
        planes = [p if p.ndim == colors.ndim - 1 else p[..., None, None, None] for p in planes]
        picture, alphas = blend_softmax(
            fragments, colors, backgrounds=backgrounds, sigma=blend.sigma, gamma=blend.gamma, near_plane=planes[0],
            far_plane=planes[1],
        )  # fmt: skip
    else:
        picture, alphas = blend_hard(fragments, colors, backgrounds=backgrounds)
    nearest = fragments.zbuf[..., 0]
    depths = jnp.where(fragments.pix_to_face[..., 0] >= 0, nearest, jnp.inf)
    return MeshOutput(picture, alphas, depths, fragments)


def _check_arguments(
    verts, faces, attributes, viewmats, Ks, backgrounds, near_plane, far_plane, face_counts, per_corner, blend
) -> None:
    _check.shapes(
        _NAME,
        verts=(verts, "... V 3"),
        faces=(faces, "... F 3"),
        attributes=(attributes, "... F 3 D" if per_corner else "... V D"),
        face_counts=(face_counts, "..."),
        viewmats=(viewmats, "... C 4 4"),
        Ks=(Ks, "... C 3 3"),
        backgrounds=(backgrounds, "... C E"),
    )
    _check.shapes(
        _NAME, viewmats=(viewmats[..., 0, 0], "..."), near_plane=(near_plane, "..."), far_plane=(far_plane, "...")
    )
    _check.floating(_NAME, verts=verts, attributes=attributes, viewmats=viewmats, Ks=Ks, backgrounds=backgrounds)
    _check.kind(_NAME, jnp.integer, faces=faces, face_counts=face_counts)
    _check.positive_int(_NAME, **{"blend.faces_per_pixel": blend.faces_per_pixel})
    if blend.sigma < 0 or blend.gamma <= 0 or not 0 < blend.cutoff < 0.5:
        raise ValueError(
            f"{_NAME}: blend must have sigma >= 0, gamma > 0 and 0 < cutoff < 0.5, got sigma={blend.sigma}, "
            f"gamma={blend.gamma}, cutoff={blend.cutoff}."
        )
