"""Rotations, covariances and safe norms against scipy, numpy and finite differences."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxsplat import _linalg, quat_scale_to_covar_preci
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.tolerances import SINGLE

RNG = np.random.default_rng(0)
QUATS, SCALES = RNG.normal(size=(7, 4)), RNG.uniform(0.3, 2, (7, 3))
TRIU = ([0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2])


def truth(quats=QUATS, scales=SCALES):
    rotation = Rotation.from_quat(quats[:, [1, 2, 3, 0]]).as_matrix()
    return rotation @ (scales[:, :, None] ** 2 * rotation.transpose(0, 2, 1))


def covar_preci(quats: Any = QUATS, scales: Any = SCALES, **settings):
    """In float32, and both asked for."""
    covars, precis = quat_scale_to_covar_preci(*single(quats, scales), **settings)
    assert covars is not None and precis is not None
    return covars, precis


def single(*arrays):
    return [jnp.asarray(x, jnp.float32) for x in arrays]


def test_rotation_matrices_are_scipys():
    expected = Rotation.from_quat(QUATS[:, [1, 2, 3, 0]]).as_matrix()
    np.testing.assert_allclose(_linalg.quat_to_rotmat(*single(QUATS)), expected, atol=SINGLE)


@pytest.mark.parametrize("length", [1e-11, 1e-3, 1e15, 1e37])
def test_the_length_of_a_quaternion_does_not_matter(length):
    expected = _linalg.quat_to_rotmat(*single(QUATS))
    np.testing.assert_allclose(_linalg.quat_to_rotmat(*single(QUATS * length)), expected, atol=SINGLE)


def test_covariances_and_precisions_are_those_of_the_definition():
    covars, precis = covar_preci()
    np.testing.assert_allclose(covars, truth(), atol=1e-5)
    np.testing.assert_allclose(precis, np.linalg.inv(truth()), atol=1e-4)


def test_upper_triangles_hold_xx_xy_xz_yy_yz_zz():
    covars, precis = covar_preci(triu=True)
    np.testing.assert_allclose(covars, truth()[:, *TRIU], atol=1e-5)
    np.testing.assert_allclose(precis, np.linalg.inv(truth())[:, *TRIU], atol=1e-4)


def test_what_was_not_asked_for_is_none():
    assert quat_scale_to_covar_preci(*single(QUATS, SCALES), compute_covar=False).covars is None
    assert quat_scale_to_covar_preci(*single(QUATS, SCALES), compute_preci=False).precis is None


@pytest.mark.parametrize("triu", [False, True])
def test_gradients_are_right_for_quaternions_that_are_not_unit(triu):
    with double_precision():
        assert_gradients(
            lambda q, s: quat_scale_to_covar_preci(q, s, triu=triu), (jnp.asarray(QUATS * 3), jnp.asarray(SCALES))
        )


def test_leading_axes_broadcast_with_their_gradients():
    with double_precision():
        quats, scales = jnp.asarray(QUATS), jnp.asarray(np.stack([SCALES, SCALES * 2]))
        covars = quat_scale_to_covar_preci(quats, scales).covars
        assert covars is not None
        np.testing.assert_allclose(covars[1], truth() * 4)
        assert_gradients(quat_scale_to_covar_preci, (quats, scales))


def test_zero_quaternions_and_scales_stay_finite():
    quats, scales = single(np.zeros((2, 4)), [[0.0, 1, 1], [0, 0, 0]])
    covars, precis = covar_preci(quats, scales)
    np.testing.assert_array_equal(covars[0], np.diag([0, 1, 1]))
    assert np.isfinite(precis).all()
    gradients = jax.grad(
        lambda q, s: sum(jnp.sum(x) for x in quat_scale_to_covar_preci(q, s) if x is not None), (0, 1)
    )(quats, scales)
    np.testing.assert_array_equal(gradients[0], 0)
    assert np.isfinite(gradients[1]).all()


@pytest.mark.parametrize("size", [1e-11, 1.0, 1e38])
def test_unit_vectors_of_any_size_are_right(size):
    x, y = _linalg.unit(*single(3 * size, 3 * size))
    np.testing.assert_allclose([x, y], np.sqrt(0.5), rtol=SINGLE)


def test_a_zero_vector_stays_zero_with_zero_gradient():
    zero = jnp.zeros(3)
    vector, pullback = jax.vjp(_linalg.unit, *zero)
    assert [float(x) for x in vector] == [0, 0, 0]
    assert [float(x) for x in pullback((jnp.ones(()),) * 3)] == [0, 0, 0]


def test_interleave_undoes_components_also_under_vmap():
    x = jnp.arange(24.0).reshape(2, 4, 3)
    np.testing.assert_array_equal(_linalg.interleave(*_linalg.components(x)), x)
    np.testing.assert_array_equal(jax.vmap(lambda x: _linalg.interleave(*_linalg.components(x)))(x), x)
    gradient = jax.grad(lambda x: sum(k * jnp.sum(part) for k, part in enumerate(_linalg.components(x))))(x)
    np.testing.assert_array_equal(gradient, jnp.broadcast_to(jnp.arange(3.0), x.shape))


def test_inverse_2x2_is_the_inverse():
    a, b, c = 3.0, 1.0, 2.0
    inverse = np.linalg.inv([[a, b], [b, c]])
    np.testing.assert_allclose(_linalg.inverse_2x2(*single(a, b, c, a * c - b * b)), inverse[[0, 0, 1], [0, 1, 1]])


def test_a_wrong_shape_names_the_argument():
    with pytest.raises(ValueError, match=r"quat_scale_to_covar_preci: scales must have shape.*N, 3.*got \[7, 4\]"):
        quat_scale_to_covar_preci(*single(QUATS, QUATS))
    with pytest.raises(TypeError, match="quat_to_rotmat: quats must hold floating-point numbers"):
        _linalg.quat_to_rotmat(jnp.ones(4, jnp.int32))
