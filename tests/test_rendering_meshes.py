"""The pipeline of meshes against ray tracing, its own stages, and finite differences."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import MeshBlend
from jaxsplat import render_meshes as render_eagerly
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.meshes import sphere
from tests.tolerances import GRADIENT

WIDTH, HEIGHT = 48, 36
SIZE = {"width": WIDTH, "height": HEIGHT}
# Enough faces that none is cut off: beyond a shared corner many are equally deep, and rounding chooses among them.
SOFT = MeshBlend(sigma=1.0, gamma=0.05, faces_per_pixel=24)

# Compiled: one operation at a time takes longer.
render_meshes = jax.jit(
    render_eagerly,
    static_argnames=("width", "height", "shade", "blend", "cull_backfaces", "clip", "camera_model", "backend"),
)


def scene(level=2, dtype=np.float32):
    verts, faces = sphere(level)
    viewmats = np.stack([np.eye(4), np.diag([-1.0, 1, -1, 1])])
    viewmats[:, 2, 3] = 3
    Ks = np.array([[[60.0, 0.5, 24], [0, 61, 18], [0, 0, 1]], [[50, 0, 20], [0, 50, 15], [0, 0, 1]]])
    floats = [jnp.asarray(x, dtype) for x in (verts, verts * 0.5 + 0.5, viewmats, Ks)]
    return floats[0], jnp.asarray(faces), *floats[1:]


def test_points_and_depths_are_where_rays_hit_the_sphere():
    verts, faces, _, viewmats, Ks = scene(level=5)
    out = render_meshes(verts, faces, verts, viewmats, Ks, **SIZE)
    for c in range(2):
        x, y = np.meshgrid(np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5)
        ray = np.linalg.solve(np.asarray(Ks[c], np.float64), np.stack([x, y, np.ones_like(x)], 0).reshape(3, -1)).T
        aa, b = (ray * ray).sum(1), -2 * 3 * ray[:, 2]
        disc = b * b - 4 * aa * 8
        z = (-b - np.sqrt(np.maximum(disc, 0))) / (2 * aa)
        z = z.reshape(HEIGHT, WIDTH)
        hit = (disc > 1).reshape(HEIGHT, WIDTH)
        assert np.all(np.asarray(out.alphas[c, ..., 0])[hit] == 1)
        assert not np.any(np.asarray(out.alphas[c, ..., 0])[(disc < -0.5).reshape(HEIGHT, WIDTH)])
        np.testing.assert_allclose(np.asarray(out.depths[c])[hit], z[hit], atol=2e-3)
        point = (ray.reshape(HEIGHT, WIDTH, 3) * z[..., None] - [0, 0, 3]) @ np.asarray(viewmats[c, :3, :3])
        np.testing.assert_allclose(np.asarray(out.colors[c])[hit], point[hit], atol=5e-3)
        assert np.isinf(out.depths[c][~np.asarray(out.alphas[c, ..., 0], bool)]).all()


def test_from_inside_everything_is_covered_and_without_clipping_it_is_not():
    verts, faces, colors, viewmats, Ks = scene()
    inside = viewmats.at[:, 2, 3].set(0.2)
    wide = Ks.at[:, 0, 0].set(3).at[:, 1, 1].set(3)
    assert np.all(render_meshes(verts, faces, colors, inside, wide, **SIZE).alphas == 1)
    without = render_meshes(verts, faces, colors, inside, wide, clip=False, **SIZE).alphas
    assert 0 < float(without.mean()) < 1


def test_native_pictures_and_gradients_agree_with_the_reference():
    verts, faces, colors, viewmats, Ks = scene(level=0)
    # One camera inside, so that faces are cut.
    viewmats = viewmats.at[0, 2, 3].set(0.5)
    backgrounds = jnp.array([[0.1, 0.2, 0.3], [1.0, 1.0, 1.0]])
    results = []
    for backend in ("native", "reference"):

        def loss(verts, colors, viewmats, Ks, backend=backend):
            out = render_meshes(
                verts, faces, colors, viewmats, Ks, blend=SOFT, backgrounds=backgrounds, backend=backend, **SIZE
            )
            weights = jnp.cos(jnp.arange(out.colors.size)).reshape(out.colors.shape)
            return jnp.vdot(out.colors, weights), out.colors

        results.append(jax.jit(jax.grad(loss, (0, 1, 2, 3), has_aux=True))(verts, colors, viewmats, Ks))
    for got, want in zip(jax.tree.leaves(results[0]), jax.tree.leaves(results[1]), strict=True):
        assert np.linalg.norm(got - want) <= GRADIENT * np.linalg.norm(want)


def test_gradients_agree_with_finite_differences():
    with double_precision():
        verts, faces, colors, viewmats, Ks = scene(level=0, dtype=np.float64)
        size = {"width": 14, "height": 11}
        Ks = Ks * jnp.array([[[0.31], [0.31], [1.0]]])  # no centre lies where two edges are equally near
        # Where a face is cut off, the picture must not jump by more than the differences resolve.
        blend = dataclasses.replace(SOFT, cutoff=1e-12)
        render = functools.partial(render_meshes, blend=blend, backend="reference", **size)
        assert_gradients(lambda v, a, w, k: render(v, faces, a, w, k).colors, [verts, colors, viewmats, Ks])


def test_batches_padding_and_attributes_of_corners_equal_single_meshes():
    verts, faces, colors, viewmats, Ks = scene(level=1)
    render = functools.partial(render_meshes, viewmats=viewmats, Ks=Ks, **SIZE)
    one = render(verts, faces, colors)
    per_corner = render(verts, faces, colors[faces])
    np.testing.assert_array_equal(per_corner.colors, one.colors)
    # Beyond the counts: a triangle in front of the sphere.
    front = jnp.array([[-1.0, -1.0, -1.5], [1.0, -1.0, -1.5], [0.0, 1.0, -1.5]])
    more, more_colors = jnp.concatenate([verts, front]), jnp.concatenate([colors, front])
    extra = jnp.concatenate([faces, jnp.array([[0, 1, 2]] * 3) + len(verts)])
    both = render(
        jnp.stack([more, more * 0.5]), extra, jnp.stack([more_colors, 1 - more_colors]),
        face_counts=jnp.array([len(faces)] * 2),
    )  # fmt: skip
    np.testing.assert_allclose(both.colors[0], one.colors, atol=1e-6)
    np.testing.assert_allclose(both.colors[1], render(verts * 0.5, faces, 1 - colors).colors, atol=1e-6)
    mapped = jax.vmap(lambda v: render(v, faces, colors).colors)(jnp.stack([verts, verts * 0.5]))
    np.testing.assert_allclose(mapped[0], one.colors, atol=1e-6)


def test_shade_sees_the_interpolated_attributes_and_far_faces_are_left_out():
    verts, faces, colors, viewmats, Ks = scene(level=1)
    render = functools.partial(render_meshes, verts, faces, colors, viewmats, Ks, **SIZE)
    plain = render()
    shaded = render(shade=lambda x: 1 - x[..., :2])
    there = np.asarray(plain.alphas[..., 0]) == 1
    np.testing.assert_allclose(shaded.colors[there], 1 - np.asarray(plain.colors)[there][:, :2], atol=1e-6)
    assert not np.any(render(far_plane=1.0).alphas)


def test_under_an_orthographic_camera_attributes_are_linear_on_the_screen():
    verts = jnp.array([[-1.0, -1.0, 2.0], [1.5, -1.0, 6.0], [-1.0, 1.5, 3.0]])
    K = jnp.array([[[15.0, 0, 20], [0, 12, 16], [0, 0, 1]]])
    out = render_meshes(verts, jnp.array([[0, 1, 2]]), verts, jnp.eye(4)[None], K, camera_model="ortho", **SIZE)
    seen = np.asarray(out.alphas[0, ..., 0]) == 1
    assert seen.sum() > 100
    y, x = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    np.testing.assert_allclose(out.colors[0, ..., 0][seen], ((x - 20) / 15)[seen], atol=1e-4)
    np.testing.assert_allclose(out.colors[0, ..., 1][seen], ((y - 16) / 12)[seen], atol=1e-4)


def test_faces_that_turn_clockwise_on_the_screen_can_be_left_out():
    # Down, then to the right: against the clock, where y points down.
    verts = jnp.array([[-0.5, -0.5, 2.0], [-0.5, 0.5, 2.0], [0.5, 0.5, 2.0]])
    K = jnp.array([[[60.0, 0, 24], [0, 60, 18], [0, 0, 1]]])
    for faces, culled, seen in (([0, 1, 2], True, True), ([0, 2, 1], True, False), ([0, 2, 1], False, True)):
        out = render_meshes(verts, jnp.array([faces]), verts, jnp.eye(4)[None], K, cull_backfaces=culled, **SIZE)
        assert bool(out.alphas.any()) == seen


def test_bad_arguments_are_named():
    verts, faces, colors, viewmats, Ks = scene(level=0)
    with pytest.raises(ValueError, match=r"render_meshes: attributes must have shape \[..., V, D\]"):
        render_meshes(verts, faces, colors[:3], viewmats, Ks, **SIZE)
    with pytest.raises(ValueError, match=r"blend must have sigma >= 0.*gamma=0"):
        render_meshes(verts, faces, colors, viewmats, Ks, blend=MeshBlend(gamma=0.0), **SIZE)
