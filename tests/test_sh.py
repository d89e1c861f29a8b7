"""Spherical harmonics against scipy, quadrature and finite differences."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import lpmv

from jaxsplat import num_sh_coeffs, rgb_to_sh, sh_to_rgb, spherical_harmonics
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.tolerances import SINGLE

RNG = np.random.default_rng(1)


def truth(degree, dirs):
    """[N, K] basis from scipy's associated Legendre functions, which carry the sign (-1)^m."""
    x, y, z = (dirs / np.linalg.norm(dirs, axis=-1, keepdims=True)).T
    angle = np.arctan2(y, x)
    columns = []
    for n in range(degree + 1):
        for m in range(-n, n + 1):
            k = abs(m)
            norm = math.sqrt((2 * n + 1) / (4 * math.pi) * math.factorial(n - k) / math.factorial(n + k))
            around = math.sqrt(2) * (np.cos(k * angle) if m > 0 else np.sin(k * angle)) if m else 1
            columns.append(norm * lpmv(k, n, z) * around)
    return np.stack([np.broadcast_to(column, len(dirs)) for column in columns], -1)


@pytest.mark.parametrize("degree", range(5))
@pytest.mark.parametrize("channels", [1, 3, 7])
def test_values_are_scipys(degree, channels):
    dirs, coeffs = RNG.normal(size=(20, 3)), RNG.normal(size=(20, 25, channels))
    expected = np.einsum("nk,nkd->nd", truth(degree, dirs), coeffs[:, : (degree + 1) ** 2])
    got = spherical_harmonics(degree, jnp.asarray(dirs, jnp.float32), jnp.asarray(coeffs, jnp.float32))
    np.testing.assert_allclose(got, expected, atol=2e-5)


def test_signs_of_degree_1_are_the_fields():
    coeffs = jnp.eye(4)[None, :, 1:]
    dirs = jnp.eye(3)[:, None]
    got = [spherical_harmonics(1, d, coeffs)[0] for d in dirs]
    np.testing.assert_allclose(got, 0.4886025 * np.array([[0, 0, -1], [-1, 0, 0], [0, 1, 0]]), atol=SINGLE)


def test_the_length_of_a_direction_does_not_matter():
    dirs, coeffs = (
        jnp.asarray(RNG.normal(size=(5, 3)), jnp.float32),
        jnp.asarray(RNG.normal(size=(5, 25, 3)), jnp.float32),
    )
    expected = spherical_harmonics(4, dirs, coeffs)
    for length in (1e-10, 1e37):
        np.testing.assert_allclose(spherical_harmonics(4, dirs * length, coeffs), expected, atol=1e-5)


def test_a_zero_direction_counts_as_zero_with_no_gradient():
    coeffs = jnp.ones((1, 4, 3))
    value, pullback = jax.vjp(lambda d: spherical_harmonics(1, d, coeffs), jnp.zeros((1, 3)))
    np.testing.assert_allclose(value, 0.28209479, atol=SINGLE)
    np.testing.assert_array_equal(pullback(jnp.ones_like(value))[0], 0)


def test_masked_rows_are_zero_with_zero_gradients_whatever_they_hold():
    dirs = jnp.asarray(RNG.normal(size=(4, 3)), jnp.float32).at[1].set(jnp.nan)
    coeffs = jnp.asarray(RNG.normal(size=(4, 16, 3)), jnp.float32).at[1].set(jnp.inf)
    masks = jnp.array([True, False, True, False])
    value, pullback = jax.vjp(lambda d, c: spherical_harmonics(3, d, c, masks=masks), dirs, coeffs)
    np.testing.assert_array_equal(value[1::2], 0)
    np.testing.assert_array_equal(value[::2], spherical_harmonics(3, dirs, coeffs)[::2])
    for gradient in pullback(jnp.ones_like(value)):
        np.testing.assert_array_equal(gradient[1::2], 0)
        assert np.all(np.any(np.asarray(gradient[::2]).reshape(2, -1) != 0, -1))


@pytest.mark.parametrize("degree", range(5))
def test_gradients_are_right_where_coefficients_are_shared_by_cameras(degree):
    with double_precision():
        dirs, coeffs = jnp.asarray(RNG.normal(size=(2, 3, 6, 3))), jnp.asarray(RNG.normal(size=(2, 1, 6, 26, 3)))
        assert_gradients(lambda d, c: spherical_harmonics(degree, d, c), (dirs, coeffs))
        assert_gradients(lambda d, c: spherical_harmonics(degree, d, c), (dirs, coeffs[0, 0, :, :, :1]))
        assert_gradients(lambda d, c: spherical_harmonics(degree, d, c), (dirs[0, 0], coeffs))


def test_scenes_of_a_batch_use_their_own_coefficients():
    dirs = jnp.asarray(RNG.normal(size=(2, 3, 6, 3)), jnp.float32)
    coeffs = jnp.asarray(RNG.normal(size=(2, 1, 6, 9, 5)), jnp.float32)
    got = spherical_harmonics(2, dirs, coeffs)
    for b in range(2):
        for c in range(3):
            expected = spherical_harmonics(2, dirs[b, c], coeffs[b, 0])
            np.testing.assert_allclose(got[b, c], expected, atol=SINGLE)
    mapped = jax.vmap(jax.vmap(lambda d, c: spherical_harmonics(2, d, c), (0, None)))(dirs, coeffs[:, 0])
    np.testing.assert_allclose(mapped, got, atol=SINGLE)


def test_every_channel_stays_in_its_place_for_many_channels():
    dirs = jnp.asarray(RNG.normal(size=(3, 3)), jnp.float32)
    coeffs = jnp.asarray(RNG.normal(size=(3, 4, 512)), jnp.float32)
    got = spherical_harmonics(1, dirs, coeffs)
    for d in (0, 15, 16, 511):
        np.testing.assert_allclose(got[:, d : d + 1], spherical_harmonics(1, dirs, coeffs[..., d : d + 1]), atol=SINGLE)


def test_no_splats_give_no_values():
    assert spherical_harmonics(3, jnp.zeros((2, 0, 3)), jnp.zeros((0, 16, 3))).shape == (2, 0, 3)


def test_colors_survive_the_way_through_the_constant_coefficient():
    rgb = jnp.array([[0.1, 0.5, 0.9]])
    shown = spherical_harmonics(0, jnp.ones((1, 3)), rgb_to_sh(rgb)[:, None]) + 0.5
    np.testing.assert_allclose(shown, rgb, atol=SINGLE)
    np.testing.assert_allclose(sh_to_rgb(rgb_to_sh(rgb)), rgb, atol=SINGLE)


def test_wrong_arguments_are_named():
    dirs = jnp.ones((2, 3))
    with pytest.raises(ValueError, match="degree must be one of 0, 1, 2, 3, 4, got 5"):
        num_sh_coeffs(5)
    with pytest.raises(ValueError, match=r"coeffs must have shape .* K >= 16 for degree 3, got \[2, 9, 3\]"):
        spherical_harmonics(3, dirs, jnp.ones((2, 9, 3)))
    with pytest.raises(ValueError, match="coeffs must have shape"):
        spherical_harmonics(0, dirs, jnp.ones((3, 1, 3)))
    with pytest.raises(TypeError, match="masks must be of type"):
        spherical_harmonics(0, dirs, jnp.ones((2, 1, 3)), masks=jnp.ones(2))
