"""Splats in front of and behind something opaque: depth limits, and backgrounds that differ from pixel to pixel."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Blend, ScreenProbe, intersect_tiles, rasterization, rasterize_gaussians_3d, render_meshes
from tests import scenes
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.rasterize.test_gaussians_3d import (
    HEIGHT,
    WIDTH,
    assert_same_gradients,
    assert_same_picture,
    both,
    gradients,
    render,
    weights,
)
from tests.splats2d import random_splats

LEVELS = np.array([0.0, 2.0, 3.75, 5.0, 8.5, np.inf], np.float32)
"""Limits; the depths of the random splats are multiples of a quarter, so that many are equal to one of them."""


def random_limits(shape, seed=4):
    limits = np.random.default_rng(seed).choice(LEVELS, (*shape, HEIGHT, WIDTH))
    # In some tiles no pixel sees all splats.
    limits[..., :20] = np.minimum(limits[..., :20], 5)
    return jnp.asarray(limits)


def pixel_backgrounds(shape, seed=6):
    return jnp.asarray(np.random.default_rng(seed).uniform(size=shape), jnp.float32)


def assert_same_bits(got, want):
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(g, w)


@pytest.mark.parametrize(
    ("channels", "blend"), [(1, Blend()), (3, Blend()), (6, Blend()), (3, Blend(max_contributors=2, blend_last=True))]
)
def test_pictures_and_gradients_agree_with_the_reference(channels, blend):
    splats = random_splats(120, width=WIDTH, height=HEIGHT, channels=channels)
    backgrounds = pixel_backgrounds((HEIGHT, WIDTH, channels))
    both(splats, depth_limit=random_limits(()), backgrounds=backgrounds, blend=blend)


def test_a_pixel_shows_what_it_would_show_without_the_splats_at_its_limit_and_behind():
    splats = random_splats(120, width=WIDTH, height=HEIGHT)
    limits = random_limits(())
    got = render(splats, "native", depth_limit=limits)
    for level in LEVELS:
        nearer = splats._replace(radii=jnp.where(splats.depths[:, None] < level, splats.radii, 0))
        there = np.asarray(limits == level)
        want = render(nearer, "native")
        for name in ("colors", "alphas", "last_ids"):
            np.testing.assert_array_equal(getattr(got, name)[there], getattr(want, name)[there])


@pytest.mark.parametrize("channels", [3, 5])
def test_an_infinite_limit_changes_no_bit_of_pictures_and_gradients(channels):
    splats = random_splats(150, width=WIDTH, height=HEIGHT, channels=channels)
    probe = ScreenProbe(*(jnp.zeros_like(splats.means2d),) * 2)
    infinite = {"depth_limit": jnp.full((HEIGHT, WIDTH), jnp.inf)}
    assert_same_bits(render(splats, "native", **infinite), render(splats, "native"))
    assert_same_bits(gradients(splats, "native", probe, **infinite), gradients(splats, "native", probe))


@pytest.mark.parametrize(
    ("limit", "backend"), [(0.0, "native"), (-1.0, "native"), (np.nan, "native"), (np.nan, "reference")]
)
def test_a_limit_in_front_of_everything_shows_the_background_alone(limit, backend):
    splats = random_splats(60, width=WIDTH, height=HEIGHT)
    settings = {
        "depth_limit": jnp.full((HEIGHT, WIDTH), limit), "backgrounds": pixel_backgrounds((HEIGHT, WIDTH, 3)),
    }  # fmt: skip
    output = render(splats, backend, **settings)
    np.testing.assert_array_equal(output.colors, settings["backgrounds"])
    assert not np.any(output.alphas) and (np.asarray(output.last_ids) == -1).all()
    floats, backgrounds, _ = gradients(splats, backend, **settings)
    np.testing.assert_array_equal(backgrounds, weights(output)[0])
    for g in floats:
        np.testing.assert_array_equal(g, 0)


def test_the_limit_and_the_depths_have_zero_gradients():
    splats = random_splats(60, width=WIDTH, height=HEIGHT)

    def loss(depths, limits):
        return jnp.sum(render(splats._replace(depths=depths), "native", depth_limit=limits).colors ** 2)

    for g in jax.grad(loss, (0, 1))(splats.depths, random_limits(())):
        np.testing.assert_array_equal(g, 0)


def test_given_lists_with_depths_give_the_same_bits():
    splats = random_splats(150, width=WIDTH, height=HEIGHT)
    limits = random_limits(())
    lists = {"conics": splats.conics, "opacities": splats.opacities, "width": WIDTH, "height": HEIGHT, "capacity": 9000}
    tiles = intersect_tiles(splats.means2d, splats.radii, splats.depths, **lists)
    # Another order than that of the depths is the caller's business: limits hold all the same.
    by_index = intersect_tiles(splats.means2d, splats.radii, splats.depths, sort=False, **lists)

    def picture(floats, backend="native", **order):
        return rasterize_gaussians_3d(
            *floats, width=WIDTH, height=HEIGHT, depths=splats.depths, depth_limit=limits, backend=backend, **order
        )

    def gradient(**order):
        wc, wa = weights(picture(splats[:4], **order))
        return jax.grad(lambda f: sum(jnp.vdot(x, w) for x, w in zip(picture(f, **order), (wc, wa), strict=False)))(
            splats[:4]
        )

    assert_same_bits(picture(splats[:4], tiles=tiles), picture(splats[:4], radii=splats.radii))
    assert_same_bits(gradient(tiles=tiles), gradient(radii=splats.radii))
    assert_same_picture(picture(splats[:4], tiles=by_index), picture(splats[:4], "reference", tiles=by_index))


def test_images_share_limits_or_have_their_own_as_in_the_loop():
    splats = random_splats(50, width=WIDTH, height=HEIGHT, images=(2, 3))
    own, shared = random_limits((2, 3)), random_limits((3,))
    backgrounds = pixel_backgrounds((2, 3, HEIGHT, WIDTH, 3))
    for limits in (own, shared):
        whole = render(splats, "native", depth_limit=limits, backgrounds=backgrounds)
        full = jnp.broadcast_to(limits, own.shape)
        mapped = jax.vmap(
            lambda s, d, b: jax.vmap(lambda s, d, b: render(s, "native", depth_limit=d, backgrounds=b))(s, d, b),
            (0, 0 if limits is own else None, 0),
        )(splats, limits, backgrounds)
        assert_same_bits(mapped, whole)
        for i, j in np.ndindex(2, 3):
            alone = jax.tree.map(lambda x, at=(i, j): x[at], splats)
            picture = render(alone, "native", depth_limit=full[i, j], backgrounds=backgrounds[i, j])
            assert_same_bits(jax.tree.map(lambda x, at=(i, j): x[at], whole), picture)
    # The gradient of splats that two limits share is the sum of theirs.
    alone = jax.tree.map(lambda x: x[0, 0], splats)

    def loss(floats, limits):
        moved = alone._replace(**dict(zip(("means2d", "conics", "colors", "opacities"), floats, strict=True)))
        return jnp.sum(jnp.sin(render(moved, "native", depth_limit=limits).colors))

    total = jax.grad(lambda f: loss(f, shared))(alone[:4])
    each = jax.vmap(jax.grad(loss), (None, 0))(alone[:4], shared)
    assert_same_gradients(total, jax.tree.map(lambda x: x.sum(0), each))


# A square that leans: its depth grows from the left to the right.
CORNERS = np.array([[-2, -2, 3], [2, -2, 5], [2, 2, 5], [-2, 2, 3]], np.float64)
HALVES = np.array([[0, 1, 2], [0, 2, 3]])
SIZE = {"width": 28, "height": 20}
CAMERA = np.eye(4)[None], np.array([[[30.0, 0, 13.7], [0, 30, 10], [0, 0, 1]]])


@functools.partial(jax.jit, static_argnames=("backend", "blend", "render_mode"))
def over_mesh(verts, colors, splats, viewmats, Ks, *, backend="native", **settings):
    """The whole thing: splats (means, quats, scales, opacities, colors) over a mesh."""
    mesh = render_meshes(
        verts, jnp.asarray(HALVES), colors, viewmats, Ks, backgrounds=jnp.ones((1, 3), verts.dtype), clip=False,
        backend=backend, **SIZE,
    )  # fmt: skip
    return rasterization(
        *splats, viewmats, Ks, depth_limit=mesh.depths, backgrounds=mesh.colors, backend=backend, **SIZE, **settings
    )


def leaning_scene(dtype=np.float32):
    rng = np.random.default_rng(1)
    scene = scenes.random_scene(8, dtype=dtype)
    splats = (scene.means + jnp.array([[0, 0, 4]], dtype), *scene[1:4], jnp.asarray(rng.uniform(size=(8, 3)), dtype))
    mesh = jnp.asarray(CORNERS, dtype), jnp.asarray(rng.uniform(size=(4, 3)), dtype)
    return (*mesh, splats, *(jnp.asarray(x, dtype) for x in CAMERA))


def test_a_splat_half_behind_a_leaning_square_is_seen_where_the_square_is_farther():
    verts, colors, _, viewmats, Ks = leaning_scene()
    red = jnp.array([[1.0, 0, 0]])
    one = (jnp.array([[0.0, 0, 4]]), jnp.array([[1.0, 0, 0, 0]]), jnp.full((1, 3), 0.4), jnp.array([0.8]), red)
    output = over_mesh(verts, colors, one, viewmats, Ks)
    alone = jax.jit(lambda: rasterization(*one, viewmats, Ks, **SIZE))()
    mesh = jax.jit(lambda: render_meshes(verts, jnp.asarray(HALVES), colors, viewmats, Ks, **SIZE))()
    # The ray through column u meets the square z = 4 + x / 2 at depth 4 / (1 - t / 2), with t = (u - 13.7) / 30.
    t = (np.arange(28) + 0.5 - 13.7) / 30
    in_front = (4 / (1 - t / 2) > 4).reshape(1, 1, 28, 1)
    alpha = np.asarray(alone.alphas) * in_front
    assert (alpha[..., 14:, :] > 0.5).any() and not alpha[..., :14, :].any() and np.any(alone.alphas[..., :14, :])
    np.testing.assert_allclose(output.alphas, alpha, atol=1e-6)
    behind = np.where(np.asarray(mesh.alphas) > 0, mesh.colors, 1)
    np.testing.assert_allclose(output.colors, alpha * np.asarray(red[0]) + (1 - alpha) * behind, atol=1e-5)


def test_gradients_to_mesh_splats_and_camera_agree_with_finite_differences():
    with double_precision():
        verts, colors, splats, viewmats, Ks = leaning_scene(np.float64)

        def picture(verts, colors, means, quats, scales, opacities, splat_colors, viewmats, Ks):
            # The depths of the splats decide and have no gradient: they must stay on their side of the square.
            splats = (means, quats, scales, opacities, splat_colors)
            return over_mesh(
                verts, colors, splats, viewmats, Ks, backend="reference", blend=Blend(alpha_min=1e-12)
            ).colors

        assert_gradients(picture, [verts, colors, *splats, viewmats, Ks])


def test_native_pictures_and_gradients_of_splats_over_meshes_agree_with_the_reference():
    scene = leaning_scene()
    results = []
    for backend in ("native", "reference"):

        def loss(*arguments, backend=backend):
            output = over_mesh(*arguments, backend=backend, render_mode="RGB+ED")
            return jnp.vdot(output.colors, jnp.cos(jnp.arange(output.colors.size)).reshape(output.colors.shape))

        results.append(jax.jit(jax.grad(loss, (0, 1, 2, 3, 4)))(*scene))
    assert_same_gradients(*results)
    assert all(np.any(x) for x in jax.tree.leaves(results[0]))


def test_camera_chunks_take_their_own_limits_and_backgrounds():
    scene = scenes.random_scene(30, cameras=3)
    colors = pixel_backgrounds((30, 3))
    size = {"width": scenes.WIDTH, "height": scenes.HEIGHT}
    shape = (3, scenes.HEIGHT, scenes.WIDTH)
    limits = jnp.asarray(np.random.default_rng(0).choice([3.5, 4.0, np.inf], shape), jnp.float32)
    backgrounds = pixel_backgrounds((*shape, 3))

    def loss(means, backgrounds, chunk):
        output = rasterization(
            means, *scene[1:4], colors, scene.viewmats, scene.Ks, depth_limit=limits, backgrounds=backgrounds,
            camera_chunk=chunk, render_mode="RGB+D", **size,
        )  # fmt: skip
        return jnp.sum(jnp.sin(output.colors)), output.colors

    whole, parts = (
        jax.jit(jax.value_and_grad(functools.partial(loss, chunk=chunk), (0, 1), has_aux=True))(
            scene.means, backgrounds
        )
        for chunk in (None, 2)
    )
    np.testing.assert_allclose(whole[0][1], parts[0][1], atol=1e-5)
    assert_same_gradients(parts[1], whole[1])


def call(**changes):
    splats = random_splats(5, width=WIDTH, height=HEIGHT)
    return rasterize_gaussians_3d(**{**splats._asdict(), "width": WIDTH, "height": HEIGHT, **changes})


TILES = (jnp.zeros(3, jnp.int32), jnp.zeros(13, jnp.int32), jnp.zeros(5, jnp.int32), jnp.int32(0))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"depth_limit": jnp.zeros((WIDTH, HEIGHT))},
            ValueError,
            r"depth_limit must have shape \[..., 38, 53\], got \[53, 38\]",
        ),
        (
            {"depth_limit": jnp.zeros((HEIGHT, WIDTH), jnp.int32)},
            TypeError,
            "depth_limit must hold floating-point numbers, got int32",
        ),
        (
            {"backgrounds": jnp.zeros((WIDTH, HEIGHT, 3))},
            ValueError,
            r"backgrounds must have shape \[..., 38, 53, D\] with D = 3",
        ),
        (
            {"backgrounds": jnp.zeros((HEIGHT, WIDTH, 4))},
            ValueError,
            r"backgrounds must have shape \[..., 38, 53, D\] with D = 3",
        ),
        (
            {"tiles": TILES, "depths": None, "radii": None, "depth_limit": jnp.zeros((HEIGHT, WIDTH))},
            ValueError,
            "depth_limit needs depths",
        ),
    ],
)
def test_bad_arguments_are_named_with_what_was_expected_and_what_came(changes, error, message):
    if "tiles" in changes:
        tiles = intersect_tiles(
            jnp.zeros((5, 2)), jnp.ones((5, 2), jnp.int32), jnp.ones(5), width=WIDTH, height=HEIGHT, capacity=9
        )
        changes = {**changes, "tiles": tiles}
    with pytest.raises(error, match=message):
        call(**changes)


def test_the_pipeline_names_limits_and_backgrounds_of_a_wrong_shape():
    scene = scenes.random_scene(5)
    draw = functools.partial(rasterization, *scene[:4], jnp.zeros((5, 3)), scene.viewmats, scene.Ks, width=8, height=6)
    with pytest.raises(ValueError, match=r"rasterization: depth_limit must have shape \[..., C, 6, 8\].*got \[6, 8\]"):
        draw(depth_limit=jnp.zeros((6, 8)))
    with pytest.raises(
        ValueError, match=r"rasterization: backgrounds must have shape \[..., C, 6, 8, D\].*got \[2, 8, 6, 3\]"
    ):
        draw(backgrounds=jnp.zeros((2, 8, 6, 3)))
