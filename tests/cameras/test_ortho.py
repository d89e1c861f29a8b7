"""The orthographic camera."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.cameras import ortho
from tests.cameras import models
from tests.data import double_precision


@pytest.fixture(autouse=True)
def _double():
    with double_precision():
        yield


def test_depth_has_no_influence():
    x, y = jnp.asarray(0.2), jnp.asarray(-0.1)
    for z in (-1.0, 1.0, 100.0):
        np.testing.assert_allclose(
            ortho.project(x, y, jnp.asarray(z), models.intrinsics()), (25 * 0.2 + 19, -27 * 0.1 + 16)
        )


def test_the_jacobian_is_the_derivative():
    models.assert_jacobian_is_the_derivative(ortho)


def test_gradients_are_those_of_finite_differences():
    models.assert_gradients_hold(ortho)


def test_a_ray_leads_back_to_its_pixel():
    models.assert_ray_leads_back_to_the_pixel(ortho)
