"""The mesh rasterizer against PyTorch3D's results, the reference, finite differences, and what must hold by itself."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import rasterize_meshes
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.meshes import GOLDEN, golden, soup, sphere
from tests.rasterize.test_gaussians_3d import KERNEL_ERROR
from tests.tolerances import GRADIENT, MESH, MESH_GRADIENT, SINGLE

WIDTH, HEIGHT = 37, 26
FLAGS = list(itertools.product((False, True), (False, True)))
SIZE = {"width": WIDTH, "height": HEIGHT}


def in_order_of(pix_to_face, wanted, values):
    """The values of each wanted face, zero where the pixel does not have it."""
    same = (pix_to_face[..., None, :] == wanted[..., :, None]) & (wanted >= 0)[..., None]
    return [jnp.einsum("...jk,...kd->...jd", same.astype(v.dtype), v) for v in values]


@pytest.mark.parametrize(
    ("name", "backend"),
    [*((name, "native") for name in GOLDEN), ("soup_k8_batch2", "reference")],
)
def test_fragments_and_gradients_are_those_of_pytorch3d(name, backend):
    case = golden(name)

    def loss(face_verts):
        out = rasterize_meshes(
            face_verts, None, first_faces=jnp.asarray(case.first_faces), face_counts=jnp.asarray(case.face_counts),
            backend=backend, **case.settings,
        )  # fmt: skip
        # Faces of equal depth may come in another order.
        values = in_order_of(
            out.pix_to_face, jnp.asarray(case.pix_to_face), (out.zbuf[..., None], out.bary_coords, out.dists[..., None])
        )
        shapes = [v.reshape(c.shape) for v, c in zip(values, case.cotangents, strict=True)]
        return sum(jnp.vdot(v, c) for v, c in zip(shapes, case.cotangents, strict=True)), out

    (_, out), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(jnp.asarray(case.face_verts))
    same = np.asarray(out.pix_to_face) == case.pix_to_face
    assert same.mean() >= MESH.share
    for got, expected in zip(out[1:], case.outputs, strict=True):
        error = np.abs(np.asarray(got) - expected)[same] / np.maximum(np.abs(expected[same]), 1)
        assert error.max() <= MESH.usual
    tame = np.abs(case.gradient).max((1, 2)) < 1e3
    error = np.linalg.norm((np.asarray(gradient) - case.gradient)[tame]) / np.linalg.norm(case.gradient[tame])
    assert error <= MESH_GRADIENT


@pytest.mark.parametrize("name", GOLDEN)
def test_the_kernel_finds_exactly_the_faces_of_pytorch3d(name):
    case = golden(name)
    out = rasterize_meshes(
        jnp.asarray(case.face_verts), None, first_faces=jnp.asarray(case.first_faces),
        face_counts=jnp.asarray(case.face_counts), backend="native", **case.settings,
    )  # fmt: skip
    np.testing.assert_array_equal(out.pix_to_face, case.pix_to_face)


def settings(perspective=True, clip=True, **more):
    return {"perspective_correct": perspective, "clip_barycentric_coords": clip, "blur_radius": 4.0, **SIZE, **more}


@pytest.mark.parametrize(("perspective", "clip"), FLAGS)
def test_gradients_agree_with_finite_differences(perspective, clip):
    with double_precision():
        size = {"width": 15, "height": 11}
        verts = jnp.asarray(soup(7, **size, size=6))
        render = jax.jit(functools.partial(
            rasterize_meshes, faces=None, backend="reference", faces_per_pixel=4, **settings(perspective, clip, **size)
        ))  # fmt: skip
        known = render(verts)
        # Pixels whose faces change with a tiny step are no test of a gradient; none does in this scene.
        moved = render(verts + 2e-6 * np.random.default_rng(7).normal(size=verts.shape))
        np.testing.assert_array_equal(known.pix_to_face, moved.pix_to_face)
        assert_gradients(lambda v: render(v)[1:], [verts])


def linear_form(out, seed=3):
    rng = np.random.default_rng(seed)
    return sum(jnp.vdot(x, jnp.asarray(rng.normal(size=x.shape), x.dtype)) for x in out[1:])


@pytest.mark.parametrize(("perspective", "clip", "faces_per_pixel"), [*((*f, 3) for f in FLAGS), (True, True, 8)])
def test_fragments_and_gradients_agree_with_the_reference(perspective, clip, faces_per_pixel):
    verts = jnp.asarray(soup(20, **SIZE, seed=1), jnp.float32)
    results = []
    for backend in ("native", "reference"):

        def loss(verts, backend=backend):
            out = rasterize_meshes(
                verts, None, backend=backend, faces_per_pixel=faces_per_pixel, cull_backfaces=clip,
                **settings(perspective, clip),
            )  # fmt: skip
            return linear_form(out), out

        results.append(jax.jit(jax.grad(loss, has_aux=True))(verts))
    np.testing.assert_array_equal(results[0][1].pix_to_face, results[1][1].pix_to_face)
    assert_close(*results)


def test_forward_mode_and_second_derivatives_agree_with_the_reference():
    size = {"width": 12, "height": 9}
    verts = jnp.asarray(soup(6, **size, seed=1, size=4), jnp.float32)
    direction = jnp.asarray(np.random.default_rng(2).normal(size=verts.shape), jnp.float32)
    results = []
    for backend in ("native", "reference"):
        render = functools.partial(
            rasterize_meshes, faces=None, backend=backend, faces_per_pixel=2, **settings(True, True, **size)
        )
        gradient = jax.grad(lambda v, render=render: linear_form(render(v)))

        @jax.jit
        def derivatives(verts, render=render, gradient=gradient):
            tangent = jax.jvp(lambda v: render(v)[1:], (verts,), (direction,))[1]
            forward_over_reverse = jax.jvp(gradient, (verts,), (direction,))[1]
            reverse_over_reverse = jax.grad(lambda v: jnp.vdot(gradient(v), direction))(verts)
            return tangent, forward_over_reverse, reverse_over_reverse

        results.append(derivatives(verts))
    assert_close(*results)


def assert_close(got, want):
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.linalg.norm(g - w) <= GRADIENT * np.linalg.norm(w)


def assert_same(got, want):
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


def test_batches_equal_single_calls_with_shared_and_separate_faces():
    rng = np.random.default_rng(0)
    verts = jnp.asarray(rng.uniform([0, 0, 2], [WIDTH, HEIGHT, 5], (3, 12, 3)), jnp.float32)
    faces = jnp.asarray(rng.integers(0, 12, (2, 1, 15, 3)))
    render = functools.partial(rasterize_meshes, faces_per_pixel=3, **settings())
    whole = render(verts, faces)
    mapped = jax.vmap(jax.vmap(render, (0, None)), (None, 0))(verts, faces[:, 0])
    assert_same(mapped, whole)
    for i, j in itertools.product(range(2), range(3)):
        assert_same(jax.tree.map(lambda x, at=(i, j): x[at], whole), render(verts[j], faces[i, 0]))

    def loss(verts, faces):
        return jnp.square(render(verts, faces).zbuf).sum()

    total = jax.grad(lambda v: loss(v, faces))(verts)
    each = jax.vmap(jax.grad(loss), (0, None))(verts, faces[0, 0]) + jax.vmap(jax.grad(loss), (0, None))(
        verts, faces[1, 0]
    )
    np.testing.assert_allclose(total, each, rtol=1e-5, atol=1e-4)
    columns = jax.jacfwd(lambda v: render(v, faces[0, 0]).zbuf.sum())(verts[0])
    np.testing.assert_allclose(columns, jax.grad(lambda v: render(v, faces[0, 0]).zbuf.sum())(verts[0]), atol=1e-3)


def test_padded_and_packed_meshes_equal_single_meshes():
    many = jnp.asarray(soup(20, **SIZE), jnp.float32)
    first, counts = jnp.array([0, 7, 7]), jnp.array([7, 0, 13])
    packed = rasterize_meshes(many, None, first_faces=first, face_counts=counts, faces_per_pixel=2, **SIZE)
    for k in range(3):
        alone = rasterize_meshes(many[first[k] : first[k] + counts[k]], None, faces_per_pixel=2, **SIZE)
        there = alone.pix_to_face >= 0
        np.testing.assert_array_equal(packed.pix_to_face[k], jnp.where(there, alone.pix_to_face + first[k], -1))
        np.testing.assert_array_equal(packed.zbuf[k], alone.zbuf)
    padded = rasterize_meshes(jnp.stack([many, many]), None, face_counts=jnp.array([7, 20]), **SIZE)
    np.testing.assert_array_equal(padded.zbuf[0], packed.zbuf[0, ..., :1])


@pytest.mark.parametrize("bin_size", [4, 8, 32])
def test_bin_size_does_not_change_the_result(bin_size):
    verts = jnp.asarray(soup(60, **SIZE, size=25), jnp.float32)
    render = functools.partial(rasterize_meshes, verts, None, faces_per_pixel=5, **settings())
    assert_same(render(bin_size=bin_size), render())


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 40), (90, 1), (3, 2)])
@pytest.mark.parametrize("convention", ["opencv", "pytorch3d"])
def test_every_size_agrees_with_the_reference(width, height, convention):
    verts = jnp.asarray(soup(30, width=width, height=height, size=5), jnp.float32)
    if convention == "pytorch3d":
        half = min(width, height) / 2
        verts = (verts - jnp.array([[[width / 2, height / 2, 0.0]]])) / jnp.array([[[half, half, 1.0]]])
    render = functools.partial(
        rasterize_meshes, verts, None, width=width, height=height, faces_per_pixel=4, convention=convention,
        blur_radius=0.01, near_plane=2.5, far_plane=5.0,
    )  # fmt: skip
    native, reference = render(backend="native"), render(backend="reference")
    np.testing.assert_array_equal(native.pix_to_face, reference.pix_to_face)
    np.testing.assert_allclose(native.zbuf, reference.zbuf, rtol=1e-5)
    there = native.pix_to_face >= 0
    assert there.any() and (native.zbuf[there] >= 2.5).all() and (native.zbuf[there] <= 5).all()


def test_long_thin_faces_are_found_in_every_tile():
    """Slivers at all angles: the exact spans must not lose a pixel."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-50, 250, (2, 300, 2))
    c = b + rng.normal(size=(300, 2))
    verts = np.concatenate([np.stack([a, b, c], 1), rng.uniform(1, 9, (300, 3, 1))], -1)
    render = functools.partial(
        rasterize_meshes, jnp.asarray(verts, jnp.float32), None, width=200, height=180, faces_per_pixel=6,
        blur_radius=2.0, clip_barycentric_coords=True,
    )  # fmt: skip
    native, reference = render(backend="native"), jax.jit(lambda: render(backend="reference"))()
    assert np.mean(np.asarray(native.pix_to_face) == np.asarray(reference.pix_to_face)) >= MESH.share
    np.testing.assert_array_equal((native.pix_to_face >= 0).sum(-1), (reference.pix_to_face >= 0).sum(-1))


