"""Losses against numpy and scipy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import correlate

from jaxsplat import _similarity, losses
from tests.data import double_precision

RNG = np.random.default_rng(0)


def pictures(*shape: int) -> Any:
    return RNG.random(shape), RNG.random(shape)


def box_or_bell(window):
    """The 11x11 window by name."""
    line = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2) if window == "gaussian" else np.ones(11)
    return np.outer(line, line) / line.sum() ** 2


def blurred(image, window="gaussian", border="zeros"):
    """[H, W, D] blurred by a full window in float64; zeros outside, or weights that sum to 1 inside."""
    box = box_or_bell(window)
    if border == "renormalize":
        return blurred(image, window) / blurred(np.ones_like(image), window)
    return np.stack([correlate(image[..., d], box, mode="constant") for d in range(image.shape[-1])], -1)


def ssim_truth(x, y, *, valid=False, window="gaussian", c2=0.0009, border="zeros"):
    """SSIM of [H, W, D] in float64."""
    mean_x, mean_y, mean_xx, mean_yy, mean_xy = (blurred(a, window, border) for a in (x, y, x * x, y * y, x * y))
    var_x, var_y = mean_xx - mean_x**2, mean_yy - mean_y**2
    covariance = mean_xy - mean_x * mean_y
    c1 = 0.0001
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
    kind = _similarity.Similarity(_similarity.WINDOWS["gaussian"], c2=0.01)

    def value_and_gradients(dtype):
        arrays = [jnp.asarray(a, dtype) for a in (x, y, weights)]
        return jax.value_and_grad(lambda *a: _similarity.weighted_ssim(kind, *a), (0, 1, 2))(*arrays)

    single = value_and_gradients(jnp.float32)
    with double_precision():
        value, gradients = value_and_gradients(jnp.float64)
    np.testing.assert_allclose(single[0], value, rtol=2e-5)
    for ours, truth in zip(single[1], gradients, strict=True):
        np.testing.assert_allclose(ours, truth, rtol=1e-3, atol=2e-4 * np.abs(truth).max())


@pytest.mark.parametrize("shape", [(12, 17, 3), (4, 30, 1)])
def test_a_window_that_is_cut_at_the_border_weighs_as_much_as_a_whole_one(shape):
    x, y = pictures(*shape)
    y = 0.7 * x + 0.3 * y
    values = [float(losses.ssim(x, y, border=border)) for border in ("zeros", "renormalize")]
    np.testing.assert_allclose(values[1], ssim_truth(x, y, border="renormalize"), rtol=2e-5)
    assert abs(values[0] - values[1]) > 1e-3
    if shape[0] > 10:
        inner = [losses.ssim(x, y, border=border, valid=True) for border in ("zeros", "renormalize")]
        assert float(inner[0]) == float(inner[1])
    with pytest.raises(ValueError, match="border must be one of 'zeros', 'renormalize', got 'wrap'"):
        losses.ssim(x, y, border="wrap")


def test_the_gradient_of_a_cut_window_is_that_of_finite_differences():
    x, y = pictures(6, 13, 2)
    place, step = np.zeros((6, 13, 2)), 1e-5
    with double_precision():
        similarity = jax.jit(lambda a, b: losses.ssim(a, b, border="renormalize"))
        gradients = jax.grad(lambda a, b: losses.ssim(a, b, border="renormalize"), (0, 1))(x, y)
        for index in ((0, 0, 0), (2, 7, 1), (5, 12, 0)):
            place[...] = 0
            place[index] = step
            slopes = [
                similarity(x + place, y) - similarity(x - place, y),
                similarity(x, y + place) - similarity(x, y - place),
            ]
            for gradient, slope in zip(gradients, slopes, strict=True):
                np.testing.assert_allclose(gradient[index], slope / (2 * step), rtol=1e-5)


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
@pytest.mark.parametrize(("window", "c2"), [("uniform", 0.0009), ("gaussian", 0.03), ("uniform", 0.2)])
def test_ssim_with_other_windows_and_constants_equals_the_full_window(window, c2, valid):
    x, y = pictures(14, 16, 2)
    y = 0.6 * x + 0.4 * y
    settings: Any = {"valid": valid, "window": window, "c2": c2}
    value, gradient = jax.value_and_grad(lambda z: losses.ssim(z, y, **settings))(jnp.asarray(x))
    np.testing.assert_allclose(value, ssim_truth(x, y, **settings), rtol=2e-5)
    # Corners and edges too: there the window reaches over the border.
    truth = differences(lambda z: ssim_truth(z, y, **settings), x)
    np.testing.assert_allclose(gradient, truth, rtol=1e-3, atol=1e-3 * np.abs(truth).max())


def differences(function, x, step=1e-5):
    """Central differences of a number by every value of x."""
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        move = np.zeros_like(x)
        move[index] = step
        gradient[index] = (function(x + move) - function(x - move)) / (2 * step)
    return gradient


def test_the_gradient_of_ssim_counts_the_mean_once():
    """A window's mean is in the luminance and in the moments; counted once more, the gradient is another."""
    x, y = pictures(13, 12, 1)
    c1, c2, mean_x, mean_y = 0.0001, 0.0009, blurred(x), blurred(y)
    luminance, covariance = mean_x**2 + mean_y**2 + c1, 2 * (blurred(x * y) - mean_x * mean_y) + c2
    variances = blurred(x * x) - mean_x**2 + blurred(y * y) - mean_y**2 + c2
    similarity = (2 * mean_x * mean_y + c1) * covariance / (luminance * variances)
    v_xx, v_xy = -similarity / variances, 2 * (2 * mean_x * mean_y + c1) / (luminance * variances)
    of_luminance = 2 * (mean_y * covariance / variances - mean_x * similarity) / luminance
    of_moments = -2 * v_xx * mean_x - v_xy * mean_y

    def formula(times):
        return (blurred(of_luminance + times * of_moments) + 2 * x * blurred(v_xx) + y * blurred(v_xy)) / x.size

    gradient = jax.grad(lambda z: losses.ssim(z, y))(jnp.asarray(x))
    truth = differences(lambda z: ssim_truth(z, y), x)
    np.testing.assert_allclose(formula(1), truth, rtol=1e-5, atol=1e-6 * np.abs(truth).max())
    np.testing.assert_allclose(gradient, truth, rtol=1e-3, atol=1e-3 * np.abs(truth).max())
    assert np.abs(formula(2) - truth).max() > 0.1 * np.abs(truth).max()


