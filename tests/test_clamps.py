"""Bounded steps against Adam by hand, and bounded shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxsplat.clamps import Clamp, Clamps, clamped, limit_anisotropy
from jaxsplat.optim import LearningRates, apply_splat_adam, splat_adam
from tests.train.scenes import random_splats, trees_equal


def test_infinite_clamps_leave_adam_as_it_is():
    parameters = {"a": jnp.array([1.0, -2.0]), "b": jnp.ones((3, 2))}
    plain, bounded = optax.adam(1e-2), clamped(optax.adam(1e-2), Clamp())
    states, values = [plain.init(parameters), bounded.init(parameters)], [parameters, parameters]
    for seed in range(4):
        gradients = jax.tree.map(lambda x, seed=seed: jax.random.normal(jax.random.key(seed), x.shape) * 30, parameters)
        for i, optimizer in enumerate((plain, bounded)):
            updates, states[i] = optimizer.update(gradients, states[i], values[i])
            values[i] = optax.apply_updates(values[i], updates)
        assert trees_equal(*values) and trees_equal(*states)


def adam_by_hand(values, gradients, clamp, *, rate):
    """Every step of Adam over a list of gradients, in numpy."""
    first, second, track = np.zeros_like(values), np.zeros_like(values), [values]
    for t, gradient in enumerate(gradients, 1):
        gradient = np.clip(np.where(np.isfinite(gradient), gradient, 0), -clamp.gradient, clamp.gradient)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        move = rate * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-15)
        moved = track[-1] - np.clip(move, -clamp.update, clamp.update)
        track.append(np.clip(moved, clamp.low, clamp.high))
    return track


CLAMPS = Clamps(
    Clamp(gradient=0.3),
    Clamp(update=5e-4),
    Clamp(low=-2.1, high=-1.9),
    Clamp(0.5, 0.02, -1.0, 1.0),
    Clamp(),
    Clamp(0.1),
)


def spoilt_gradients(count):
    gradients = [random_splats(count, seed=seed) for seed in range(1, 6)]
    gradients[1] = gradients[1]._replace(means=gradients[1].means.at[0].set(jnp.nan))
    gradients[3] = gradients[3]._replace(sh_rest=gradients[3].sh_rest.at[1, 0].set(-jnp.inf))
    return gradients


@pytest.mark.parametrize("one_pass", [False, True])
def test_each_group_steps_within_its_own_clamps(one_pass):
    splats, gradients = random_splats(7), spoilt_gradients(7)
    rates = LearningRates(means_end=1.0)
    optimizer = clamped(splat_adam(rates, steps=100), CLAMPS)
    state, got = optimizer.init(splats), splats
    for gradient in gradients:
        if one_pass:
            got, state = apply_splat_adam(got, gradient, state, rates, steps=100, clamps=CLAMPS)
        else:
            updates, state = optimizer.update(gradient, state, got)
            got = jax.tree.map(jnp.add, got, updates)
    bounded = 0
    for name in splats._fields:
        clamp, values = getattr(CLAMPS, name), np.asarray(getattr(splats, name), np.float64)
        series = [np.asarray(getattr(g, name), np.float64) for g in gradients]
        wanted = adam_by_hand(values, series, clamp, rate=getattr(rates, name))[-1]
        np.testing.assert_allclose(getattr(got, name), wanted, rtol=1e-4, atol=2e-6, err_msg=name)
        free = adam_by_hand(values, series, Clamp(), rate=getattr(rates, name))[-1]
        bounded += np.abs(free - wanted).max() > 1e-5
    assert bounded == 5  # all but sh_dc, which has no clamps


def test_clamps_leave_splats_alone_that_no_view_shows():
    splats, gradients = random_splats(6), random_splats(6, seed=1)
    visible = jnp.arange(6) % 2 == 0
    state = splat_adam(steps=10).init(splats)
    clamps = Clamps(*[Clamp(low=-0.1, high=0.1)] * 6)
    got, _ = apply_splat_adam(splats, gradients, state, steps=10, visible=visible, clamps=clamps)
    assert trees_equal(*(jax.tree.map(lambda x: x[1::2], s) for s in (got, splats)))
    assert all(float(jnp.abs(leaf[::2]).max()) <= np.float32(0.1) for leaf in got)


def test_clamps_may_be_told_by_group_of_any_tree():
    parameters = {"packed": jnp.zeros((2, 3)), "other": {"x": jnp.zeros(2), "y": jnp.zeros(())}}
    optimizer = clamped(optax.sgd(1.0), {"packed": Clamp(update=0.5), "other": Clamp(gradient=0.25)})
    updates, _ = optimizer.update(jax.tree.map(lambda x: x + 2.0, parameters), optimizer.init(parameters), parameters)
    assert {float(v) for v in jnp.unique(updates["packed"])} == {-0.5}
    assert all(float(jnp.abs(leaf + 0.25).max()) == 0 for leaf in jax.tree.leaves(updates["other"]))


def test_clamps_that_cannot_hold_are_refused():
    with pytest.raises(ValueError, match="Clamp: gradient and update must be above 0, and low below high, got"):
        Clamp(update=0.0)
    with pytest.raises(ValueError, match="low below high"):
        Clamp(low=1.0, high=1.0)
    optimizer = clamped(optax.sgd(1.0), Clamp(high=1.0))
    with pytest.raises(ValueError, match="clamped: update must be given params where a clamp bounds the values"):
        optimizer.update({"x": jnp.zeros(2)}, optimizer.init({"x": jnp.zeros(2)}))


def test_no_axis_is_shorter_than_the_longest_by_more_than_the_ratio():
    splats = random_splats(50)._replace(log_scales=jax.random.normal(jax.random.key(0), (50, 3)) * 2)
    scales = np.exp(np.asarray(splats.log_scales, np.float64))
    limited = limit_anisotropy(splats, max_ratio=4.0)
    wanted = np.maximum(scales, scales.max(-1, keepdims=True) / 4)
    np.testing.assert_allclose(jnp.exp(limited.log_scales), wanted, rtol=1e-5)
    assert trees_equal(limited._replace(log_scales=splats.log_scales), splats)
    assert trees_equal(limit_anisotropy(splats, max_ratio=np.inf), splats)
    with pytest.raises(ValueError, match="limit_anisotropy: max_ratio must be at least 1, got 0.5"):
        limit_anisotropy(splats, max_ratio=0.5)


def test_a_raised_axis_passes_its_gradient_to_the_longest():
    splats = random_splats(1)._replace(log_scales=jnp.array([[0.0, -5.0, -0.5]]))
    weights = jnp.array([[1.0, 10.0, 100.0]])

    def loss(log_scales):
        return jnp.sum(limit_anisotropy(splats._replace(log_scales=log_scales), max_ratio=3.0).log_scales * weights)

    np.testing.assert_allclose(jax.grad(loss)(splats.log_scales), [[11.0, 0.0, 100.0]])
