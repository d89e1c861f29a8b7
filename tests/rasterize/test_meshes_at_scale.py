"""The mesh rasterizer on large pictures and on a million faces: right at every pixel, in time that grows linearly."""

from __future__ import annotations

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import rasterize_meshes


def surface(columns, rows, width, height, seed=0):
    """[F, 3, 3] a wavy surface that reaches beyond the picture, of triangles with corners at random places."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[-1 : rows + 2, -1 : columns + 2].astype(np.float64)
    x, y = (p + rng.uniform(-0.2, 0.2, p.shape) for p in (x, y))
    verts = np.stack([x * width / columns, y * height / rows, 3 + np.sin(0.7 * x) * np.cos(0.4 * y)], -1)
    a, b, c, d = verts[:-1, :-1], verts[:-1, 1:], verts[1:, 1:], verts[1:, :-1]
    return np.concatenate([np.stack(t, -2).reshape(-1, 3, 3) for t in ((a, b, d), (b, c, d))]).astype(np.float32)


def face_and_depth(face_verts, px, py):
    """In double precision, by testing every face: the face that covers a point well inside, or -1, and its depth."""
    v = face_verts.astype(np.float64)
    x, y, z = (v[..., k] for k in range(3))
    edges = np.stack([
        (px - x[:, i]) * (y[:, j] - y[:, i]) - (py - y[:, i]) * (x[:, j] - x[:, i]) for i, j in ((1, 2), (2, 0), (0, 1))
    ], -1)  # fmt: skip
    weights = edges / edges.sum(-1, keepdims=True)
    (found,) = np.nonzero(weights.min(-1) > 1e-3)
    return [(int(f), 1 / np.sum(weights[f] / z[f])) for f in found]


@pytest.mark.slow
def test_a_surface_covers_each_of_16_million_pixels_once_with_the_face_that_brute_force_finds():
    size, cells = 4096, 250
    faces = surface(cells, cells, size, size)
    render = functools.partial(rasterize_meshes, width=size, height=size, faces_per_pixel=2)
    out = jax.jit(lambda v: render(v, None))(jnp.asarray(faces))
    pix_to_face, zbuf = np.asarray(out.pix_to_face), np.asarray(out.zbuf)
    assert (pix_to_face[..., 0] >= 0).all() and (pix_to_face[..., 1] == -1).all()
    rng, compared = np.random.default_rng(1), 0
    for column, row in rng.integers(0, size, (150, 2)):
        for face, depth in face_and_depth(faces, column + 0.5, row + 0.5):
            assert pix_to_face[row, column, 0] == face
            np.testing.assert_allclose(zbuf[row, column, 0], depth, rtol=1e-4)
            compared += 1
    assert 140 <= compared <= 150


@pytest.mark.slow
def test_each_of_a_million_faces_is_found_at_its_own_pixel_and_gets_its_own_gradient():
    size = 1000
    rng = np.random.default_rng(0)
    place = rng.permutation(size * size)
    centre = np.stack([place % size + 0.5, place // size + 0.5], -1)[:, None]
    # Around the centre, and around no other.
    corners = centre + 0.45 * np.array([[-1, -1], [1, -1], [0, 1]]) + rng.uniform(-0.1, 0.1, (size * size, 3, 2))
    depths = rng.uniform(1, 9, (size * size, 1, 1)) * np.ones((1, 3, 1))
    verts = jnp.asarray(np.concatenate([corners, depths], -1), jnp.float32)
    weights = jnp.asarray(rng.normal(size=(size, size, 1)), jnp.float32)

    def loss(verts):
        out = rasterize_meshes(verts, None, width=size, height=size)
        return jnp.vdot(out.zbuf, weights), out

    gradient, out = jax.jit(jax.grad(loss, has_aux=True))(verts)
    np.testing.assert_array_equal(np.asarray(out.pix_to_face).reshape(-1)[place], np.arange(size * size))
    np.testing.assert_allclose(np.asarray(out.zbuf).reshape(-1)[place], depths[:, 0, 0], rtol=1e-6)
    # Moved along the axis of view as a whole, a face moves its pixel's depth by as much.
    np.testing.assert_allclose(np.asarray(gradient)[..., 2].sum(-1), weights.reshape(-1)[place], rtol=1e-4, atol=1e-5)


def test_a_picture_of_one_pixel_shows_the_nearest_of_many_layers():
    rng = np.random.default_rng(0)
    layers = np.concatenate(
        [surface(1, 1, 1, 1, seed) + [0, 0, 3 * depth] for seed, depth in enumerate(rng.permutation(40))]
    )
    out = rasterize_meshes(jnp.asarray(layers, jnp.float32), None, width=1, height=1, faces_per_pixel=41)
    zbuf = np.asarray(out.zbuf[0, 0])
    assert (np.diff(zbuf[:40]) > 0).all() and zbuf[40] == -1
    for k, face in enumerate(np.asarray(out.pix_to_face[0, 0, :40])):
        np.testing.assert_allclose(face_and_depth(layers[face : face + 1], 0.5, 0.5)[0][1], zbuf[k], rtol=1e-5)


@pytest.mark.slow
def test_time_grows_with_faces_plus_pixels_and_not_with_their_product():
    """Four times as many faces and pixels: four times the work, not sixteen, in time that a processor spends."""

    def seconds(cells, size):
        verts = jnp.asarray(surface(cells, cells, size, size))
        render = jax.jit(lambda v: rasterize_meshes(v, None, width=size, height=size).zbuf)
        render(verts).block_until_ready()
        best = np.inf
        for _ in range(4):
            start = time.process_time()
            render(verts).block_until_ready()
            best = min(best, time.process_time() - start)
        return best

    assert seconds(400, 1024) < 9 * seconds(200, 512)