def test_unknown_windows_and_constants_of_ssim_are_refused():
    x, y = pictures(14, 16, 2)
    wrong: Any = "box"
    with pytest.raises(ValueError, match="ssim: window must be one of 'gaussian', 'uniform', got 'box'"):
        losses.ssim(x, y, window=wrong)
    with pytest.raises(ValueError, match="ssim: c2 must be above 0, got 0"):
        losses.ssim(x, y, c2=0)


@pytest.mark.parametrize("difference", ["l1", "mse", "huber"])
def test_the_photometric_loss_is_the_blend(difference):
    x, y = pictures(2, 12, 13, 3)
    apart, alike = getattr(losses, difference)(x, y), losses.ssim(x, y)
    blend = losses.photometric(x, y, difference=difference, ssim_weight=0.3)
    np.testing.assert_allclose(blend, 0.7 * apart + 0.3 * (1 - alike), rtol=1e-6)
    settings: Any = {"valid": True, "window": "uniform", "c2": 0.01}
    blend = losses.photometric(x, y, difference=difference, ssim_weight=0.3, **settings)
    np.testing.assert_allclose(blend, 0.7 * apart + 0.3 * (1 - losses.ssim(x, y, **settings)), rtol=1e-6)
    np.testing.assert_allclose(losses.photometric(x, y, difference=difference, ssim_weight=0.0), apart)
