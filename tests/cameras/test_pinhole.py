"""The perspective camera."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.cameras import Intrinsics, pinhole
from tests.cameras import models
from tests.data import double_precision


@pytest.fixture(autouse=True)
def _double():
    with double_precision():
        yield


def test_a_point_lands_where_k_sends_it():
    k = Intrinsics(*map(jnp.asarray, (10.0, 0.5, 3.0, 0.25, 12.0, 4.0)))
    K, point = np.array([[10, 0.5, 3], [0.25, 12, 4], [0, 0, 1]]), np.array([0.3, -0.2, 2.0])
    x, y, z = map(jnp.asarray, point)
    np.testing.assert_allclose(pinhole.project(x, y, z, k), (K @ point / 2)[:2])


def test_the_jacobian_is_the_derivative_inside_the_image():
    models.assert_jacobian_is_the_derivative(pinhole)


def test_gradients_are_those_of_finite_differences():
    models.assert_gradients_hold(pinhole)


@pytest.mark.parametrize("skew", [0.0, 0.7])
def test_a_ray_leads_back_to_its_pixel(skew):
    models.assert_ray_leads_back_to_the_pixel(pinhole, skew)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("focal", [25.0, -25.0])
def test_outside_the_image_the_jacobian_is_that_of_the_clamped_slope(sign, focal):
    k = models.intrinsics()._replace(fx=jnp.asarray(focal))
    # 15% of the width beyond either border, measured from the principal point
    edge = (models.WIDTH - 19 + 0.15 * models.WIDTH if sign * focal > 0 else -(19 + 0.15 * models.WIDTH)) / focal
    x, y, z = sign * 50.0, 0.1, 2.0

    def row(x, z):
        return jnp.stack(pinhole.jacobian(x, jnp.asarray(y), z, k, models.WIDTH, models.HEIGHT)[0])

    np.testing.assert_allclose(row(jnp.asarray(x), jnp.asarray(z)), [focal / z, 0, -focal * edge / z])
    by_x, by_z = jax.jacrev(row, (0, 1))(jnp.asarray(x), jnp.asarray(z))
    np.testing.assert_array_equal(by_x, 0)
    np.testing.assert_allclose(by_z, [-focal / z**2, 0, focal * edge / z**2])
