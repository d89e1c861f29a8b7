"""What a camera sees between two poses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm, logm

from jaxsplat.cameras.pose import split_pose
from jaxsplat.cameras.shutter import motion
from tests.data import double_precision
from tests.differences import assert_gradients


@pytest.fixture(autouse=True)
def _double():
    with double_precision():
        yield


def pose(angles, shift):
    """[4, 4] of a rotation by an axis times an angle."""
    x, y, z = angles
    matrix = np.eye(4)
    matrix[:3, :3] = expm(np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]))
    matrix[:3, 3] = shift
    return matrix


START = pose((0.3, -0.4, 0.2), (0.1, -0.3, 2.0))
POINTS = np.random.default_rng(3).normal(size=(5, 3))


def moving(end, start=START):
    return motion(*(split_pose(jnp.asarray(p), 0) for p in (start, end)))


@pytest.mark.parametrize("size", [1e-5, 0.1, 2.5])
@pytest.mark.parametrize("time", [0.0, 0.3, 1.0])
def test_the_centre_moves_straight_and_the_rotation_is_the_exponential_map(size, time):
    axis = np.array([0.6, 0.0, -0.8])
    end = pose(size * axis, (0.5, 0.1, -0.2)) @ START
    centres = [-p[:3, :3].T @ p[:3, 3] for p in (START, end)]
    between = np.eye(4)
    between[:3, :3] = expm(time * logm(end[:3, :3] @ START[:3, :3].T).real) @ START[:3, :3]
    between[:3, 3] = -between[:3, :3] @ (centres[0] + time * (centres[1] - centres[0]))
    world = np.concatenate([POINTS, np.ones((5, 1))], -1)
    first, expected = (world @ START.T)[:, :3], (world @ between.T)[:, :3]
    got = moving(end).later(tuple(map(jnp.asarray, first.T)), jnp.asarray(time))
    np.testing.assert_allclose(np.stack(got, -1), expected, atol=1e-10)
    back = moving(end).earlier(got, jnp.asarray(time))
    np.testing.assert_allclose(np.stack(back, -1), first, atol=1e-10)


def test_gradients_are_those_of_finite_differences_also_at_rest():
    for end in (pose((0.1, 0.2, -0.3), (0.5, 0.1, -0.2)) @ START, START):

        def later(start, end, points):
            return motion(split_pose(start, 0), split_pose(end, 0)).later(tuple(points), jnp.asarray(0.7))

        assert_gradients(later, (jnp.asarray(START), jnp.asarray(end), jnp.asarray(POINTS.T)))


def test_at_rest_nothing_moves():
    resting = moving(START)
    np.testing.assert_array_equal(resting.turn, 0)
    np.testing.assert_allclose(resting.step, 0, atol=1e-15)
    assert np.isfinite(jax.jacrev(lambda end: motion(split_pose(end, 0), split_pose(end, 0)).turn)(START)[0]).all()
