"""The CUDA kernels in the emulator: the tests of the kernels for the CPU, and comparisons with these.

In the borrowed tests the truth is what the kernels for the CPU give, which are themselves held to the reference.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Blend, _ffi, rasterize_gaussians_3d
from tests import test_tiles as tiles
from tests.cuda import emulated, scenes
from tests.rasterize import test_bounded_lists as bounded
from tests.rasterize import test_gaussians_3d as gaussians
from tests.rasterize import test_gaussians_world as worlds
from tests.splats2d import random_splats

pytestmark = emulated.needs_emulator


@pytest.fixture(scope="module", autouse=True)
def library():
    return emulated.register(emulated.build("plain"))


@pytest.fixture
def on_device(monkeypatch):
    """In the borrowed tests, "native" means the emulated kernels, and "reference" those for the CPU."""

    def choose(function):
        @functools.wraps(function)
        def chosen(splats, backend, *arguments, **settings):
            with emulated.emulated() if backend == "native" else contextlib.nullcontext():
                return function(splats, "native", *arguments, **settings)

        return chosen

    monkeypatch.setattr(gaussians, "render", choose(gaussians.render_eagerly))
    monkeypatch.setattr(gaussians, "gradients", choose(gaussians.gradients))


@pytest.fixture
def rays_on_device(monkeypatch):
    """The same for the borrowed tests along rays."""
    programs = {backend: functools.cache(worlds.compiled.__wrapped__) for backend in ("native", "reference")}
    run_here = worlds.run

    def run(arguments, depths, backend="native", **settings):
        monkeypatch.setattr(worlds, "compiled", lambda _, items: programs[backend]("native", items))
        with emulated.emulated() if backend == "native" else contextlib.nullcontext():
            return run_here(arguments, depths, **settings)

    monkeypatch.setattr(worlds, "run", run)


@pytest.fixture
def everywhere():
    with emulated.emulated():
        yield


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 16, 33])
def test_any_number_of_channels(on_device, channels):
    gaussians.test_pictures_and_gradients_agree_with_the_reference(channels)


@pytest.mark.parametrize("tile_size", [4, 8, 12, 16, 20, 28, 32])
def test_any_tile_size(on_device, tile_size):
    gaussians.test_picture_does_not_depend_on_the_tile_size(tile_size)


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (16, 16), (17, 15), (1, 70)])
def test_any_image_size(on_device, size):
    gaussians.test_any_image_size(size)


@pytest.mark.parametrize(
    "blend",
    [
        Blend(alpha_min=0.05),
        Blend(transmittance_min=0.2, blend_last=True),
        Blend(transmittance_min=0.0),
        Blend(max_contributors=3, blend_last=True, transmittance_min=0.1),
        Blend(alpha_gradient_max=0.5),
    ],
    ids=str,
)
def test_every_blend_rule(on_device, blend):
    gaussians.test_every_blend_rule(blend)


@pytest.mark.parametrize("channels", [3, 33])
def test_probe_takes_all_channels_at_once(on_device, channels):
    gaussians.test_probe_takes_all_channels_at_once(channels)


@pytest.mark.parametrize("field", ["means2d", "conics", "colors", "opacities", "depths"])
def test_a_row_that_is_not_finite_changes_nothing_else(on_device, field):
    gaussians.test_a_row_that_is_not_finite_changes_nothing_else(field, jnp.nan)


@pytest.mark.parametrize(
    "body",
    [
        gaussians.test_masked_tiles_show_the_background_with_alpha_zero,
        gaussians.test_opacity_one_on_a_pixel_centre_has_finite_gradients,
        gaussians.test_a_conic_that_is_not_positive_definite_is_not_drawn,
        gaussians.test_equal_depths_are_ordered_by_index,
        gaussians.test_no_splats_show_the_background,
        gaussians.test_probe_gives_the_screen_gradient_and_its_absolute_sum,
    ],
    ids=lambda body: body.__name__.removeprefix("test_"),
)
def test_rasterizer(on_device, body):
    body()


@pytest.mark.parametrize(
    "body",
    [
        functools.partial(gaussians.test_given_lists_give_the_same_bits, 200, 6.0),
        gaussians.test_incomplete_lists_are_refused,
        gaussians.test_listed_splats_that_cannot_be_drawn_get_zero_gradients_and_change_nothing_else,
        *(
            functools.partial(gaussians.test_damaged_lists_are_refused_and_named, *damage)
            for damage in (
                ("gaussian_ids", 120, "gaussian_ids must lie in"),
                ("gaussian_ids", -2, "gaussian_ids"),
                ("tile_offsets", 9999, "tile_offsets must ascend"),
            )
        ),
        gaussians.test_more_intersections_than_lists_can_hold_are_counted_in_the_error,
    ],
    ids=lambda body: getattr(body, "func", body).__name__.removeprefix("test_"),
)
def test_lists_of_the_rasterizer(everywhere, body):
    body()


@pytest.mark.parametrize(
    "body",
    [
        functools.partial(
            tiles.test_exact_lists_hold_every_tile_with_a_pixel_that_is_hit_and_few_others,
            tile_size=4,
            backend="native",
        ),
        functools.partial(tiles.test_boxes_hold_the_tiles_that_the_box_overlaps, per_axis=True, backend="native"),
        tiles.test_lists_are_ordered_by_depth_then_index_or_by_index_alone,
        tiles.test_negative_depths_and_both_zeros_are_ordered,
        tiles.test_capacity_cuts_the_lists_and_the_true_count_says_so,
        tiles.test_opacity_below_the_cut_off_touches_no_tile,
        functools.partial(tiles.test_very_long_pictures_have_as_many_tiles_as_they_need, 16384, 16),
        tiles.test_no_splats_and_nothing_visible_give_empty_lists,
        tiles.test_vmap_equals_the_loop_with_shared_operands,
    ],
    ids=lambda body: getattr(body, "func", body).__name__.removeprefix("test_"),
)
def test_tile_lists(everywhere, body):
    body()


@pytest.mark.parametrize(
    "body",
    [
        *(
            functools.partial(bounded.test_the_nearest_splats_that_fit_are_drawn_and_all_are_counted, left_out)
            for left_out in (-100_000, 0, 1, 40)
        ),
        bounded.test_a_capacity_of_one_shows_no_more_than_splats_that_touch_one_tile,
        functools.partial(bounded.test_settings_are_those_of_lists_without_a_limit, {"tile_size": 20}),
        bounded.test_each_image_of_a_batch_has_the_whole_capacity,
        bounded.test_vmap_equals_the_batch,
        functools.partial(bounded.test_no_intersections_show_the_background_and_count_zero, 0),
        functools.partial(bounded.test_no_intersections_show_the_background_and_count_zero, 5),
        bounded.test_given_lists_count_what_they_hold,
    ],
    ids=lambda body: getattr(body, "func", body).__name__.removeprefix("test_"),
)
def test_lists_of_a_fixed_capacity(everywhere, body):
    """Also that they neither allocate nor read, and give the same when run again: the emulator sees to that."""
    body()


def test_lists_of_a_fixed_capacity_hold_the_same_splats_as_on_the_cpu():
    splats = random_splats(60, **bounded.SIZE)
    want = bounded.value_and_gradients(splats, max_intersections=70)[0]
    with emulated.emulated():
        got = bounded.value_and_gradients(splats, max_intersections=70)[0]
    assert int(got.list_count) > 70
    np.testing.assert_array_equal(got.list_count, want.list_count)
    assert scenes.differences(got._asdict(), want._asdict()) == []


@pytest.mark.parametrize(
    ("n", "capacity", "settings"),
    [
        (30_000, 10, {}),
        (5, 300_000, {}),
        (5, 100_000, {"channels": 20}),
        (5, 100_000, {"tile_size": 32}),
    ],
    ids=["splats", "entries", "wide entries", "entries of large tiles"],
)
def test_the_memory_set_aside_is_enough(everywhere, n, capacity, settings):
    size = {"width": 16, "height": 12, **{k: v for k, v in settings.items() if k != "channels"}}
    splats = random_splats(n, width=16, height=12, channels=settings.get("channels", 3), largest=1)
    splats = splats._replace(radii=splats.radii.at[5:].set(0))
    output, _ = bounded.value_and_gradients(splats, max_intersections=capacity, **size)
    assert np.isfinite(output.colors).all()


def test_a_device_without_memory_for_the_lists_raises_the_error_of_jax_and_lives_on(everywhere, monkeypatch):
    splats = random_splats(20, **bounded.SIZE)
    monkeypatch.setenv("EMULATOR_MEMORY", "1000")
    with pytest.raises(gaussians.KERNEL_ERROR, match="RESOURCE_EXHAUSTED.*out of memory"):
        jax.block_until_ready(bounded.value_and_gradients(splats))
    monkeypatch.delenv("EMULATOR_MEMORY")
    assert np.asarray(bounded.value_and_gradients(splats)[0].alphas).any()


def test_too_little_memory_is_an_error_that_says_so(everywhere, monkeypatch):
    monkeypatch.setattr(_ffi, "workspace_bytes", lambda images, **_: 50_000)
    with pytest.raises(gaussians.KERNEL_ERROR, match="the workspace has no room for [0-9]+ more bytes"):
        jax.block_until_ready(bounded.value_and_gradients(random_splats(20, **bounded.SIZE), max_intersections=5000))


@pytest.mark.parametrize("target", emulated.TARGETS)
def test_only_kernels_of_lists_of_a_fixed_capacity_may_become_part_of_a_cuda_graph(library, target):
    graph_compatible = 1
    traits = library.emulator_traits(getattr(library, f"jaxsplat_{target}"))
    assert traits == (graph_compatible if target.endswith("_static") else 0)


@pytest.mark.parametrize(("blocks", "said"), [(0, b""), (2**31, b"2147483648 blocks of threads are more than")])
def test_more_blocks_than_a_device_starts_at_once_are_refused(library, blocks, said):
    library.emulator_launch_error.restype = ctypes.c_char_p
    library.emulator_launch_error.argtypes = [ctypes.c_long]
    error = library.emulator_launch_error(blocks)
    assert said in error and bool(said) == bool(error)


def test_tile_lists_are_those_of_the_cpu_bit_by_bit():
    splats = random_splats(2000, width=tiles.WIDTH, height=tiles.HEIGHT, images=(2, 3))
    for exact in (True, False):
        want = tiles.intersect(splats, exact=exact, capacity=30_000)
        with emulated.emulated():
            got = tiles.intersect(splats, exact=exact, capacity=30_000)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "body",
    [
        *(
            functools.partial(worlds.test_pictures_and_gradients_agree_with_the_reference, *case)
            for case in ((1, False, False), (3, False, True), (3, True, False), (5, True, True), (40, True, False))
        ),
        functools.partial(
            worlds.test_blend_rules_that_the_ellipses_have, Blend(transmittance_min=0.2, blend_last=True)
        ),
        functools.partial(worlds.test_blend_rules_that_the_ellipses_have, Blend(max_contributors=2)),
        functools.partial(worlds.test_any_tile_size_and_masks, 4),
        functools.partial(worlds.test_any_tile_size_and_masks, 20),
        worlds.test_depth_limit_hides_what_lies_behind,
        worlds.test_given_lists_show_the_same_picture,
        worlds.test_a_ball_is_hit_where_the_ray_comes_closest,
        worlds.test_a_splat_behind_the_origin_adds_nothing,
        functools.partial(worlds.test_a_pixel_without_a_ray_shows_the_background_and_has_no_gradient, (0.0,) * 6),
        functools.partial(
            worlds.test_a_pixel_without_a_ray_shows_the_background_and_has_no_gradient, (0, 0, 0, jnp.nan, 0, 1)
        ),
        worlds.test_opacity_one_along_the_axis_has_finite_gradients,
        worlds.test_turning_a_ball_changes_nothing,
        *(
            functools.partial(worlds.test_a_row_that_is_not_finite_changes_nothing_else, field, jnp.nan)
            for field in ("means", "quats", "scales", "opacities", "colors", "depths")
        ),
        functools.partial(worlds.test_a_row_without_a_shape_is_not_drawn, "quats"),
        functools.partial(worlds.test_a_row_without_a_shape_is_not_drawn, "scales"),
        worlds.test_no_splats_show_the_background,
        worlds.test_gradients_of_other_arguments_are_the_same_whether_or_not_rays_have_one,
        worlds.test_outlines_decide_where_a_splat_is_seen_in_blocks_of_four_pixels,
        worlds.test_the_nearest_splats_that_fit_into_lists_of_a_fixed_capacity_are_drawn,
    ],
    ids=lambda body: getattr(body, "func", body).__name__.removeprefix("test_"),
)
def test_rasterizer_along_rays(rays_on_device, body):
    body()


@pytest.mark.parametrize(
    "body", [worlds.test_golden_picture_and_every_gradient, worlds.test_vmap_equals_a_loop_and_so_does_its_gradient]
)
def test_rasterizer_along_rays_by_itself(everywhere, body):
    body()


def test_gradient_of_vmap_is_vmap_of_gradient_with_shared_operands(everywhere):
    splats = random_splats(40, width=20, height=18, images=(2, 3))
    shared = splats._replace(conics=splats.conics[0], opacities=splats.opacities[0, 0])

    def loss(means2d, conics, colors, opacities, depths, radii):
        output = rasterize_gaussians_3d(
            means2d, conics, colors, opacities, depths=depths, radii=radii, width=20, height=18
        )
        return jnp.sum(output.colors**2)

    def mapped(function):
        return jax.vmap(jax.vmap(function, in_axes=(0, 0, 0, None, 0, 0)), in_axes=(0, None, 0, None, 0, 0))

    outer = jax.grad(lambda *x: mapped(loss)(*x).sum(), argnums=(0, 1, 3))(*shared)
    inner = mapped(jax.grad(loss, argnums=(0, 1, 3)))(*shared)
    np.testing.assert_allclose(outer[0], inner[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(outer[1], inner[1].sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outer[2], inner[2].sum((0, 1)), rtol=1e-4, atol=1e-5)


def test_dense_scene_has_at_least_three_batches_in_a_tile_and_the_last_one_is_partial():
    (scene,) = [scene for name, scene in scenes.scenes(small=True) if name == "dense"]
    offsets = np.diff(np.asarray(scenes.results(scene)["tile_offsets"]))
    assert offsets.max() > 2 * 256 and offsets.max() % 256 != 0


@pytest.mark.parametrize(
    ("kind", "size", "environment"),
    [
        ("plain", "", {"EMULATOR_DEFER": "1"}),
        ("plain", "", {"EMULATOR_ORDER": "1"}),
        ("races", "small", {"EMULATOR_ORDER": "2", "EMULATOR_PREEMPT": "50"}),
        ("sanitized", "", {}),
        ("few at a time", "", {}),
    ],
    ids=[
        "work deferred to the next synchronisation",
        "threads and blocks in reverse order",
        "races",
        "sanitized",
        "images some at a time",
    ],
)
def test_no_fault_is_found(kind, size, environment):
    result = scenes.run(emulated.build(kind), size, environment)
    assert result.returncode == 0, result.stdout + result.stderr
