"""Losses against numpy and scipy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import correlate

from jaxsplat import losses

RNG = np.random.default_rng(0)


def pictures(*shape: int) -> Any:
    return RNG.random(shape), RNG.random(shape)


def ssim_truth(x, y, *, valid=False):
    """SSIM of [H, W, D] with a full two-dimensional window, zeros outside, in float64."""
    line = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
    window = np.outer(line, line) / line.sum() ** 2

    def blur(image):
        return np.stack([correlate(image[..., d], window, mode="constant") for d in range(image.shape[-1])], -1)

    mean_x, mean_y = blur(x), blur(y)
    var_x, var_y = blur(x * x) - mean_x**2, blur(y * y) - mean_y**2
    covariance = blur(x * y) - mean_x * mean_y
    c1, c2 = 0.0001, 0.0009
    values = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    values /= (mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2)
    return values[5:-5, 5:-5].mean() if valid else values.mean()


def test_l1_mse_and_psnr_are_means_over_the_picture():
    x, y = pictures(2, 5, 6, 3)
    np.testing.assert_allclose(losses.l1(x, y), np.abs(x - y).mean((1, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(losses.mse(x, y), ((x - y) ** 2).mean((1, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(losses.psnr(x, y), -10 * np.log10(((x - y) ** 2).mean((1, 2, 3))), rtol=1e-5)


def test_psnr_of_equal_pictures_is_finite():
    image = jnp.ones((4, 4, 3))
    assert float(losses.psnr(image, image)) == pytest.approx(100.0)


@pytest.mark.parametrize("valid", [False, True])
@pytest.mark.parametrize("shape", [(12, 17, 3), (30, 11, 1), (16, 16, 5)])
def test_ssim_equals_the_full_window(shape, valid):
    x, y = pictures(*shape)
    y = 0.7 * x + 0.3 * y
    np.testing.assert_allclose(losses.ssim(x, y, valid=valid), ssim_truth(x, y, valid=valid), rtol=2e-5)


def test_ssim_of_a_batch_is_one_value_a_picture():
    x, y = pictures(2, 3, 12, 13, 3)
    values = losses.ssim(x, y)
    assert values.shape == (2, 3)
    np.testing.assert_allclose(values[1, 2], ssim_truth(x[1, 2], y[1, 2]), rtol=2e-5)


def test_ssim_of_equal_pictures_is_one():
    x, _ = pictures(13, 14, 3)
    assert float(losses.ssim(x, x)) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("argument", [0, 1])
@pytest.mark.parametrize("valid", [False, True])
def test_ssim_gradient_equals_finite_differences(argument, valid):
    pair = list(pictures(14, 13, 2))
    gradient = jax.grad(lambda *xy: losses.ssim(*xy, valid=valid), argument)(*map(jnp.asarray, pair))
    direction = RNG.normal(size=pair[0].shape)
    step = 1e-5

    def moved(sign):
        shifted = list(pair)
        shifted[argument] = pair[argument] + sign * step * direction
        return ssim_truth(*shifted, valid=valid)

    truth = (moved(1) - moved(-1)) / (2 * step)
    np.testing.assert_allclose((np.asarray(gradient) * direction).sum(), truth, rtol=1e-3)


def test_ssim_under_vmap_equals_the_batch():
    x, y = pictures(3, 12, 13, 3)
    gradient = jax.grad(lambda x, y: losses.ssim(x, y).sum())
    np.testing.assert_allclose(jax.vmap(gradient)(x, y), gradient(x, y), rtol=1e-5, atol=1e-8)


def test_losses_broadcast_leading_axes():
    x, y = pictures(2, 12, 13, 3)
    np.testing.assert_allclose(losses.ssim(x, y[0])[1], losses.ssim(x[1], y[0]), rtol=1e-6)
    np.testing.assert_allclose(losses.l1(x, y[0])[1], losses.l1(x[1], y[0]), rtol=1e-6)


def test_black_pictures_give_finite_gradients():
    zero = jnp.zeros((12, 12, 3))
    assert np.isfinite(jax.grad(losses.ssim)(zero, zero)).all()


def test_wrong_shapes_and_types_name_the_argument():
    with pytest.raises(ValueError, match="ssim: targets must have shape"):
        losses.ssim(jnp.zeros((8, 8, 3)), jnp.zeros((8, 9, 3)))
    with pytest.raises(TypeError, match="l1: images"):
        losses.l1(jnp.zeros((8, 8, 3), jnp.uint8), jnp.zeros((8, 8, 3)))
    with pytest.raises(ValueError, match="valid=True needs H and W above 10"):
        losses.ssim(jnp.zeros((10, 12, 3)), jnp.zeros((10, 12, 3)), valid=True)


@pytest.mark.parametrize("loss", [losses.l1, losses.mse, losses.psnr, losses.ssim])
def test_a_pixel_of_weight_zero_counts_for_nothing_whatever_it_holds(loss):
    rng = np.random.default_rng(0)
    images, targets = rng.uniform(size=(2, 24, 20, 3)).astype(np.float32)
    masks = rng.uniform(size=(24, 20)) < 0.6
    hidden = images.copy()
    hidden[~masks] = np.nan
    values = [loss(jnp.asarray(x), jnp.asarray(targets), masks=jnp.asarray(masks)) for x in (images, hidden)]
    assert values[0] == values[1] and np.isfinite(values[0])
    gradient = jax.grad(lambda x: loss(x, jnp.asarray(targets), masks=jnp.asarray(masks)))(jnp.asarray(hidden))
    assert np.isfinite(gradient).all() and not gradient[~masks].any() and gradient[masks].any()
    if loss is losses.l1:
        np.testing.assert_allclose(values[0], np.abs(images - targets)[masks].mean(), rtol=1e-5)
    nothing = loss(jnp.asarray(images), jnp.asarray(targets), masks=jnp.zeros((24, 20)))
    assert nothing == {losses.psnr: 100.0, losses.ssim: 1.0}.get(loss, 0.0)