def grid_mesh(columns, rows, jitter, seed=0):
    """A plane of triangles; corners on pixel centres where `jitter` is 0."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:rows, 0:columns] * 3.0 + 0.5
    inner = np.zeros((rows, columns, 1))
    inner[1:-1, 1:-1] = 1
    points = np.stack([x, y, np.full_like(x, 2)], -1) + inner * rng.uniform(-jitter, jitter, (rows, columns, 3)) * [
        1,
        1,
        0,
    ]
    index = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = (index[:-1, :-1], index[:-1, 1:], index[1:, 1:], index[1:, :-1])
    flip = rng.random(a.shape) < 0.5
    first = np.where(flip[..., None], np.stack([a, b, c], -1), np.stack([a, b, d], -1))
    second = np.where(flip[..., None], np.stack([a, c, d], -1), np.stack([b, c, d], -1))
    return jnp.asarray(points.reshape(-1, 3), jnp.float32), jnp.asarray(np.stack([first, second]).reshape(-1, 3))


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("jitter", [0.0, 0.7])
def test_a_surface_covers_each_pixel_exactly_once(jitter, backend):
    """Corners and edges that run through pixel centres included, and each way round."""
    verts, faces = grid_mesh(12, 9, jitter)
    for order in (faces, faces[:, ::-1]):
        out = rasterize_meshes(verts, order, width=33, height=24, faces_per_pixel=3, backend=backend)
        counts = np.asarray(out.pix_to_face >= 0).sum(-1)
        # The outline of the plane runs through centres too: two of its sides have them.
        assert (counts[1:-1, 1:-1] == 1).all() and counts.max() == 1
        if jitter == 0:
            # A centre on an edge goes where it would fall if it moved by (e, e^2).
            moved = verts - jnp.array([[2.0**-6, 2.0**-12, 0]])
            apart = rasterize_meshes(moved, order, width=33, height=24, faces_per_pixel=3, backend=backend)
            np.testing.assert_array_equal(out.pix_to_face, apart.pix_to_face)


def test_a_closed_surface_has_a_front_and_a_back_at_each_pixel():
    verts, faces = sphere(3)
    screen = jnp.asarray(np.stack([verts[:, 0] * 20 + 24, verts[:, 1] * 20 + 24, verts[:, 2] + 3], -1))
    render = functools.partial(rasterize_meshes, screen, jnp.asarray(faces), width=48, height=48, faces_per_pixel=4)
    counts = np.asarray(render().pix_to_face >= 0).sum(-1)
    y, x = np.mgrid[0:48, 0:48] - 23.5
    assert (counts[np.hypot(x, y) < 19.7] == 2).all() and (counts[np.hypot(x, y) > 20] == 0).all()
    culled = render(cull_backfaces=True)
    assert (np.asarray(culled.pix_to_face >= 0).sum(-1) == counts // 2).all()


def broken_faces():
    good = np.array([[5, 5, 3], [30, 8, 3], [10, 22, 3]], np.float32)
    bad = {
        "point": [good[0]] * 3,
        "edge-on": [good[0], good[1], (good[0] + good[1]) / 2],
        "nan": [good[0], good[1], [np.nan, 1, 1]],
        "infinite": [good[0], good[1], [np.inf, 1, 1]],
        "huge": [good[0], [3e38, 0, 1], [0, 3e38, 1]],
        "behind": [good[0], good[1], [20, 20, -1]],
        "at the camera": [good[0], good[1], [20, 20, 0]],
        "denormal": [good[0], good[1], [20, 20, 1e-38]],
    }
    return good, bad


@pytest.mark.parametrize(
    ("kinds", "backend"),
    [*(((kind,), "native") for kind in broken_faces()[1]), (tuple(broken_faces()[1]), "reference")],
)
def test_broken_faces_are_not_drawn_and_change_nothing_else(kinds, backend):
    good, bad = broken_faces()
    faces = jnp.asarray(np.stack([*(np.asarray(bad[kind], np.float32) for kind in kinds), good]))
    render = functools.partial(rasterize_meshes, faces=None, faces_per_pixel=2, backend=backend, **settings())
    render = jax.jit(render)
    alone, both = render(jnp.asarray(good)[None]), render(faces)
    np.testing.assert_array_equal(both.pix_to_face, jnp.where(alone.pix_to_face == 0, len(kinds), -1))
    np.testing.assert_array_equal(both.zbuf, alone.zbuf)
    gradient = jax.jit(jax.grad(lambda v: linear_form(render(v))))(faces)
    assert np.isfinite(gradient).all() and not np.any(gradient[:-1]) and np.any(gradient[-1])


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_empty_meshes_give_empty_pixels(backend):
    for verts, faces in ((jnp.zeros((0, 3, 3)), None), (jnp.zeros((4, 3)), jnp.zeros((0, 3), jnp.int32))):
        render = functools.partial(rasterize_meshes, faces=faces, backend=backend, faces_per_pixel=2, **SIZE)
        out = render(verts)
        assert all((np.asarray(x) == -1).all() for x in out)
        assert not np.any(jax.grad(lambda v, render=render: render(v).zbuf.sum())(verts))


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_of_two_halves_the_nearer_on_the_screen_is_kept(backend):
    quad = np.array([[6, 5, 2], [25, 5, 4], [25, 20, 4], [6, 20, 2]], np.float32)
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    render = functools.partial(
        rasterize_meshes, jnp.asarray(quad), jnp.asarray(faces), faces_per_pixel=2, backend=backend, **settings()
    )
    separate, joined = render(), render(clipped_faces_neighbor_idx=jnp.array([1, 0]))
    dists = np.where(separate.pix_to_face >= 0, separate.dists, np.inf)
    assert (np.asarray(separate.pix_to_face >= 0).sum(-1) == 2).any()
    kept = np.where(joined.pix_to_face[..., 0] >= 0, joined.dists[..., 0], np.inf)
    np.testing.assert_array_equal(kept, dists.min(-1))
    assert (np.asarray(joined.pix_to_face[..., 1]) == -1).all()


def test_results_do_not_depend_on_threads_and_instruction_sets_agree():
    code = """
