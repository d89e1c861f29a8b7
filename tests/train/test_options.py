"""Options of the training step: each helps where it is needed, and all together are exact and resume exactly."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import losses
from jaxsplat.data import load_capture
from jaxsplat.io.files import InputError
from jaxsplat.io.ply import PointCloud
from jaxsplat.optim import LearningRates, Schedule
from jaxsplat.strategy import Default, Fixed, Regularizers, regularize
from jaxsplat.train import (
    Batch,
    TrainConfig,
    init_state,
    load_checkpoint,
    make_room,
    make_train_step,
    make_train_steps,
    prepare,
    render_splats,
    save_checkpoint,
)
from jaxsplat.train.appearance import Appearance
from jaxsplat.train.loop import batch_of_step
from jaxsplat.train.poses import CameraRefinement
from tests.train.scenes import random_splats, trees_equal, write_capture

SIZE = {"width": 32, "height": 24}
VIEWMATS = jnp.tile(jnp.eye(4).at[2, 3].set(3.0)[None], (2, 1, 1)).at[1, 0, 3].set(0.3)
KS = jnp.tile(jnp.array([[[40.0, 0, 16], [0, 40, 12], [0, 0, 1]]]), (2, 1, 1))
CONFIG = TrainConfig(steps=60, sh_degree=0, strategy=Fixed())


def start(config=CONFIG, splats=None):
    points = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32) * 0.5
    state = init_state(config, points, np.full_like(points, 0.5), views=2)
    return state if splats is None else state._replace(splats=splats)


def trained(config, batch, *, steps, splats=None):
    state, step = start(config, splats), jax.jit(make_train_step(config))
    for _ in range(steps):
        state, metrics = step(state, batch)
    return state, metrics


def test_a_random_background_leaves_nothing_transparent_in_a_black_picture():
    black = Batch(jnp.zeros((2, 24, 32, 3)), VIEWMATS, KS)
    big = start().splats
    big = big._replace(log_scales=jnp.full_like(big.log_scales, -0.3))

    def opacity(config):
        state, _ = trained(config, black, steps=40, splats=big)
        return float(render_splats(state.splats, VIEWMATS, KS, **SIZE).alphas.mean())

    assert opacity(dataclasses.replace(CONFIG, random_background=True)) > opacity(CONFIG) + 0.05


def test_transparent_pixels_take_the_random_background():
    config = dataclasses.replace(CONFIG, random_background=True, ssim_weight=0.0)
    nothing = start().splats
    nothing = nothing._replace(logit_opacities=jnp.full_like(nothing.logit_opacities, -12.0))
    clear = Batch(jnp.zeros((2, 24, 32, 3)), VIEWMATS, KS, alphas=jnp.zeros((2, 24, 32), jnp.uint8))
    _, metrics = trained(config, clear, steps=1, splats=nothing)
    assert float(metrics.psnr) > 60
    opaque = clear._replace(alphas=jnp.full((2, 24, 32), 255, jnp.uint8))
    _, metrics = trained(config, opaque, steps=1, splats=nothing)
    assert float(metrics.psnr) < 20


def test_masked_pixels_have_no_influence_whatever_they_hold():
    mask = jnp.ones((2, 24, 32), jnp.uint8).at[:, 5:15, 8:20].set(0) * 255
    truth = jnp.clip(render_splats(random_splats(40, rest=0), VIEWMATS, KS, **SIZE).colors, 0, 1)
    spoilt = truth.at[:, 5:15, 8:20].set(jnp.nan)
    states = [trained(CONFIG, Batch(images, VIEWMATS, KS, masks=mask), steps=3)[0] for images in (truth, spoilt)]
    assert trees_equal(states[0].splats, states[1].splats)
    free, _ = trained(CONFIG, Batch(truth, VIEWMATS, KS), steps=3)
    assert not trees_equal(states[0].splats, free.splats)


def test_visible_adam_leaves_splats_out_of_sight_alone_and_their_moments_too():
    batch = Batch(jnp.full((2, 24, 32, 3), 0.3), VIEWMATS, KS)
    config = dataclasses.replace(CONFIG, visible_adam=True)
    state = start(config)
    far = state.splats._replace(means=state.splats.means.at[:10, 0].set(50.0))
    moments = jax.tree.map(jnp.ones_like, state.opt_state[0].mu)
    state = state._replace(splats=far, opt_state=(state.opt_state[0]._replace(mu=moments), *state.opt_state[1:]))
    after, _ = jax.jit(make_train_step(config))(state, batch)
    plain, _ = jax.jit(make_train_step(CONFIG))(state, batch)
    assert np.array_equal(after.splats.means[:10], far.means[:10]) and (after.opt_state[0].mu.means[:10] == 1).all()
    assert not np.array_equal(plain.splats.means[:10], far.means[:10])
    np.testing.assert_array_equal(after.splats.means[10:], plain.splats.means[10:])


def test_regularizers_are_means_over_the_splats_in_use_with_finite_gradients():
    splats = random_splats(7)._replace(log_scales=jnp.zeros((7, 3)).at[1, 0].set(3.0).at[5].set(jnp.nan))
    splats = splats._replace(log_scales=splats.log_scales.at[2, 0].set(200.0))
    weights = Regularizers(anisotropy=2.0, max_ratio=5.0)
    value, gradient = jax.value_and_grad(lambda s: regularize(s, jnp.int32(2), weights=weights))(splats)
    assert float(value) == pytest.approx(2.0 * (np.exp(3.0) - 5.0) / 2, rel=1e-5)
    assert gradient.log_scales[1, 0] > 0 and not gradient.log_scales[2:].any()
    value, gradient = jax.value_and_grad(lambda s: regularize(s, jnp.int32(7), weights=weights))(splats)
    assert np.isfinite(value) and np.isfinite(gradient.log_scales).all()


def test_needles_become_rounder_and_splats_fainter_where_the_loss_says_so():
    needles = start().splats
    needles = needles._replace(log_scales=needles.log_scales.at[:, 0].set(-0.5).at[:, 1:].set(-4.5))
    batch = Batch(jnp.full((2, 24, 32, 3), 0.3), VIEWMATS, KS)
    config = dataclasses.replace(CONFIG, regularizers=Regularizers(opacity=1.0, anisotropy=1.0))
    kept, _ = trained(CONFIG, batch, steps=20, splats=needles)
    changed, _ = trained(config, batch, steps=20, splats=needles)

    def ratio(splats):
        return float((splats.log_scales.max(-1) - splats.log_scales.min(-1)).mean())

    assert ratio(changed.splats) < ratio(kept.splats) - 0.1
    assert float(changed.splats.logit_opacities.mean()) < float(kept.splats.logit_opacities.mean()) - 0.5


def test_every_view_is_used_once_an_epoch_when_several_share_a_step():
    views = Batch(jnp.zeros((6, 1, 1, 3)), jnp.zeros((6, 4, 4)), jnp.zeros((6, 3, 3)), jnp.arange(6))
    state, rows = start(), jnp.arange(6)
    steps = [state._replace(step=jnp.int32(k)) for k in range(6)]
    orders = [np.asarray(batch_of_step(state, views, rows, 2).index) for state in steps]
    for epoch in (orders[:3], orders[3:]):
        assert sorted(np.concatenate(epoch).tolist()) == list(range(6))


def test_the_gradient_of_several_views_is_the_mean_of_those_of_each():
    truth = render_splats(random_splats(40, rest=0), VIEWMATS, KS, **SIZE).colors
    still = dataclasses.replace(CONFIG, rates=LearningRates(), ssim_weight=0.2)

    def moments(chosen):
        batch = Batch(truth[chosen], VIEWMATS[chosen], KS[chosen])
        return trained(still, batch, steps=1)[0].opt_state[0].mu.means

    both, first, second = (moments(np.array(chosen)) for chosen in ([0, 1], [0], [1]))
    np.testing.assert_allclose(both, (first + second) / 2, atol=1e-8)


ALL = TrainConfig(
    steps=8, sh_degree=1, seed=3, views_per_step=2, difference="huber", depth_weight=0.1, random_background=True,
    visible_adam=True, rates=LearningRates(schedule=Schedule("cosine", warmup=0.2)),
    strategy=Default(cap=400, refine_start=0, refine_stop=0.9, refine_every=4, grow_gradient=1e-6, absgrad=True),
    regularizers=Regularizers(opacity=0.01, scale=0.01, anisotropy=0.01),
    cameras=CameraRefinement(1e-3, 1e-3), appearance=Appearance("bilateral", grid=(2, 3, 4)),
)  # fmt: skip


@pytest.mark.slow
def test_all_options_together_give_the_same_bits_twice_and_when_resumed(tmp_path):
    capture = load_capture(write_capture(tmp_path / "c"))
    points = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32) * 0.5
    capture = dataclasses.replace(capture, points=PointCloud(points, np.full_like(points, 0.5)))
    job, run = prepare(capture, ALL), make_train_steps(ALL)

    def to(state, end):
        while int(state.step) < end:
            state, summary = run(state, job.views, end - int(state.step))
            assert np.isfinite(float(summary.loss))
            state = make_room(state, ALL)
        return state

    whole = to(jax.tree.map(jnp.copy, job.state), 8)
    half = to(jax.tree.map(jnp.copy, job.state), 3)
    save_checkpoint(tmp_path / "c.npz", half, {})
    resumed = to(load_checkpoint(tmp_path / "c.npz", job.state), 8)
    assert trees_equal(whole._replace(key=None), resumed._replace(key=None))
    assert int(whole.num_splats) > 60 and all(leaf.any() for leaf in jax.tree.leaves(whole.extras.values))


def test_settings_that_make_no_sense_are_named(tmp_path):
    for name, settings in {
        "steps must be at least 1, got 0": {"steps": 0},
        "views_per_step must be at least 1": {"views_per_step": 0},
        "ssim_weight must lie in 0..1, got 1.5": {"ssim_weight": 1.5},
        "huber_delta must be above 0": {"huber_delta": 0.0},
        "cameras.pose_rate must not be negative": {"cameras": CameraRefinement(-1.0)},
        "appearance.grid must have at least 1 cell": {"appearance": Appearance(grid=(0, 1, 1))},
        "strategy.cap must be at least 1": {"strategy": Fixed(cap=0)},
    }.items():
        with pytest.raises(InputError, match=name):
            TrainConfig(**settings)
    capture = load_capture(write_capture(tmp_path / "c"))
    with pytest.raises(InputError, match="views_per_step is 9, but there are 8 training views"):
        prepare(capture, TrainConfig(views_per_step=9, initial_points=20))
    with pytest.raises(InputError, match="depth_weight needs a capture with sparse points"):
        prepare(capture, TrainConfig(depth_weight=0.1, initial_points=20))
    with pytest.raises(ValueError, match="views must be the number of training views"):
        init_state(TrainConfig(appearance=Appearance("affine")), np.zeros((3, 3)), np.zeros((3, 3)))
    state = start(dataclasses.replace(CONFIG, appearance=Appearance("affine")))
    with pytest.raises(ValueError, match="batch.index must say which view"):
        make_train_step(dataclasses.replace(CONFIG, appearance=Appearance("affine")))(
            state, Batch(jnp.zeros((2, 24, 32, 3)), VIEWMATS, KS)
        )


def scene_and_pictures():
    """A scene with its colours forgotten, and what it looks like."""
    truth = random_splats(40, rest=0)
    pictures = jnp.clip(render_splats(truth, VIEWMATS, KS, **SIZE).colors, 0, 1)
    return truth._replace(sh_dc=jnp.zeros_like(truth.sh_dc)), pictures


COLORS_ONLY = LearningRates(means=0.0, quats=0.0, log_scales=0.0, logit_opacities=0.0, sh_dc=5e-2)


def agreement(config, pictures, splats, truth, *, masks=None, steps=60):
    """PSNR of the finished scene against true pictures, in dB."""
    config = dataclasses.replace(config, steps=steps)
    state, _ = trained(config, Batch(pictures, VIEWMATS, KS, masks=masks), steps=steps, splats=splats)
    shown = render_splats(state.splats, VIEWMATS, KS, **SIZE).colors
    return float(losses.psnr(shown, truth).mean())


def test_huber_is_misled_less_by_outliers_than_squares_are():
    splats, truth = scene_and_pictures()
    salt = jax.random.bernoulli(jax.random.key(1), 0.1, (2, 24, 32, 1))
    spoilt = jnp.where(salt, 1.0, truth)
    config = dataclasses.replace(CONFIG, ssim_weight=0.0, rates=COLORS_ONLY)
    huber, mse = (
        agreement(dataclasses.replace(config, difference=name), spoilt, splats, truth) for name in ("huber", "mse")
    )
    assert huber > mse + 2


def test_a_mask_over_what_passes_by_keeps_it_out_of_the_scene():
    splats, truth = scene_and_pictures()
    passing = jnp.array([1.0, 0.0, 0.0])
    spoilt = truth.at[0, 6:16, 8:22].set(passing).at[1, 8:18, 4:16].set(passing)
    masks = jnp.full((2, 24, 32), 255, jnp.uint8).at[0, 6:16, 8:22].set(0).at[1, 8:18, 4:16].set(0)
    config = dataclasses.replace(CONFIG, ssim_weight=0.0, rates=COLORS_ONLY)
    assert agreement(config, spoilt, splats, truth, masks=masks) > agreement(config, spoilt, splats, truth) + 3


def test_a_rate_that_falls_ends_nearer_than_one_that_stays_high():
    splats, truth = scene_and_pictures()
    high = dataclasses.replace(COLORS_ONLY, sh_dc=0.5)
    falling = dataclasses.replace(high, schedule=Schedule("cosine", end=0.01))
    config = dataclasses.replace(CONFIG, ssim_weight=0.0)
    kept, fallen = (agreement(dataclasses.replace(config, rates=r), truth, splats, truth) for r in (high, falling))
    assert fallen > kept + 3
