"""The MCMC strategy against its equations and the inputs that broke others."""

from math import comb

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxsplat.strategy import MCMC, add_noise, mcmc, refine, regularizer, relocated_values
from tests.train.scenes import random_splats, trees_equal

KEY = jax.random.key(3)
SETTINGS = MCMC(cap=40)


@pytest.mark.parametrize("copies", [1, 2, 3, 10, 51])
def test_relocated_values_equal_the_binomial_sum(copies):
    opacity = np.array([0.006, 0.2, 0.75, 0.99])
    shared = 1 - (1 - opacity) ** (1 / copies)
    terms = ((i, k) for i in range(1, copies + 1) for k in range(i))
    total = sum(comb(i - 1, k) * (-1.0) ** k / np.sqrt(k + 1) * shared ** (k + 1) for i, k in terms)
    new_opacity, new_scale = relocated_values(jnp.asarray(opacity), jnp.full((4, 3), 2.0), jnp.full(4, copies))
    np.testing.assert_allclose(new_opacity, shared, rtol=1e-4)
    np.testing.assert_allclose(new_scale[:, 1], 2.0 * opacity / total, rtol=1e-4)


def test_relocated_values_are_finite_for_opaque_splats_and_many_copies():
    opacity, scale = relocated_values(jnp.array([1.0, 1.0, 0.0]), jnp.ones((3, 3)), jnp.array([2, 5000, 7]))
    assert np.isfinite(opacity).all() and np.isfinite(scale).all()
    assert (np.asarray(opacity[:2]) < 1).all()


def test_dead_splats_become_copies_of_live_ones_and_both_share_the_opacity():
    splats = random_splats(6)
    logits = jnp.array([-9.0, 3.0, -9.0, -9.0, -9.0, -9.0])
    splats = splats._replace(logit_opacities=logits)
    result = refine(KEY, splats, jnp.int32(3), settings=MCMC(cap=3))
    assert int(result.dead) == 2 and int(result.live) == 1 and int(result.num_splats) == 3
    assert np.array_equal(result.moved, [True, True, True, False, False, False])
    np.testing.assert_array_equal(result.splats.means[:3], jnp.tile(splats.means[1:2], (3, 1)))
    expected = 1 - (1 - jax.nn.sigmoid(3.0)) ** (1 / 3)
    np.testing.assert_allclose(jax.nn.sigmoid(result.splats.logit_opacities[:3]), expected, rtol=1e-4)
    assert (np.asarray(result.splats.log_scales[:3]) <= np.asarray(splats.log_scales[1])).all()


def test_rows_that_are_not_in_use_stay_as_they_are():
    splats = random_splats(20)
    result = refine(KEY, splats, jnp.int32(10), settings=MCMC(cap=12, growth=1.0))
    assert int(result.num_splats) == 12
    assert trees_equal(jax.tree.map(lambda x: x[12:], result.splats), jax.tree.map(lambda x: x[12:], splats))


def test_all_splats_dead_is_no_operation():
    splats = random_splats(8)._replace(logit_opacities=jnp.full(8, -9.0))
    result = refine(KEY, splats, jnp.int32(5), settings=SETTINGS)
    assert trees_equal(result.splats, splats) and int(result.num_splats) == 5
    assert int(result.dead) == 5 and int(result.live) == 0 and not result.moved.any()


def test_growth_is_five_percent_up_to_the_cap():
    splats = random_splats(40)._replace(logit_opacities=jnp.zeros(40))
    assert int(refine(KEY, splats, jnp.int32(20), settings=SETTINGS).num_splats) == 21
    assert int(refine(KEY, splats, jnp.int32(39), settings=SETTINGS).num_splats) == 40
    assert int(refine(KEY, splats, jnp.int32(40), settings=SETTINGS).num_splats) == 40


def test_splats_that_find_no_row_are_counted_and_their_rows_asked_for():
    splats, settings = random_splats(20)._replace(logit_opacities=jnp.zeros(20)), MCMC(cap=40, growth=0.5)
    result, wanted = settings.refine(KEY, splats, jnp.int32(16), jnp.int32(0), step=jnp.int32(100), steps=1000)
    assert int(result.num_splats) == 20 and int(result.denied) == 4 and int(wanted) == 30
    _, wanted = settings.refine(KEY, splats, jnp.int32(16), jnp.int32(0), step=jnp.int32(800), steps=1000)
    assert int(wanted) == 0  # it was the last one


def test_rows_to_spare_suffice_for_a_refinement_and_stay_below_the_cap():
    for points, settings in ((1000, MCMC()), (7, MCMC(growth=1.0)), (70_000, MCMC()), (3, MCMC(growth=0.3, cap=4))):
        assert int(mcmc._grown(jnp.int32(points), settings)) <= settings.capacity(points) <= settings.cap


