"""The optimiser against plain Optax, group by group."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsplat.optim import LearningRates, Schedule, apply_splat_adam, means_rate, splat_adam, zero_moments
from tests.train.scenes import random_splats, trees_equal


def test_each_group_moves_as_plain_adam_with_its_rate():
    splats = random_splats(5)
    rates = LearningRates(means_end=1.0)
    optimizer = splat_adam(rates, steps=100, scene_scale=2.0)
    state = optimizer.init(splats)
    expected = {**dataclasses.asdict(rates), "means": rates.means * 2.0}
    plain = {name: optax.adam(expected[name], eps=1e-15) for name in splats._fields}
    plain_states = {name: plain[name].init(getattr(splats, name)) for name in splats._fields}
    for seed in range(3):
        gradients = random_splats(5, seed=seed + 1)
        updates, state = optimizer.update(gradients, state)
        for name in splats._fields:
            truth, plain_states[name] = plain[name].update(getattr(gradients, name), plain_states[name])
            np.testing.assert_allclose(getattr(updates, name), np.asarray(truth), rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("count", [1, 5, 700])
def test_one_pass_equals_the_update_and_its_application(count):
    splats = random_splats(count)
    optimizer = splat_adam(steps=100, scene_scale=2.0)
    state = expected_state = optimizer.init(splats)
    expected = splats
    apply = jax.jit(functools.partial(apply_splat_adam, steps=100, scene_scale=2.0), donate_argnums=(0, 2))
    splats, state = jax.tree.map(jnp.copy, (splats, state))
    for seed in range(4):
        gradients = random_splats(count, seed=seed + 1)
        splats, state = apply(splats, gradients, state)
        updates, expected_state = optimizer.update(gradients, expected_state)
        expected = jax.tree.map(jnp.add, expected, updates)
    assert jax.tree.structure(state) == jax.tree.structure(expected_state)
    for got, want in zip(jax.tree.leaves((splats, state)), jax.tree.leaves((expected, expected_state)), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_one_pass_leaves_its_arguments_alone_and_works_under_vmap():
    splats = random_splats(6)
    state = splat_adam(steps=10).init(splats)
    copies = jax.tree.map(jnp.copy, (splats, state))
    gradients = [random_splats(6, seed=seed) for seed in (1, 2)]
    apart = [apply_splat_adam(splats, g, state, steps=10)[0] for g in gradients]
    assert trees_equal(copies, (splats, state))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *gradients)
    together, _ = jax.vmap(lambda g: apply_splat_adam(splats, g, state, steps=10))(stacked)
    assert trees_equal(together, jax.tree.map(lambda *leaves: jnp.stack(leaves), *apart))


def test_one_pass_in_float64_is_that_of_optax():
    with jax.enable_x64():
        splats = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), random_splats(4))
        gradients = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), random_splats(4, seed=1))
        optimizer = splat_adam(steps=10)
        got, _ = apply_splat_adam(splats, gradients, optimizer.init(splats), steps=10)
        updates, _ = optimizer.update(gradients, optimizer.init(splats))
        assert got.means.dtype == jnp.float64
        assert trees_equal(got, jax.tree.map(jnp.add, splats, updates))


@pytest.mark.parametrize(("step", "factor"), [(0, 1.0), (50, 0.1), (100, 0.01), (200, 0.01)])
def test_the_rate_of_the_means_decays_exponentially_and_then_stays(step, factor):
    rate = means_rate(jnp.asarray(step), LearningRates(), steps=100, scene_scale=3.0)
    assert float(rate) == pytest.approx(1.6e-4 * 3.0 * factor, rel=1e-5)


def test_zero_moments_clears_the_given_rows_and_no_others():
    splats = random_splats(4)
    optimizer = splat_adam(steps=10)
    _, state = optimizer.update(random_splats(4, seed=1), optimizer.init(splats))
    rows = jnp.array([False, True, False, True])
    cleared = zero_moments(state, rows)
    for before, after in zip(jax.tree.leaves(state), jax.tree.leaves(cleared), strict=True):
        if before.ndim == 0:
            assert before == after
        else:
            assert not after[1].any() and not after[3].any()
            assert np.array_equal(after[::2], before[::2]) and before[1].any()
    assert trees_equal(zero_moments(state, jnp.zeros(4, bool)), state)


def test_no_gradient_moves_nothing_and_gives_no_nan():
    splats = random_splats(3)
    optimizer = splat_adam(steps=10)
    updates, _ = optimizer.update(jax.tree.map(jnp.zeros_like, splats), optimizer.init(splats))
    assert all(not leaf.any() for leaf in jax.tree.leaves(updates))


@pytest.mark.parametrize("count", [1, 6, 700])
def test_visible_adam_equals_adam_where_all_are_visible_and_leaves_the_others_alone(count):
    splats = random_splats(count)
    _, state = splat_adam(steps=10).update(random_splats(count, seed=1), splat_adam(steps=10).init(splats))
    gradients = random_splats(count, seed=2)
    plain = apply_splat_adam(splats, gradients, state, steps=10)
    every = apply_splat_adam(splats, gradients, state, steps=10, visible=jnp.ones(count, bool))
    assert trees_equal(plain, every)
    # None of the first, some of the next, and all of the last.
    visible = jax.random.bernoulli(jax.random.key(0), jnp.linspace(-0.5, 1.5, count).clip(0, 1))
    some = apply_splat_adam(splats, gradients, state, steps=10, visible=visible)
    for got, moved, old in zip(*map(jax.tree.leaves, (some, plain, (splats, state))), strict=True):
        mask = visible.reshape(visible.shape + (1,) * (got.ndim - 1)) if got.ndim else True
        np.testing.assert_array_equal(got, jnp.where(mask, moved, old))


def test_visible_adam_in_float64_is_that_of_the_kernel():
    splats, gradients = random_splats(6), random_splats(6, seed=1)
    visible = jnp.arange(6) % 2 == 0
    native, _ = apply_splat_adam(splats, gradients, splat_adam(steps=10).init(splats), steps=10, visible=visible)
    with jax.enable_x64():
        double, twice = (jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), s) for s in (splats, gradients))
        exact, _ = apply_splat_adam(double, twice, splat_adam(steps=10).init(double), steps=10, visible=visible)
    for got, want in zip(native, exact, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule(), [1, 1, 1, 1]),
        (Schedule("constant", warmup=0.2), [0, 0.5, 1, 1]),
        (Schedule("cosine", end=0.5), [1, 0.5 + 0.25 * (1 + np.cos(0.1 * np.pi)), 0.75, 0.5]),
        (Schedule("exponential", warmup=0.2, end=0.01), [0, 0.5, 0.01 ** (30 / 80), 0.01]),
    ],
)
def test_schedules_rise_and_fall_for_every_group(schedule, expected):
    rates = LearningRates(schedule=schedule)
    factors = [float(schedule.factor(jnp.asarray(step), steps=100)) for step in (0, 10, 50, 100)]
    np.testing.assert_allclose(factors, expected, rtol=1e-5)
    splats, gradients = random_splats(4), random_splats(4, seed=1)
    adam, _ = optax.scale_by_adam(eps=1e-15).update(gradients, optax.scale_by_adam(eps=1e-15).init(splats))
    optimizer = splat_adam(rates, steps=100)
    updates, _ = optimizer.update(gradients, (optimizer.init(splats)[0], jnp.int32(10)))
    np.testing.assert_allclose(updates.quats, -expected[1] * rates.quats * adam.quats, rtol=1e-5)
    assert float(means_rate(jnp.asarray(10), rates, steps=100)) == pytest.approx(
        expected[1] * rates.means * rates.means_end**0.1, rel=1e-5
    )
