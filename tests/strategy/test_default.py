"""Adaptive density control: its rules, and the inputs that broke others."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import ScreenProbe
from jaxsplat.optim import splat_adam
from jaxsplat.strategy import Default, Density
from jaxsplat.strategy.default import observe, refine, reset_opacities
from jaxsplat.strategy.rows import Refined, with_capacity
from jaxsplat.train import render_splats
from tests.data import double_precision
from tests.train.scenes import random_splats, trees_equal

KEY = jax.random.key(3)
SETTINGS = Default(cap=40)
ROWS = 16


@functools.cache
def jitted(settings, prune_large=True, use_screen=False):
    # One program a setting: the tests run many small refinements.
    return jax.jit(functools.partial(refine, settings=settings, prune_large=prune_large, use_screen=use_screen))


def scene(opacity=2.0, log_scale=-5.0, count=6, rows=ROWS):
    """Small, clearly visible splats in rows to spare, and no gradients yet."""
    splats = random_splats(count)
    splats = splats._replace(logit_opacities=jnp.full(count, opacity), log_scales=jnp.full((count, 3), log_scale))
    return with_capacity(splats, rows), jnp.int32(count)


def density(pulled=(), rows=ROWS, strength=1.0, radii=()):
    gradients = jnp.zeros(rows).at[jnp.asarray(pulled, jnp.int32)].set(strength)
    sizes = jnp.zeros(rows).at[jnp.asarray(radii, jnp.int32)].set(0.9)
    return Density(gradients, jnp.full(rows, 2, jnp.int32), sizes, jnp.int32(0))


def means_of(splats, count):
    return {tuple(row) for row in np.asarray(splats.means[: int(count)]).tolist()}


def test_small_splats_that_the_loss_pulls_at_are_cloned():
    splats, count = scene()
    result, _ = jitted(SETTINGS)(KEY, splats, count, density([1, 4]))
    assert int(result.num_splats) == 8
    for new, old in zip(jax.tree.leaves(result.splats), jax.tree.leaves(splats), strict=True):
        np.testing.assert_array_equal(new[:6], old[:6])
        np.testing.assert_array_equal(new[6:8], old[jnp.array([1, 4])])
    assert np.array_equal(result.sources[:8], [0, 1, 2, 3, 4, 5, 1, 4])
    assert np.flatnonzero(result.moved[:8]).tolist() == [6, 7]


def test_large_splats_that_the_loss_pulls_at_are_split_into_smaller_ones_drawn_from_them():
    count = 4000
    one = jax.tree.map(lambda x: jnp.tile(x, (count,) + (1,) * (x.ndim - 1)), random_splats(1))
    one = with_capacity(one._replace(log_scales=one.log_scales * 0 - 3.0), 2 * count)
    settings = Default(cap=2 * count)
    state = density(range(count), rows=2 * count)
    result, _ = jitted(settings, prune_large=False)(KEY, one, jnp.int32(count), state)
    assert int(result.num_splats) == 2 * count and result.moved.all()
    np.testing.assert_allclose(result.splats.log_scales, -3.0 - np.log(1.6), rtol=1e-6)
    np.testing.assert_array_equal(result.splats.logit_opacities, one.logit_opacities[0])
    spread = np.cov(np.asarray(result.splats.means).T)
    np.testing.assert_allclose(spread, np.exp(-6.0) * np.eye(3), atol=0.05 * np.exp(-6.0))


def test_parts_lie_along_the_axes_of_the_splat():
    count = 4000
    splats = jax.tree.map(lambda x: jnp.tile(x, (count,) + (1,) * (x.ndim - 1)), random_splats(1))
    half = np.sqrt(0.5)
    splats = splats._replace(
        quats=jnp.tile(jnp.array([[half, 0, 0, half]]), (count, 1)),  # x becomes y
        log_scales=jnp.tile(jnp.array([[-2.0, -9.0, -9.0]]), (count, 1)),
    )
    settings = Default(cap=2 * count)
    state = density(range(count), rows=2 * count)
    result, _ = jitted(settings, prune_large=False)(KEY, with_capacity(splats, 2 * count), jnp.int32(count), state)
    deviations = np.asarray(result.splats.means).std(0)
    assert deviations[1] == pytest.approx(np.exp(-2.0), rel=0.05) and (deviations[[0, 2]] < 1e-3).all()


@pytest.mark.parametrize("log_scale", [-5.0, -3.0], ids=["cloned", "split"])
@pytest.mark.parametrize("logit", [1.0, 30.0], ids=["transparent", "opaque_to_rounding"])
def test_revised_opacity_makes_two_splats_as_opaque_as_the_one_they_were(log_scale, logit):
    splats, count = scene(opacity=logit, log_scale=log_scale)
    result, _ = jitted(Default(cap=40, revised_opacity=True))(KEY, splats, count, density([0]))
    logits = np.asarray(result.splats.logit_opacities, np.float64)
    assert int(result.num_splats) == 7 and logits[0] == logits[6]
    assert 2.0 * np.log1p(np.exp(logits[0])) == pytest.approx(np.log1p(np.exp(logit)), rel=1e-6)  # -log(1 - opacity)
    assert logits[1] == logit


def test_transparent_oversized_and_broken_splats_are_removed_and_the_rest_keeps_its_order():
    splats, count = scene()
    splats = splats._replace(
        logit_opacities=splats.logit_opacities.at[0].set(-9.0),
        log_scales=splats.log_scales.at[2, 1].set(0.0).at[3, 0].set(jnp.nan),
        means=splats.means.at[5, 2].set(jnp.inf),
    )
    result, _ = jitted(SETTINGS)(KEY, splats, count, density())
    assert int(result.num_splats) == 2 and int(result.dead) == 4
    np.testing.assert_array_equal(result.splats.means[:2], splats.means[jnp.array([1, 4])])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.splats))
    assert (np.asarray(jax.nn.sigmoid(result.splats.logit_opacities[2:])) < 1e-6).all()
    kept, _ = jitted(SETTINGS, prune_large=False)(KEY, splats, count, density())
    assert int(kept.num_splats) == 3


def test_all_splats_dead_is_no_operation():
    splats, count = scene(opacity=-9.0)
    result, _ = jitted(SETTINGS)(KEY, splats, count, density([1]))
    assert trees_equal(result.splats, splats) and int(result.num_splats) == 6
    assert int(result.dead) == 6 and int(result.live) == 0 and not result.moved.any()


def test_opacity_exactly_at_the_threshold_is_kept():
    splats, count = scene()
    opacity = float(jax.nn.sigmoid(jnp.float32(2.0)))
    result, _ = jitted(Default(cap=40, min_opacity=opacity))(KEY, splats, count, density())
    assert int(result.num_splats) == 6


def test_where_the_cap_is_too_small_the_largest_gradients_win_and_the_rest_is_counted():
    splats, count = scene()
    state = density([0, 1, 2, 3])
    state = state._replace(gradients=state.gradients.at[jnp.arange(4)].set(jnp.array([1.0, 4.0, 2.0, 3.0])))
    result, _ = jitted(Default(cap=8))(KEY, splats, count, state)
    assert int(result.num_splats) == 8 and int(result.denied) == 2
    assert np.array_equal(result.sources[6:8], [1, 3])


def test_a_refinement_without_room_waits_and_is_the_same_later():
    few, count = scene(rows=7)
    many, _ = scene(rows=ROWS)
    waiting, state = jitted(SETTINGS)(KEY, few, count, density([1, 4, 5], rows=7))
    assert trees_equal(waiting.splats, few) and int(waiting.num_splats) == 6 and not waiting.moved.any()
    assert int(state.wanted) == 9 and state.gradients[1] == 1.0
    done, after = jitted(SETTINGS)(KEY, many, count, density([1, 4, 5]))
    assert int(done.num_splats) == 9 and not after.gradients.any() and not after.views.any()


def test_the_places_of_parts_do_not_depend_on_the_capacity():
    results = []
    for rows in (12, 30):
        splats, count = scene(log_scale=-3.0, rows=rows)
        result, _ = jitted(SETTINGS)(KEY, splats, count, density(range(6), rows=rows))
        results.append(np.asarray(result.splats.means[:12]))
    np.testing.assert_array_equal(*results)


def test_size_on_the_screen_counts_only_when_asked():
    splats, count = scene()
    state = density(radii=[2])
    plain, _ = jitted(SETTINGS)(KEY, splats, count, state)
    assert int(plain.num_splats) == 6
    gone, _ = jitted(SETTINGS, use_screen=True)(KEY, splats, count, state)
    assert int(gone.num_splats) == 5 and tuple(splats.means[2].tolist()) not in means_of(gone.splats, 5)
    split, _ = jitted(Default(cap=40, prune_screen=2.0), use_screen=True)(KEY, splats, count, state)
    assert int(split.num_splats) == 7 and np.flatnonzero(split.moved[:7]).tolist() == [2, 6]


def test_a_reset_lowers_opacities_that_are_still_drawn_and_clears_only_their_moments():
    splats, count = scene(opacity=3.0, count=5)
    splats = splats._replace(logit_opacities=splats.logit_opacities.at[1].set(-5.0))
    refined = Refined(splats, count, jnp.zeros(ROWS, bool), jnp.int32(0), count)
    reset = reset_opacities(refined, jnp.asarray(True), settings=SETTINGS)
    opacities = np.asarray(jax.nn.sigmoid(reset.splats.logit_opacities))
    np.testing.assert_allclose(opacities[[0, 2, 3, 4]], 0.01, rtol=1e-5)
    assert opacities[0] > 1 / 255 and reset.splats.logit_opacities[1] == -5.0
    assert np.array_equal(reset.splats.logit_opacities[5:], splats.logit_opacities[5:])
    assert reset.moved.logit_opacities.all() and not reset.moved.means.any()
    untouched = reset_opacities(refined, jnp.asarray(False), settings=SETTINGS)
    assert trees_equal(untouched.splats, splats) and not untouched.moved.logit_opacities.any()


def test_refinements_and_resets_come_in_their_window_and_never_at_step_zero():
    settings = Default(refine_start=0, refine_stop=0.5, refine_every=10, reset_every=0.25, reset_gap=1, recovery=0)
    due = [step for step in range(100) if bool(settings.is_due(jnp.asarray(step), steps=100))]
    assert due == [10, 20, 25, 30, 40]
    assert resets(settings, 100) == [25]


def resets(settings, steps):
    return [step for step in range(steps) if bool(settings._resets(np.int32(step), steps))]


def test_a_long_run_has_the_published_phases():
    due = [step for step in range(0, 30_000, 50) if bool(Default().is_due(np.int32(step), steps=30_000))]
    assert due == list(range(600, 15_000, 100))
    assert resets(Default(), 30_000) == [3_000, 6_000, 9_000, 12_000]


def test_resets_of_short_runs_leave_steps_to_recover_in_between_and_at_the_end():
    assert resets(Default(), 3_500) == [400, 800, 1_200, 1_600]
    assert resets(Default(), 1_500) == [400]
    assert resets(Default(), 1_200) == []
    assert resets(Default(recovery=0, reset_gap=100), 1_200) == [120, 240, 360, 480]


def test_no_refinement_follows_a_reset_within_the_pause():
    settings = Default(cap=40, refine_start=0, refine_every=10, reset_every=0.2, reset_gap=1, pause_after_reset=15)
    splats, count = scene()

    def grown(settings, *steps):
        refined = jax.jit(lambda step: settings.refine(KEY, splats, count, density([1]), step=step, steps=100))
        return [int(refined(jnp.int32(step))[0].num_splats) > 6 for step in steps]

    assert grown(settings, 20, 30, 40) == [False, False, False]
    assert grown(dataclasses.replace(settings, pause_after_reset=5), 20, 30) == [False, True]


def camera():
    viewmats = jnp.eye(4).at[2, 3].set(3.0)[None]
    return viewmats, jnp.array([[[40.0, 0, 16], [0, 40, 12], [0, 0, 1]]])


def test_statistics_do_not_depend_on_the_size_of_the_pictures_or_the_views_in_a_step():
    gradients = jax.random.normal(KEY, (2, 4, 2))
    radii = jnp.full((2, 4, 2), 3, jnp.int32).at[1, 2, 0].set(0)
    start = SETTINGS.init(4)
    both = observe(start, gradients / 2, radii, width=32, height=24)
    apart = observe(start, gradients[:1], radii[:1], width=32, height=24)
    apart = observe(apart, gradients[1:], radii[1:], width=32, height=24)
    np.testing.assert_allclose(both.gradients, apart.gradients, rtol=1e-6)
    assert both.views.tolist() == apart.views.tolist() == [2, 2, 1, 2]
    doubled = observe(start, gradients / 4, 2 * radii, width=64, height=48)
    np.testing.assert_allclose(doubled.gradients, both.gradients, rtol=1e-6)
    np.testing.assert_allclose(doubled.radii, both.radii)


def test_the_statistic_is_the_length_of_the_gradient_by_the_place_on_a_screen_two_wide():
    gradients = jnp.array([[[3.0, 0.0], [0.0, 2.0]]])
    state = observe(SETTINGS.init(2), gradients, jnp.ones((1, 2, 2), jnp.int32), width=32, height=24)
    np.testing.assert_allclose(state.gradients, [3 * 16, 2 * 12])


@functools.partial(jax.jit, static_argnames=("dtype", "backend"))
def brightness(probe, dtype=jnp.float32, backend="auto"):
    """Mean square of a picture, compiled: one operation at a time the reference takes much longer."""
    scene, cameras = jax.tree.map(lambda x: jnp.asarray(x, dtype), (random_splats(8), camera()))
    images = render_splats(scene, *cameras, width=32, height=24, probe=probe, backend=backend).colors
    return jnp.square(images).mean()


@pytest.mark.parametrize("absolute", [False, True])
def test_probes_give_the_gradient_by_the_place_on_the_screen(absolute):
    zeros = jnp.zeros((1, 8, 2))
    direction = jax.random.normal(KEY, zeros.shape)
    gradient = jax.grad(brightness)(ScreenProbe(zeros, zeros if absolute else None))
    with double_precision():
        step = 1e-4 * jnp.asarray(direction, jnp.float64)
        more, less = (brightness(ScreenProbe(sign * step, None), jnp.float64, "reference") for sign in (1, -1))
    assert float((gradient.grad * direction).sum()) == pytest.approx(float(more - less) / 2e-4, rel=1e-4)
    if absolute:
        assert (np.asarray(gradient.absgrad) >= np.abs(gradient.grad) - 1e-7).all()
    else:
        assert gradient.absgrad is None


def test_the_same_key_gives_the_same_bits_and_another_key_others():
    splats, count = scene(log_scale=-3.0)
    first, _ = jitted(SETTINGS)(KEY, splats, count, density([1]))
    again, _ = jitted(SETTINGS)(KEY, splats, count, density([1]))
    other, _ = jitted(SETTINGS)(jax.random.key(9), splats, count, density([1]))
    assert np.array_equal(first.splats.means, again.splats.means)
    assert not np.array_equal(first.splats.means, other.splats.means)


def test_moments_follow_the_rows():
    from jaxsplat.optim import map_moments, zero_moments

    splats, count = scene()
    splats = splats._replace(logit_opacities=splats.logit_opacities.at[0].set(-9.0))
    optimizer = splat_adam(steps=10)
    gradients = with_capacity(random_splats(6, seed=1), ROWS)
    _, state = optimizer.update(gradients, optimizer.init(splats))
    result, _ = jitted(SETTINGS)(KEY, splats, count, density([2]))
    moved = map_moments(lambda m: jax.tree.map(lambda x: x[result.sources], m), state)
    moments = zero_moments(moved, result.moved)[0].mu
    np.testing.assert_array_equal(moments.means[:5], state[0].mu.means[1:6])
    assert not moments.means[5:].any() and not moments.sh_rest[5:].any()
