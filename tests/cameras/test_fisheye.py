"""The equidistant fisheye camera."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.cameras import fisheye
from tests.cameras import models
from tests.data import double_precision


@pytest.fixture
def double():
    with double_precision():
        yield


@pytest.mark.parametrize("theta", [1e-6, 0.1, 0.22, 0.225, 0.7, 1.5])
def test_the_distance_from_the_centre_is_the_angle(theta, double):
    x, y, z = (3 * jnp.asarray(v) for v in (math.sin(theta) * 0.6, math.sin(theta) * 0.8, math.cos(theta)))
    u, v = fisheye.project(x, y, z, models.intrinsics())
    np.testing.assert_allclose((u, v), (25 * theta * 0.6 + 19, 27 * theta * 0.8 + 16), rtol=1e-14)


def test_the_jacobian_is_the_derivative(double):
    models.assert_jacobian_is_the_derivative(fisheye)


def test_gradients_are_those_of_finite_differences(double):
    models.assert_gradients_hold(fisheye)


def test_a_ray_leads_back_to_its_pixel(double):
    models.assert_ray_leads_back_to_the_pixel(fisheye)


def test_series_and_formula_meet(double):
    edge = math.sqrt(fisheye.SERIES_BELOW)
    zero, one = jnp.asarray(0.0), jnp.asarray(1.0)
    inside, outside = (
        fisheye.jacobian(jnp.asarray(edge * factor), zero, one, models.intrinsics(), 1, 1)
        for factor in (1 - 1e-12, 1 + 1e-12)
    )
    np.testing.assert_allclose(jnp.stack(inside[0]), jnp.stack(outside[0]), rtol=1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_on_the_axis_values_and_gradients_are_the_limit(dtype):
    with double_precision(dtype == np.float64):
        zero, z = jnp.zeros((), dtype), jnp.asarray(2, dtype)
        k = models.intrinsics()._replace(fx=jnp.asarray(25, dtype))
        u, _ = fisheye.project(zero, zero, z, k)
        assert float(u) == 19
        row = jnp.stack(fisheye.jacobian(zero, zero, z, k, 1, 1)[0])
        np.testing.assert_allclose(row, [12.5, 0, 0])
        gradients = jax.jacrev(lambda x, y, z: jnp.stack(fisheye.jacobian(x, y, z, k, 1, 1)[0]), (0, 1, 2))(
            zero, zero, z
        )
        np.testing.assert_allclose(gradients, [[0, 0, -25 / 4], [0, 0, 0], [-25 / 4, 0, 0]], rtol=1e-6)


def test_a_ray_behind_the_image_plane_points_backwards(double):
    _, direction = fisheye.ray(jnp.asarray(19 + 25 * 2.0), jnp.asarray(16.0), models.intrinsics())
    np.testing.assert_allclose(direction, (math.sin(2), 0, math.cos(2)), atol=1e-15)
