"""Losses against numpy and scipy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import correlate

from jaxsplat import losses
from tests.data import double_precision

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


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 2, 1), (70, 5, 3), (4, 333, 1), (130, 140, 3), (12, 13, 70)])
def test_the_kernel_equals_plain_jax_in_double_precision_whatever_the_size(shape):
    x, y = pictures(*shape)
    weights = RNG.random(shape[:2])[..., None]

    def value_and_gradients(dtype):
        arrays = [jnp.asarray(a, dtype) for a in (x, y, weights)]
        return jax.value_and_grad(lambda *a: losses._weighted_ssim(losses._WINDOWS["gaussian"], *a), (0, 1, 2))(*arrays)

    single = value_and_gradients(jnp.float32)
    with double_precision():
        value, gradients = value_and_gradients(jnp.float64)
    np.testing.assert_allclose(single[0], value, rtol=2e-5)
    for ours, truth in zip(single[1], gradients, strict=True):
        np.testing.assert_allclose(ours, truth, rtol=1e-3, atol=2e-4 * np.abs(truth).max())


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


def test_huber_is_a_parabola_that_becomes_a_line_of_slope_one():
    distances = jnp.array([0.0, 0.05, 0.2, 0.2 + 1e-6, 0.7]).reshape(1, 5, 1)
    values = jax.vmap(lambda d: losses.huber(d[None], jnp.zeros((1, 1, 1)), delta=0.2))(distances[0][:, None])
    np.testing.assert_allclose(values, [0, 0.05**2 / 0.4, 0.1, 0.1, 0.6], atol=1e-5)
    slopes = jax.grad(lambda d: losses.huber(d, jnp.zeros_like(d), delta=0.2) * 5)(distances)
    np.testing.assert_allclose(slopes[0, :, 0], [0, 0.25, 1, 1, 1], atol=1e-4)
    with pytest.raises(ValueError, match="huber: delta must be above 0, got 0"):
        losses.huber(distances, distances, delta=0)


def test_masked_losses_are_means_over_the_weighted_pixels():
    x, y = pictures(2, 14, 15, 3)
    masks = RNG.uniform(size=(2, 14, 15)) * (RNG.uniform(size=(2, 14, 15)) > 0.4)
    for loss, values in ((losses.l1, np.abs(x - y)), (losses.mse, (x - y) ** 2)):
        truth = (values * masks[..., None]).sum((1, 2, 3)) / (3 * masks.sum((1, 2)))
        np.testing.assert_allclose(loss(x, y, masks=jnp.asarray(masks)), truth, rtol=1e-5)
    seen = masks[..., None] > 0
    ones = jnp.ones((2, 14, 15))
    np.testing.assert_allclose(losses.ssim(x, y, masks=ones), losses.ssim(x, y), rtol=1e-5)
    np.testing.assert_allclose(losses.huber(x, y, masks=ones), losses.huber(x, y), rtol=1e-5)
    spoilt = jnp.where(seen, x, jnp.nan)
    for loss in (losses.l1, losses.mse, losses.huber, losses.psnr, losses.ssim):
        value, gradient = jax.value_and_grad(lambda z, loss=loss: loss(z, y, masks=jnp.asarray(masks)).sum())(spoilt)
        assert np.isfinite(value) and np.isfinite(gradient).all() and not jnp.where(seen, 0, gradient).any()
        np.testing.assert_allclose(value, loss(x, y, masks=jnp.asarray(masks)).sum(), rtol=1e-6)


def test_a_mask_of_zeros_is_no_loss():
    x, y = pictures(12, 13, 3)
    zero = jnp.zeros((12, 13), bool)
    value, gradient = jax.value_and_grad(lambda z: losses.photometric(z, y, masks=zero))(x)
    assert float(value) == 0 and not gradient.any()


@pytest.mark.parametrize("valid", [False, True])
def test_uniform_ssim_equals_the_full_window(valid):
    x, y = pictures(14, 16, 2)
    y = 0.6 * x + 0.4 * y

    def blur(image):
        padded = np.pad(image, ((5, 5), (5, 5), (0, 0)))
        return np.mean([padded[i : i + 14, j : j + 16] for i in range(11) for j in range(11)], 0)

    mean_x, mean_y = blur(x), blur(y)
    values = (2 * mean_x * mean_y + 1e-4) * (2 * (blur(x * y) - mean_x * mean_y) + 9e-4)
    values /= (mean_x**2 + mean_y**2 + 1e-4) * (blur(x * x) - mean_x**2 + blur(y * y) - mean_y**2 + 9e-4)
    truth = values[5:-5, 5:-5].mean() if valid else values.mean()
    np.testing.assert_allclose(losses.ssim(x, y, valid=valid, window="uniform"), truth, rtol=2e-5)
    assert np.isfinite(jax.grad(lambda z: losses.ssim(z, y, window="uniform"))(jnp.asarray(x))).all()
    with pytest.raises(ValueError, match="ssim: window must be one of 'gaussian', 'uniform', got 'box'"):
        losses.ssim(x, y, window="box")


@pytest.mark.parametrize("difference", ["l1", "mse", "huber"])
def test_the_photometric_loss_is_the_blend(difference):
    x, y = pictures(2, 12, 13, 3)
    apart, alike = getattr(losses, difference)(x, y), losses.ssim(x, y)
    blend = losses.photometric(x, y, difference=difference, ssim_weight=0.3)
    np.testing.assert_allclose(blend, 0.7 * apart + 0.3 * (1 - alike), rtol=1e-6)
    np.testing.assert_allclose(losses.photometric(x, y, difference=difference, ssim_weight=0.0), apart)
