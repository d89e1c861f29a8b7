"""Distortion on the plane."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Lens
from jaxsplat.cameras.distortion import FARTHEST, bend, bend_derivative, turning_radius, unbend
from tests.cameras.lenses import LENSES
from tests.data import double_precision
from tests.differences import assert_gradients

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _double():
    with double_precision():
        yield


def points(n: int = 60, reach: float = 0.8):
    return (jnp.asarray(part) for part in RNG.uniform(-reach / 1.5, reach / 1.5, (2, n)))


@pytest.mark.parametrize("name", LENSES)
def test_bending_is_undone(name):
    lens = LENSES[name]
    limit = turning_radius(lens)
    x, y = points()
    back_x, back_y, there = jax.jit(unbend)(*bend(x, y, lens), lens, limit)
    assert there.all()
    np.testing.assert_allclose((back_x, back_y), (x, y), atol=1e-12)


@pytest.mark.parametrize("name", ["opencv", "kannala_brandt"])
def test_gradients_of_the_inverse_are_those_of_finite_differences(name):
    lens = LENSES[name]
    leaves, kind = jax.tree.flatten(lens)
    u, v = bend(*points(5), lens)

    def inverse(u, v, *leaves):
        lens = jax.tree.unflatten(kind, leaves)
        return unbend(u, v, lens, turning_radius(lens))[:2]

    assert_gradients(inverse, (u, v, *map(jnp.asarray, leaves)))


def test_second_derivatives_of_the_inverse_are_exact():
    lens = LENSES["kannala_brandt"]

    def inverse(u):
        return unbend(u, jnp.zeros_like(u), lens, turning_radius(lens).squeeze())[0]

    u, step = jnp.asarray(0.6), 1e-4
    difference = (inverse(u + step) - 2 * inverse(u) + inverse(u - step)) / step**2
    np.testing.assert_allclose(jax.grad(jax.grad(inverse))(u), difference, rtol=1e-4)


def test_the_derivative_is_that_of_finite_differences():
    lens, step = LENSES["opencv"], 1e-6
    x, y = points()
    by_x, by_y = bend_derivative(x, y, lens)
    for got, (dx, dy) in ((by_x, (step, 0)), (by_y, (0, step))):
        moved = [bend(x + sign * dx, y + sign * dy, lens) for sign in (1, -1)]
        np.testing.assert_allclose(got, (np.asarray(moved[0]) - np.asarray(moved[1])) / (2 * step), atol=1e-8)


def test_the_radius_at_which_a_lens_turns_back_is_found():
    # r + k r^3 turns where 1 + 3 k r^2 = 0; for several cameras at once
    k = np.array([[-0.3], [-0.5], [0.2]])
    limit = turning_radius(Lens(radial=(jnp.asarray(k),)))
    np.testing.assert_allclose(limit[:2], 1 / np.sqrt(-3 * k[:2]), rtol=1e-6)
    assert limit[2] == FARTHEST["perspective"]
    limit = turning_radius(Lens("equidistant", polynomial=(1.0, -0.25)))
    np.testing.assert_allclose(limit, 2.0, rtol=1e-6)
    assert turning_radius(LENSES["fov"]) == FARTHEST["perspective"]


def test_what_the_lens_never_reaches_has_no_origin():
    lens = Lens(radial=(-0.3,))
    limit = turning_radius(lens).squeeze()
    edge = float(limit * (1 - 0.3 * limit**2))
    u = jnp.asarray([edge * 0.999, edge * 1.001, 5.0, 0.0])
    x, y, there = unbend(u, jnp.zeros(4), lens, limit)
    assert there.tolist() == [True, False, False, True]
    assert (x <= limit).all() and (y == 0).all() and (x[1:] == 0).all()
    gradient = jax.jacrev(lambda k: unbend(u, jnp.zeros(4), Lens(radial=(k,)), limit)[0])(jnp.asarray(-0.3))
    assert np.isfinite(gradient).all() and (gradient[1:] == 0).all()


def test_a_strongly_decentred_lens_does_not_fold_back():
    lens = Lens(radial=(-0.2, 0.0), tangential=(0.05, 0.02))
    limit = turning_radius(lens).squeeze()
    grid = jnp.linspace(-3, 3, 41)
    u, v = (part.reshape(-1) for part in jnp.meshgrid(grid, grid))
    x, y, there = unbend(u, v, lens, limit)
    assert 0.05 < there.mean() < 0.6
    assert (jnp.hypot(x, y) <= limit).all()
    bent = bend(x, y, lens)
    np.testing.assert_allclose(bent[0][there], u[there], atol=1e-4)
    np.testing.assert_allclose(bent[1][there], v[there], atol=1e-4)


def test_without_an_angle_the_fov_model_is_a_pinhole():
    x, y = points()
    for w in (0.0, 1e-9):
        np.testing.assert_allclose(bend(x, y, Lens(omega=(w,))), (x, y), rtol=1e-8)
    assert jax.grad(lambda w: bend(x[0], y[0], Lens(omega=(w,)))[0])(0.0) == 0


@pytest.mark.parametrize("name", ["opencv", "f_theta"])
def test_gradients_are_finite_in_the_middle(name):
    lens, zero = LENSES[name], jnp.asarray(0.0)
    inverse = jax.jit(jax.jacrev(lambda u, v: unbend(u, v, lens, turning_radius(lens).squeeze())[:2], (0, 1)))
    np.testing.assert_allclose(inverse(zero, zero), np.eye(2), atol=1e-12)
