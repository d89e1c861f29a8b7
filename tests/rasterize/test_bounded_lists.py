"""Tile lists of a fixed capacity: without overflow they change nothing, else the nearest splats that fit stay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Blend, intersect_tiles, rasterization, rasterize_gaussians_3d
from tests.scenes import random_scene
from tests.splats2d import random_splats
from tests.tolerances import GRADIENT, PICTURE

SIZE = {"width": 45, "height": 30}
FLOATS = ("means2d", "conics", "colors", "opacities")


def value_and_gradients(splats, backend="native", **settings):
    """What is rendered, and the gradients of a random linear form of it."""

    def loss(floats):
        output = rasterize_gaussians_3d(
            *floats, depths=splats.depths, radii=splats.radii, **{**SIZE, **settings}, backend=backend
        )
        rng = np.random.default_rng(5)
        return sum(jnp.sum(x * jnp.asarray(rng.normal(size=x.shape), jnp.float32)) for x in output[:2]), output

    gradients, output = jax.jit(jax.grad(loss, has_aux=True))(tuple(splats[:4]))
    return output, gradients


def tiles_of(splats, **settings):
    """[..., N] how many tiles each splat touches."""
    lists = intersect_tiles(
        splats.means2d, splats.radii, splats.depths, conics=splats.conics, opacities=splats.opacities, capacity=1,
        **{**SIZE, **settings},
    )  # fmt: skip
    return np.asarray(lists.tiles_per_gaussian, np.int64)


def nearest_that_fit(splats, most, touched):
    """The splats with those culled that do not fit."""
    order = np.argsort(np.asarray(splats.depths), -1, kind="stable")
    fits = np.zeros(touched.shape, bool)
    np.put_along_axis(fits, order, np.cumsum(np.take_along_axis(touched, order, -1), -1) <= most, -1)
    return splats._replace(radii=jnp.where(fits[..., None], splats.radii, 0)), fits


def assert_same_bits(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)


def check_capacity(splats, most, **settings):
    """The picture and the gradients are those of the nearest splats that fit, and the count is that of all."""
    touched = tiles_of(splats, **{k: v for k, v in settings.items() if k == "tile_size"})
    output, gradients = value_and_gradients(splats, max_intersections=most, **settings)
    fitting, fits = nearest_that_fit(splats, most, touched)
    want, want_gradients = value_and_gradients(fitting, **settings)
    np.testing.assert_array_equal(output.list_count, touched.sum(-1))
    np.testing.assert_array_equal(want.list_count, np.where(fits, touched, 0).sum(-1))
    assert_same_bits((output[:3], gradients), (want[:3], want_gradients))
    for gradient in gradients:
        assert not np.asarray(gradient)[~fits].any()
    return output, fits


@pytest.mark.parametrize("left_out", [-100_000, 0, 1, 40])
def test_the_nearest_splats_that_fit_are_drawn_and_all_are_counted(left_out):
    splats = random_splats(90, **SIZE)
    total = int(tiles_of(splats).sum())
    output, fits = check_capacity(splats, total - left_out)
    assert fits.all() == (left_out <= 0) and int(output.list_count) == total
    assert np.asarray(output.colors).any()


def test_a_capacity_of_one_shows_no_more_than_splats_that_touch_one_tile():
    splats = random_splats(90, **SIZE)
    _, fits = check_capacity(splats, 1)
    assert tiles_of(splats)[fits].sum() <= 1


@pytest.mark.parametrize(
    "settings",
    [
        {"tile_size": 20},
        {"blend": Blend(max_contributors=3, blend_last=True, transmittance_min=0.1)},
        {"masks": jnp.ones((2, 3), jnp.bool_).at[1, 1].set(False)},
    ],
    ids=["large tiles", "blend rule", "mask"],
)
def test_settings_are_those_of_lists_without_a_limit(settings):
    _, fits = check_capacity(random_splats(90, **SIZE, channels=6), 50, **settings)
    assert not fits.all()


def test_each_image_of_a_batch_has_the_whole_capacity():
    splats = random_splats(40, **SIZE, images=(2, 3))
    touched = tiles_of(splats)
    output, fits = check_capacity(splats, int(np.median(touched.sum(-1))))
    assert 0 < fits.all(-1).sum() < 6
    assert output.list_count.shape == (2, 3)


def test_vmap_equals_the_batch():
    splats = random_splats(40, **SIZE, images=(3,))
    shared = splats._replace(opacities=splats.opacities[0])
    axes = splats._replace(**dict.fromkeys(splats._fields, 0))._replace(opacities=None)

    def render(s):
        return rasterize_gaussians_3d(*s[:4], depths=s.depths, radii=s.radii, max_intersections=60, **SIZE)

    assert_same_bits(jax.vmap(render, (axes,))(shared), render(shared))


@pytest.mark.parametrize("n", [0, 5])
def test_no_intersections_show_the_background_and_count_zero(n):
    splats = random_splats(n, **SIZE)
    splats = splats._replace(radii=jnp.zeros_like(splats.radii))
    output, _ = value_and_gradients(splats, max_intersections=7, backgrounds=jnp.array([0.1, 0.2, 0.3]))
    np.testing.assert_allclose(output.colors, jnp.broadcast_to(jnp.array([0.1, 0.2, 0.3]), output.colors.shape))
    assert int(output.list_count) == 0 and not np.asarray(output.alphas).any()


@pytest.mark.parametrize("most", [None, 30])
def test_reference_leaves_the_same_splats_out(most):
    splats = random_splats(40, **SIZE)
    (got, v_got), (want, v_want) = (
        value_and_gradients(splats, backend, max_intersections=most) for backend in ("native", "reference")
    )
    assert int(want.list_count) > 30
    np.testing.assert_allclose(got.list_count, want.list_count, atol=2)  # a margin for rounding at the rims of tiles
    difference = np.abs(np.asarray(got.colors) - np.asarray(want.colors))
    assert np.mean(difference <= PICTURE.usual) >= PICTURE.share and difference.max() <= PICTURE.worst
    for a, b in zip(v_got, v_want, strict=True):
        assert np.linalg.norm(a - b) <= GRADIENT * np.linalg.norm(b)


def test_given_lists_count_what_they_hold():
    splats = random_splats(90, **SIZE)
    lists = intersect_tiles(splats.means2d, splats.radii, splats.depths, capacity=5000, **SIZE)
    for backend in ("native", "reference"):
        output = rasterize_gaussians_3d(*splats[:4], tiles=lists, backend=backend, **SIZE)
        assert int(output.list_count) == int(lists.count) > 0


def scene_picture(**settings):
    scene = random_scene(30, cameras=2)
    return rasterization(
        scene.means, scene.quats, scene.scales, scene.opacities, jnp.ones((30, 3)), scene.viewmats, scene.Ks, width=40,
        height=30, **settings,
    )  # fmt: skip


def test_the_pipeline_reports_the_count_of_each_camera():
    whole = scene_picture()
    count = np.asarray(whole.info.list_count)
    assert count.shape == (2,) and (count > 10).all()
    assert_same_bits(scene_picture(max_intersections=int(count.max())), whole)
    cut = scene_picture(max_intersections=10)
    np.testing.assert_array_equal(cut.info.list_count, count)
    assert (np.asarray(cut.alphas) < np.asarray(whole.alphas)).any()


@pytest.mark.parametrize(
    ("most", "error", "message"),
    [
        (0, ValueError, "max_intersections must be at least 1, got 0"),
        (2.0, TypeError, "max_intersections must be a static int"),
    ],
)
def test_capacities_that_make_no_sense_are_named(most, error, message):
    with pytest.raises(error, match=message):
        value_and_gradients(random_splats(5, **SIZE), max_intersections=most)


def test_a_capacity_beside_given_lists_and_one_that_nobody_would_see_exceeded_are_refused():
    splats = random_splats(5, **SIZE)
    lists = intersect_tiles(splats.means2d, splats.radii, splats.depths, capacity=50, **SIZE)
    with pytest.raises(ValueError, match="max_intersections is for lists that are found here, but tiles is given"):
        rasterize_gaussians_3d(*splats[:4], tiles=lists, max_intersections=50, **SIZE)
    with pytest.raises(ValueError, match="max_intersections needs info, which camera_chunk leaves out"):
        scene_picture(max_intersections=50, camera_chunk=1)
