"""The training step: pure, jit-able, the same bits twice, and it learns."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.strategy import MCMC
from jaxsplat.train import Batch, TrainConfig, init_state, make_renderer, make_train_step, render_splats
from jaxsplat.train.objective import active_bands
from tests.data import double_precision
from tests.train.scenes import random_splats, trees_equal

SIZE: dict[str, Any] = {"width": 32, "height": 24}
VIEWMATS = jnp.tile(jnp.eye(4).at[2, 3].set(3.0)[None], (2, 1, 1)).at[1, 0, 3].set(0.3)
KS = jnp.tile(jnp.array([[[40.0, 0, 16], [0, 40, 12], [0, 0, 1]]]), (2, 1, 1))
CONFIG = TrainConfig(
    steps=60,
    sh_degree=1,
    strategy=MCMC(cap=60, refine_every=10, refine_start=0.0, noise=1e3),
    background=(1.0, 1.0, 1.0),
)


def batch():
    truth = render_splats(random_splats(40, seed=7), VIEWMATS, KS, **SIZE, background=(1.0, 1.0, 1.0)).colors
    return Batch(jnp.clip(truth, 0, 1), VIEWMATS, KS)


def start(config=CONFIG):
    points = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32) * 0.5
    return init_state(config, points, np.full_like(points, 0.5))


def test_training_reduces_the_loss_and_grows_the_scene():
    step, state, data = jax.jit(make_train_step(CONFIG)), start(), batch()
    losses = []
    for _ in range(60):
        state, metrics = step(state, data)
        losses.append(float(metrics.loss))
    assert losses[-1] < 0.6 * losses[0]
    assert int(state.step) == 60 and 40 < int(state.num_splats) <= 60
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.splats))


def test_two_runs_with_one_seed_give_the_same_bits_and_another_seed_does_not():
    step, data = jax.jit(make_train_step(CONFIG)), batch()

    def run(seed):
        state = start(dataclasses.replace(CONFIG, seed=seed))
        for _ in range(12):
            state, _ = step(state, data)
        return state.splats

    assert trees_equal(run(0), run(0))
    assert not trees_equal(run(0), run(1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_double_precision_may_be_on_and_the_scene_keeps_its_type(dtype):
    with double_precision():
        points = np.random.default_rng(1).normal(size=(10, 3)).astype(dtype)
        state = init_state(CONFIG, points, np.full_like(points, 0.5))
        data = Batch(jnp.full((1, 24, 32, 3), 9, jnp.uint8), VIEWMATS[:1].astype(dtype), KS[:1].astype(dtype))
        config = dataclasses.replace(CONFIG, backend="reference")
        after, metrics = jax.jit(make_train_step(config))(state, data)
        assert [leaf.dtype for leaf in jax.tree.leaves(after)] == [leaf.dtype for leaf in jax.tree.leaves(state)]
        assert np.isfinite(float(metrics.loss))


def test_8_bit_pictures_are_scaled_to_the_unit_range():
    step, data = jax.jit(make_train_step(CONFIG)), batch()
    bytes_ = jnp.round(data.images * 255).astype(jnp.uint8)
    _, exact = step(start(), data._replace(images=bytes_.astype(jnp.float32) / 255))
    _, whole = step(start(), data._replace(images=bytes_))
    np.testing.assert_allclose(exact.loss, whole.loss, rtol=1e-6)


def test_moments_of_moved_rows_are_cleared_in_the_step_that_moves_them():
    settings = MCMC(cap=40, refine_every=1, refine_start=0.0, growth=0.0)
    config = dataclasses.replace(CONFIG, strategy=settings)
    state = start(config)
    logits = state.splats.logit_opacities.at[:3].set(-9.0)
    state = state._replace(splats=state.splats._replace(logit_opacities=logits))
    state, metrics = jax.jit(make_train_step(config))(state, batch())
    assert int(metrics.dead) == 3 and not bool(metrics.stuck)
    moments = state.opt_state[0].mu
    assert not moments.means[:3].any() and not moments.sh_dc[:3].any()
    assert moments.means[3:].any()


def test_a_scene_of_dead_splats_only_is_reported_and_stays_finite():
    config = dataclasses.replace(CONFIG, strategy=MCMC(cap=40, refine_every=1, refine_start=0.0))
    state = start(config)
    state = state._replace(splats=state.splats._replace(logit_opacities=jnp.full(40, -12.0)))
    state, metrics = jax.jit(make_train_step(config))(state, batch())
    assert bool(metrics.stuck) and int(metrics.dead) == 40
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.splats))


@pytest.mark.parametrize("antialiased", [False, True])
def test_the_step_renders_small_splats_as_the_configuration_says(antialiased):
    config = dataclasses.replace(CONFIG, antialiased=antialiased)
    state = start(config)
    state = state._replace(splats=state.splats._replace(log_scales=jnp.full((60, 3), -5.0)))
    settings: dict[str, Any] = {**SIZE, "background": (1.0, 1.0, 1.0)}
    plain, filtered = (
        render_splats(state.splats, VIEWMATS, KS, **settings, antialiased=on).colors for on in (False, True)
    )
    assert float(jnp.abs(plain - filtered).max()) > 0.01
    _, metrics = jax.jit(make_train_step(config))(state, Batch(filtered if antialiased else plain, VIEWMATS, KS))
    assert float(metrics.psnr) > 60


def test_the_noise_fades_with_the_learning_rate_of_the_means():
    config = dataclasses.replace(CONFIG, strategy=MCMC(cap=40, refine_every=1000, noise=1e3))
    state = start(config)
    clear = state.splats._replace(logit_opacities=jnp.full(40, -12.0), log_scales=jnp.zeros((40, 3)))
    step, data = jax.jit(make_train_step(config)), batch()

    def moved(done):
        after, _ = step(state._replace(splats=clear, step=jnp.int32(done)), data)
        return float(jnp.sqrt(jnp.square(after.splats.means - clear.means).mean()))

    assert moved(0) > 0
    assert moved(config.steps) / moved(0) == pytest.approx(config.rates.means_end, rel=0.4)


def test_bands_of_spherical_harmonics_come_into_use_one_after_another():
    config = TrainConfig(steps=100, sh_degree=3, sh_interval=0.1)
    used = [int(np.asarray(active_bands(jnp.asarray(step), config)).sum()) for step in (0, 9, 10, 19, 20, 30, 99)]
    assert used == [0, 0, 3, 3, 8, 15, 15]


def test_bands_that_are_not_in_use_stay_zero():
    config = dataclasses.replace(CONFIG, sh_interval=0.05)
    step, state, data = jax.jit(make_train_step(config)), start(config), batch()
    for _ in range(3):
        state, _ = step(state, data)
    assert not state.splats.sh_rest.any()
    for _ in range(3):
        state, _ = step(state, data)
    assert state.splats.sh_rest.any()


def test_the_renderer_clips_to_the_unit_range():
    splats = random_splats(40)._replace(sh_dc=jnp.full((40, 1, 3), 9.0))
    image = make_renderer(**SIZE)(splats, VIEWMATS, KS)
    assert float(image.max()) == 1.0 and image.shape == (2, 24, 32, 3)