def test_more_splats_than_the_cap_are_kept():
    splats = random_splats(20)._replace(logit_opacities=jnp.zeros(20))
    result = refine(KEY, splats, jnp.int32(18), settings=MCMC(cap=12))
    assert int(result.num_splats) == 18 and not result.moved.any()
    assert trees_equal(result.splats, splats)


def test_splats_that_are_not_finite_are_replaced():
    splats = random_splats(6)._replace(logit_opacities=jnp.zeros(6).at[1].set(jnp.nan))
    splats = splats._replace(means=splats.means.at[2].set(jnp.inf), log_scales=splats.log_scales.at[3].set(jnp.nan))
    result = refine(KEY, splats, jnp.int32(6), settings=MCMC(cap=6))
    assert int(result.dead) == 3
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.splats))


def test_sources_are_drawn_in_proportion_to_opacity():
    weights = jnp.array([0.0, 0.1, 0.0, 0.3, 0.6, 0.0])
    drawn = mcmc._draw(KEY, jnp.tile(weights, 2000))
    share = np.bincount(np.asarray(drawn) % 6, minlength=6) / drawn.size
    np.testing.assert_allclose(share, weights, atol=0.02)
    assert (share[[0, 2, 5]] == 0).all()


def test_the_same_key_gives_the_same_bits_and_another_key_others():
    splats = random_splats(30)
    first = refine(KEY, splats, jnp.int32(20), settings=SETTINGS)
    again = jax.jit(lambda s: refine(KEY, s, jnp.int32(20), settings=SETTINGS))(splats)
    other = refine(jax.random.key(9), splats, jnp.int32(20), settings=SETTINGS)
    assert np.array_equal(first.splats.means, again.splats.means)
    assert not np.array_equal(first.splats.means, other.splats.means)


def test_noise_has_the_covariance_of_the_splat_and_spares_opaque_ones():
    count = 20_000
    one = jax.tree.map(lambda x: jnp.tile(x, (count,) + (1,) * (x.ndim - 1)), random_splats(1))
    clear = one._replace(logit_opacities=jnp.full(count, -12.0))
    rate = jnp.float32(1e-3)
    moves = np.asarray(add_noise(KEY, clear, jnp.int32(count), rate, settings=SETTINGS).means - clear.means)
    turn = Rotation.from_quat(np.roll(np.asarray(one.quats[0]), -1)).as_matrix()
    covariance = turn @ np.diag(np.exp(2 * np.asarray(one.log_scales[0]))) @ turn.T
    gate = 5e5 * 1e-3 / (1 + np.exp(-100 * (1 - 1 / (1 + np.exp(12.0)) - 0.995)))
    expected = gate**2 * covariance @ covariance.T
    np.testing.assert_allclose(np.cov(moves.T), expected, atol=0.03 * np.abs(expected).max())
    opaque = one._replace(logit_opacities=jnp.full(count, 2.0))
    assert np.array_equal(add_noise(KEY, opaque, jnp.int32(count), rate, settings=SETTINGS).means, opaque.means)


def test_noise_leaves_unused_and_broken_rows_alone():
    splats = random_splats(6)._replace(logit_opacities=jnp.full(6, -9.0).at[1].set(jnp.nan))
    splats = splats._replace(quats=splats.quats.at[0].set(0.0), log_scales=splats.log_scales.at[2].set(jnp.inf))
    moved = add_noise(KEY, splats, jnp.int32(4), jnp.float32(1e-4), settings=SETTINGS)
    assert np.isfinite(moved.means).all()
    assert np.array_equal(moved.means[4:], splats.means[4:])
    assert not np.array_equal(moved.means[3], splats.means[3])


def test_the_regularizer_is_the_mean_over_splats_in_use_and_its_gradient_stays_there():
    splats = random_splats(7)
    value, gradient = jax.value_and_grad(lambda s: regularizer(s, jnp.int32(4), settings=SETTINGS))(splats)
    opacity = 1 / (1 + np.exp(-np.asarray(splats.logit_opacities[:4])))
    truth = 0.01 * opacity.mean() + 0.01 * np.exp(np.asarray(splats.log_scales[:4])).mean()
    assert float(value) == pytest.approx(truth, rel=1e-5)
    assert not gradient.logit_opacities[4:].any() and gradient.logit_opacities[:4].all()


def test_refinement_is_due_in_its_window_and_never_at_step_zero():
    settings = MCMC(refine_start=0.0, refine_stop=0.5, refine_every=10)
    due = [step for step in range(100) if bool(settings.is_due(jnp.asarray(step), steps=100))]
    assert due == [10, 20, 30, 40]
