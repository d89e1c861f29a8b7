"""Spherical harmonics against scipy, quadrature and finite differences."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import lpmv

from jaxsplat import SHCoeffs, num_sh_coeffs, rgb_to_sh, sh_factors, sh_to_rgb, spherical_harmonics
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


SHAPES = {
    "one camera": ((37, 3), (37, 16, 3)),
    "cameras share": ((4, 37, 3), (1, 37, 16, 3)),
    "cameras of scenes share": ((2, 4, 37, 3), (2, 1, 37, 16, 3)),
    "scenes of one camera": ((2, 37, 3), (2, 37, 16, 3)),
    "directions shared": ((1, 37, 3), (2, 37, 16, 3)),
    "one channel": ((37, 3), (37, 16, 1)),
    "many channels": ((3, 37, 3), (1, 37, 16, 9)),
    "more than needed": ((37, 3), (37, 25, 3)),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_the_kernel_gives_the_values_and_gradients_of_the_reference(shapes, masked):
    dirs, coeffs = (jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in shapes)
    masks = jnp.asarray(RNG.random(dirs.shape[:-1]) < 0.6) if masked else None
    values = [spherical_harmonics(3, dirs, coeffs, masks=masks, backend=b) for b in ("auto", "reference")]
    np.testing.assert_allclose(*values, atol=5 * SINGLE)

    def gradients(backend):
        weights = jnp.cos(jnp.arange(values[0].size, dtype=jnp.float32)).reshape(values[0].shape)
        total = lambda d, c: (spherical_harmonics(3, d, c, masks=masks, backend=backend) * weights).sum()  # noqa: E731
        return jax.grad(total, (0, 1))(dirs, coeffs)

    for ours, truth in zip(gradients("auto"), gradients("reference"), strict=True):
        np.testing.assert_allclose(ours, truth, atol=20 * SINGLE, rtol=1e-4)


@pytest.mark.parametrize("degree", range(5))
def test_the_kernel_has_every_degree_and_leaves_the_other_coefficients_alone(degree):
    dirs = jnp.asarray(RNG.normal(size=(20, 3)), jnp.float32)
    coeffs = jnp.asarray(RNG.normal(size=(20, 25, 3)), jnp.float32)
    np.testing.assert_allclose(
        spherical_harmonics(degree, dirs, coeffs),
        spherical_harmonics(degree, dirs, coeffs, backend="reference"),
        atol=5 * SINGLE,
    )
    v_coeffs = jax.grad(lambda c: spherical_harmonics(degree, dirs, c).sum())(coeffs)
    assert (v_coeffs[:, (degree + 1) ** 2 :] == 0).all() and (v_coeffs[:, : (degree + 1) ** 2] != 0).any()


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("first", [0, 1, 4, 16])
def test_coefficients_in_two_parts_are_those_in_one(first, backend):
    dirs = jnp.asarray(RNG.normal(size=(3, 20, 3)), jnp.float32)
    coeffs = jnp.asarray(RNG.normal(size=(1, 20, 16, 3)), jnp.float32)
    factors = jnp.asarray([1.0] * 4 + [0.5] * 5 + [0.0] * 7)

    def whole(coeffs):
        return spherical_harmonics(3, dirs, coeffs * factors[None, None, :, None], backend=backend)

    def split(coeffs):
        parts = SHCoeffs(coeffs[..., :first, :], coeffs[..., first:, :], factors)
        return spherical_harmonics(3, dirs, parts, backend=backend)

    np.testing.assert_allclose(split(coeffs), whole(coeffs), atol=5 * SINGLE)
    truth, found = (jax.grad(lambda c, f=f: jnp.square(f(c)).sum())(coeffs) for f in (whole, split))
    np.testing.assert_allclose(found, truth, atol=50 * SINGLE, rtol=1e-4)


def test_wrong_parts_are_named():
    dirs, dc, rest = jnp.ones((2, 3)), jnp.ones((2, 1, 3)), jnp.ones((2, 3, 3))
    with pytest.raises(ValueError, match=r"coeffs must have K >= 9 coefficients in both parts for degree 2, got 4"):
        spherical_harmonics(2, dirs, SHCoeffs(dc, rest))
    with pytest.raises(ValueError, match=r"coeffs.rest must have shape"):
        spherical_harmonics(1, dirs, SHCoeffs(dc, jnp.ones((3, 3, 3))))
    with pytest.raises(ValueError, match=r"coeffs.factors must have shape \[4\], got \[3\]"):
        spherical_harmonics(1, dirs, SHCoeffs(dc, rest, jnp.ones(3)))


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


@pytest.mark.parametrize(("active", "used"), [(-1, 0), (0, 1), (1, 4), (1.9, 4), (2, 9), (3, 16), (7, 16)])
def test_factors_switch_off_the_degrees_above_the_active_one(active, used):
    factors = jax.jit(lambda active: sh_factors(active, degree=3))(active)
    np.testing.assert_array_equal(factors, np.arange(16) < used)
    dirs, coeffs = jnp.asarray(RNG.normal(size=(5, 3))), jnp.asarray(RNG.normal(size=(5, 16, 3)))
    masked = spherical_harmonics(3, dirs, SHCoeffs(coeffs[:, :1], coeffs[:, 1:], factors))
    kept = jnp.where((jnp.arange(16) < used)[:, None], coeffs, 0)
    np.testing.assert_allclose(masked, spherical_harmonics(3, dirs, kept), atol=1e-6)
