"""Corrections of colours: the formulas, and pictures of jittered exposure fitted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import RegularGridInterpolator

from jaxsplat import losses
from jaxsplat.optim import LearningRates
from jaxsplat.strategy import Fixed
from jaxsplat.train import Batch, TrainConfig, init_state, make_train_step, render_splats
from jaxsplat.train.appearance import (
    Appearance,
    apply_affine,
    correct_colors,
    no_correction,
    roughness,
    slice_grid,
)
from tests.train.scenes import random_splats
from tests.train.test_poses import views

RNG = np.random.default_rng(0)
SIZE = {"width": 32, "height": 24}


def test_an_affine_correction_is_a_matrix_and_an_offset():
    rows, color = RNG.normal(size=(3, 4)), RNG.uniform(size=3)
    got = apply_affine(jnp.asarray(color), jnp.asarray(rows.ravel()))
    np.testing.assert_allclose(got, color + rows[:, :3] @ color + rows[:, 3], rtol=1e-5)


def test_slicing_a_grid_equals_scipys_interpolation():
    grid, image = RNG.normal(size=(4, 3, 5, 2)), RNG.uniform(size=(6, 7, 3))
    corners = [np.linspace(0, 1, n) for n in grid.shape[:3]]
    y, x = np.meshgrid((np.arange(6) + 0.5) / 6, (np.arange(7) + 0.5) / 7, indexing="ij")
    brightness = image @ [0.299, 0.587, 0.114]
    expected = RegularGridInterpolator(corners, grid)(np.stack([brightness, y, x], -1))
    got = slice_grid(jnp.asarray(grid, jnp.float32), jnp.asarray(image, jnp.float32))
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_values_beyond_the_unit_range_use_the_first_and_last_cell():
    grid = jnp.arange(3.0).reshape(3, 1, 1, 1)
    image = jnp.array([[[-1.0] * 3, [2.0] * 3, [0.5] * 3]])
    np.testing.assert_allclose(slice_grid(grid, image)[0, :, 0], [0, 2, 1], atol=1e-6)


@pytest.mark.parametrize("kind", ["affine", "bilateral"])
def test_no_correction_and_one_that_all_views_share_change_nothing(kind):
    settings = Appearance(kind, grid=(2, 3, 4))
    images = jnp.asarray(RNG.uniform(size=(2, 6, 7, 3)), jnp.float32)
    nothing = no_correction(settings, 5)
    shared = nothing + jnp.asarray(RNG.normal(size=(1, *nothing.shape[1:])), jnp.float32)
    for parameters in (nothing, shared):
        np.testing.assert_allclose(correct_colors(images, parameters, jnp.array([3, 1])), images, atol=1e-5)


def test_roughness_is_zero_for_equal_cells_only():
    assert float(roughness(jnp.ones((2, 3, 4, 5, 12)))) == 0.0
    assert float(roughness(jnp.zeros((2, 3, 1, 1, 12)).at[:, 1].set(1.0))) == pytest.approx(1.0)
    assert float(roughness(jnp.ones((2, 12)))) == 0.0


def fitted(kind, photographs, truth, steps=150):
    """The scene's own pictures, and those with their corrections, after learning colours from the photographs."""
    viewmats, Ks = views()
    still = LearningRates(means=0.0, quats=0.0, log_scales=0.0, logit_opacities=0.0, sh_dc=2e-2)
    appearance = Appearance(kind, rate=2e-2, grid=(2, 4, 4), smoothness=0.01)
    config = TrainConfig(
        steps=steps, sh_degree=0, strategy=Fixed(), rates=still, appearance=appearance, ssim_weight=0.0,
        background=(0.2, 0.3, 0.4),
    )  # fmt: skip
    state = init_state(config, np.zeros((60, 3), np.float32), np.zeros((60, 3)), views=4)
    state = state._replace(splats=truth._replace(sh_dc=truth.sh_dc * 0))
    step = jax.jit(make_train_step(config))
    for _ in range(steps):
        state, metrics = step(state, Batch(photographs, viewmats, Ks, jnp.arange(4)))
    colors = render_splats(state.splats, viewmats, Ks, **SIZE, background=(0.2, 0.3, 0.4)).colors
    return colors, float(metrics.psnr)


def test_pictures_of_jittered_exposure_give_the_true_scene_only_with_a_correction():
    truth = random_splats(60, rest=0)._replace(sh_dc=jax.random.uniform(jax.random.key(2), (60, 1, 3)) * 2 - 1)
    clean = render_splats(truth, *views(), **SIZE, background=(0.2, 0.3, 0.4)).colors
    gains = jnp.array([0.6, 1.4, 0.8, 1.2]).reshape(4, 1, 1, 1)
    colors, psnr = fitted("affine", clean * gains, truth)
    plain, plain_psnr = fitted("none", clean * gains, truth)
    assert psnr > plain_psnr + 8
    assert float(losses.psnr(colors, clean).mean()) > float(losses.psnr(plain, clean).mean()) + 5


def test_vignettes_that_differ_need_the_bilateral_grid():
    truth = random_splats(60, rest=0)._replace(sh_dc=jax.random.uniform(jax.random.key(2), (60, 1, 3)) * 2 - 1)
    clean = render_splats(truth, *views(), **SIZE, background=(0.2, 0.3, 0.4)).colors
    slope = jnp.linspace(-0.5, 0.5, 32).reshape(1, 1, 32, 1)
    tilted = clean * (1 + slope * jnp.array([1.0, -1.0, 0.5, -0.5]).reshape(4, 1, 1, 1))
    assert fitted("bilateral", tilted, truth)[1] > fitted("affine", tilted, truth)[1] + 3
