"""Cameras behind a lens."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Lens
from jaxsplat.cameras import pinhole, split
from tests.cameras import models
from tests.cameras.lenses import LENSES, camera, expected
from tests.data import double_precision


@pytest.fixture(autouse=True)
def _double():
    with double_precision():
        yield


@pytest.mark.parametrize("name", LENSES)
def test_points_land_where_the_formulas_put_them(name):
    lens = LENSES[name]
    rng = np.random.default_rng(2)
    xyz = rng.uniform((-0.6, -0.6, 0.9), (0.6, 0.6, 3), (40, 3))
    K = np.array([[30, 0.7, 20], [0.1, 28, 14], [0, 0, 1.0]])
    got = camera(lens).project(*map(jnp.asarray, xyz.T), split(jnp.asarray(K)))
    np.testing.assert_allclose(np.stack(got, -1), expected(xyz, lens) @ K[:2, :2].T + K[:2, 2], rtol=1e-12)


@pytest.mark.parametrize("name", LENSES)
def test_the_jacobian_is_the_derivative(name):
    models.assert_jacobian_is_the_derivative(camera(LENSES[name]))


@pytest.mark.parametrize("name", ["opencv", "kannala_brandt"])
def test_gradients_are_those_of_finite_differences(name):
    models.assert_gradients_hold(camera(LENSES[name]))


@pytest.mark.parametrize("name", ["opencv", "thin_prism_fisheye", "fov"])
def test_a_ray_leads_back_to_its_pixel(name):
    models.assert_ray_leads_back_to_the_pixel(camera(LENSES[name]), skew=0.7)


def test_a_fisheye_looks_behind_itself():
    lens = Lens("equidistant", radial=(0.01, -0.001))
    model, k = camera(lens), models.intrinsics()
    for degrees in (30, 90, 110, 150):
        t = np.radians(degrees)
        xyz = 3 * np.array([0.6 * np.sin(t), 0.8 * np.sin(t), np.cos(t)])
        point = [jnp.asarray(v) for v in xyz]
        assert model.sees(*point)
        assert model.depth(*point) == pytest.approx(3)
        u, v = model.project(*point, k)
        np.testing.assert_allclose((u, v), expected(xyz, lens) * [25, 27] + [19, 16], rtol=1e-12)
        _, direction = model.ray(u, v, k)
        np.testing.assert_allclose(jnp.stack(direction), xyz / 3, atol=1e-12)


def test_what_lies_outside_the_domain_is_not_seen():
    def sees(lens, *xyz):
        return bool(camera(lens).sees(*map(jnp.asarray, xyz)))

    barrel = Lens(radial=(-1 / 3,))  # turns back at 45 degrees
    assert sees(barrel, 0.99, 0.0, 1.0) and not sees(barrel, 1.01, 0.0, 1.0)
    assert not sees(barrel, 0.0, 0.0, -1.0) and not sees(Lens(), 0.1, 0.0, 0.0)
    fisheye = Lens("equidistant", polynomial=(1.0, 0.0, -1 / (3 * 2.0**2)))  # at 2 radians
    for angle, seen in ((1.99, True), (2.01, False)):
        assert sees(fisheye, np.sin(angle), 0.0, np.cos(angle)) == seen


def test_outside_the_picture_the_jacobian_of_a_perspective_lens_is_bounded():
    lens = Lens(radial=(0.1,))
    model, k = camera(lens), models.intrinsics()
    x, y, z = (jnp.asarray(v) for v in (60.0, 0.0, 1.0))
    across, _ = model.jacobian(x, y, z, k, models.WIDTH, models.HEIGHT)
    r = np.hypot((1.15 * models.WIDTH - 19) / 25, (16 + 0.15 * models.HEIGHT) / 27)  # of the farthest corner
    edge = max(np.roots([0.1, 0, 1, -r]).real)
    np.testing.assert_allclose(across[0], 25 * (1 + 0.3 * edge**2), rtol=1e-6)

    def slope(fx):
        return model.jacobian(x, y, z, k._replace(fx=fx), models.WIDTH, models.HEIGHT)[0][2]

    fx, step = jnp.asarray(25.0), 1e-5
    difference = (slope(fx + step) - slope(fx - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(slope)(fx), difference, rtol=1e-7)


def test_a_lens_without_coefficients_is_a_pinhole():
    model, k = camera(Lens()), models.intrinsics(0.5)
    x, y, z = models.points()
    np.testing.assert_allclose(model.project(x, y, z, k), pinhole.project(x, y, z, k), rtol=1e-14)