import sys, numpy as np, jax, jax.numpy as jnp
from jaxsplat import rasterize_meshes
from tests.meshes import soup
verts = jnp.asarray(soup(400, width=120, height=90, size=6), jnp.float32)
kw = dict(width=120, height=90, faces_per_pixel=4, blur_radius=2.0, clip_barycentric_coords=True)
f = lambda v: sum(jnp.sum(x * jnp.cos(x)) for x in rasterize_meshes(v, None, **kw)[1:])
out = jax.jit(lambda v: rasterize_meshes(v, None, **kw))(verts)
np.savez(sys.argv[1], *out, jax.jit(jax.grad(f))(verts))
"""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

    def run(path, **environment):
        variables = {**os.environ, "PYTHONPATH": root, "XLA_FLAGS": "", **environment}
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=variables)
        with np.load(path) as file:
            return [file[name] for name in file.files]

    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.npz")
        one, two, plain = run(path, NPROC="1"), run(path, NPROC="4"), run(path, JAXSPLAT_ISA="baseline")
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.mean(one[0] == plain[0]) >= MESH.share
    same = one[0] == plain[0]
    for a, b in zip(one[1:4], plain[1:4], strict=True):
        np.testing.assert_allclose(a[same], b[same], rtol=1e-3, atol=1e-3)


def test_new_vertices_and_radii_do_not_compile_anew():
    traces = []

    @jax.jit
    def render(verts, radius):
        traces.append(1)
        return rasterize_meshes(verts, None, blur_radius=radius, **SIZE)

    verts = jnp.asarray(soup(5, **SIZE), jnp.float32)
    render(verts, 1.0), render(verts + 1, 2.0)
    assert len(traces) == 1


def test_bad_arguments_are_named():
    verts = jnp.zeros((4, 3))
    faces = jnp.zeros((2, 3), jnp.int32)
    for arguments, more, message in (
        ((verts, faces[:, :2]), {}, r"rasterize_meshes: faces must have shape \[..., F, 3\]"),
        ((verts, faces.astype(jnp.float32)), {}, "faces must be of type integer"),
        ((verts, None), {}, r"verts must have shape \[..., F, 3, 3\]"),
        ((verts, faces), {"faces_per_pixel": 0}, "faces_per_pixel must be at least 1, got 0"),
        ((verts, faces), {"bin_size": 6}, "bin_size must be a multiple of 4"),
        ((verts, faces), {"convention": "opengl"}, "convention must be one of 'opencv', 'pytorch3d', got 'opengl'"),
        ((verts, faces), {"clipped_faces_neighbor_idx": jnp.zeros(3, jnp.int32)}, "clipped_faces_neighbor_idx"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            rasterize_meshes(*arguments, **{**SIZE, **more})
    with pytest.raises(KERNEL_ERROR, match=r"faces \[1, 3\) are not among the 2 given"):
        jax.block_until_ready(
            rasterize_meshes(verts, faces, first_faces=jnp.array(1), face_counts=jnp.array(2), **SIZE)
        )
    with pytest.raises(KERNEL_ERROR, match="blur_radius must be at least 0, got -1"):
        jax.block_until_ready(rasterize_meshes(verts, faces, blur_radius=-1.0, **SIZE))


def test_corners_out_of_range_leave_the_face_out():
    verts = jnp.asarray(broken_faces()[0])
    # In one table of both meshes, the last corner of the first face would be the first of the second mesh.
    out = rasterize_meshes(jnp.stack([verts, verts[::-1]]), jnp.array([[0, 1, 3], [0, 1, -1], [0, 1, 2]]), **SIZE)
    assert set(np.unique(out.pix_to_face)) == {-1, 2}
    assert np.abs(np.asarray(out.bary_coords[out.pix_to_face == 2]).sum(-1) - 1).max() <= 4 * SINGLE
