"""Clipping and projection of meshes."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import clip_faces as clip_eagerly
from jaxsplat import project_meshes, rasterize_meshes, unclip_fragments
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.scenes import random_scene

NEAR = 0.3

clip_faces = jax.jit(clip_eagerly)  # one operation at a time takes longer


def areas(face_verts):
    a, b, c = (face_verts[..., k, :] for k in range(3))
    return np.cross(b - a, c - a) / 2


def clipped_area(face, near):
    """Vector area of what is left of a triangle, by walking its outline."""
    outline = []
    for k in range(3):
        a, b = face[k], face[(k + 1) % 3]
        outline += [a] if a[2] >= near else []
        if (a[2] >= near) != (b[2] >= near):
            outline.append(a + (near - a[2]) / (b[2] - a[2]) * (b - a))
    return sum((np.cross(outline[k], outline[(k + 1) % len(outline)]) for k in range(len(outline))), np.zeros(3)) / 2


def test_what_is_left_is_the_part_in_front_with_the_same_orientation():
    faces = np.random.default_rng(0).normal(size=(300, 3, 3))
    with double_precision():
        clipped = clip_faces(jnp.asarray(faces), near_plane=NEAR)
        parts = areas(np.asarray(clipped.face_verts))
        weights = np.asarray(clipped.weights)
    expected = np.array([clipped_area(face, NEAR) for face in faces])
    np.testing.assert_allclose(parts[:300] + parts[300:], expected, atol=1e-12)
    assert np.asarray(clipped.face_verts)[..., 2].min() >= NEAR - 1e-9
    # Corners are the weighted corners of the original, wherever there is something.
    something = np.abs(parts).max(-1) > 0
    combined = np.einsum("fkj,fjd->fkd", weights, np.concatenate([faces, faces]))
    np.testing.assert_allclose(np.asarray(clipped.face_verts)[something], combined[something], atol=1e-12)
    np.testing.assert_array_equal(clipped.neighbor_idx[clipped.neighbor_idx], np.arange(600))


def test_faces_in_front_come_back_bit_for_bit():
    faces = jnp.asarray(np.random.default_rng(0).uniform(1, 2, (20, 3, 3)), jnp.float32)
    clipped = clip_faces(faces, near_plane=NEAR)
    np.testing.assert_array_equal(clipped.face_verts[:20], faces)
    assert not np.any(areas(np.asarray(clipped.face_verts[20:])))


def test_gradients_agree_with_finite_differences():
    with double_precision():
        faces = jnp.asarray(np.random.default_rng(3).normal(size=(30, 3, 3)))
        assert_gradients(lambda f, n: clip_faces(f, near_plane=n)[:2], [faces, jnp.asarray(NEAR)])
        scene = random_scene(dtype=np.float64)
        for model in ("pinhole", "ortho"):
            assert_gradients(
                functools.partial(project_meshes, camera_model=model), [scene.means, scene.viewmats, scene.Ks]
            )


def test_a_plane_through_the_camera_is_seen_to_the_horizon():
    """Against the ray through each pixel: a floor one unit below, whose faces reach behind the camera."""
    width, height, f = 40, 30, 25.0
    size = 1e3
    floor = jnp.array([[-size, 1, -size], [size, 1, -size], [size, 1, size], [-size, 1, size]])
    K = jnp.array([[f, 0, 20], [0, f, 15], [0, 0, 1]])
    corners = floor[jnp.array([[0, 1, 2], [0, 2, 3]])]
    clipped = clip_faces(corners, near_plane=0.01)
    screen = project_meshes(clipped.face_verts.reshape(1, -1, 3), None, K[None]).reshape(-1, 3, 3)
    raw = rasterize_meshes(screen, None, width=width, height=height, faces_per_pixel=2)
    out = unclip_fragments(raw, clipped)
    y = np.arange(height)[:, None] + 0.5
    below = np.broadcast_to(y > 15 + f / size * 1.01, (height, width))
    there = np.asarray(out.pix_to_face) >= 0
    assert (there[..., 0] == below).mean() > 0.99 and not there[..., 1].any()
    depth = np.broadcast_to(f / np.where(y > 15, y - 15, 1), (height, width))
    seen = there[..., 0] & (depth < 100)
    np.testing.assert_allclose(np.asarray(out.zbuf)[..., 0][seen], depth[seen], rtol=2e-3)
    # The point that the coordinates of the original face give is the one that the ray hits.
    points = np.einsum("...k,...kd->...d", out.bary_coords[..., 0, :], corners[np.asarray(out.pix_to_face)[..., 0]])
    x = np.broadcast_to((np.arange(width) + 0.5 - 20) / f, (height, width)) * depth
    near = seen & (depth < 20)
    np.testing.assert_allclose(points[near], np.stack([x, np.ones_like(x), depth], -1)[near], atol=0.3, rtol=0.02)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"clip_faces: face_verts must have shape \[..., F, 3, 3\]"):
        clip_faces(jnp.zeros((3, 3)))
    with pytest.raises(ValueError, match="camera_model must be one of 'pinhole', 'ortho', got 'fisheye'"):
        project_meshes(jnp.zeros((3, 3)), None, jnp.eye(3), camera_model="fisheye")  # pyright: ignore
