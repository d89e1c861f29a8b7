"""Depth from sparse points: projection, hidden points, the loss, and a scene it puts in its place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.cameras import Lens
from jaxsplat.optim import LearningRates
from jaxsplat.strategy import Fixed
from jaxsplat.train import Batch, TrainConfig, init_state, make_train_step
from jaxsplat.train.depth import SparseDepths, depth_loss, sparse_depths

K = np.array([[[40.0, 0, 16], [0, 40, 12], [0, 0, 1]]], np.float32)
VIEW = np.eye(4, dtype=np.float32)[None]


def project(points, **settings):
    return sparse_depths(np.asarray(points, np.float32), VIEW, K, width=32, height=24, per_view=4, **settings)


def test_points_are_where_the_camera_sees_them():
    sparse = project([[0.1, -0.05, 2.0], [0, 0, -1.0], [9.0, 0, 1.0], [0, 0, 0]])
    assert sparse.weights.tolist() == [[1, 0, 0, 0]]
    np.testing.assert_allclose(sparse.pixels[0, 0], [16 + 2, 12 - 1], rtol=1e-5)
    assert sparse.depths[0, 0] == 2.0


def test_points_are_where_a_lens_puts_them():
    bent = project([[0.4, -0.2, 2.0]], lens=Lens(radial=np.float32([[-0.5]])))
    shrink = 1 - 0.5 * (0.2**2 + 0.1**2)
    np.testing.assert_allclose(bent.pixels[0, 0], [16 + 8 * shrink, 12 - 4 * shrink], rtol=1e-5)
    assert bent.depths[0, 0] == 2.0


def test_a_fisheye_sees_points_behind_it_at_their_distance():
    narrow = np.diag([4.0, 4.0, 1.0])[None] + K * [[[0, 0, 1], [0, 0, 1], [0, 0, 0]]]
    sparse = sparse_depths(
        np.float32([[3.0, 0, -4.0]]),
        VIEW,
        narrow,
        width=32,
        height=24,
        lens=Lens("equidistant", radial=np.zeros((1, 1))),
    )
    np.testing.assert_allclose(sparse.pixels[0, 0], [16 + 4 * (np.pi - np.arctan(0.75)), 12], rtol=1e-5)
    assert sparse.depths[0, 0] == 5.0


def test_points_behind_others_are_left_out_and_those_just_behind_are_not():
    sparse = project([[0.0, 0, 2.0], [0.01, 0, 2.1], [0.02, 0.0, 3.0], [0.7, 0.5, 3.0]])
    assert sorted(np.asarray(sparse.depths[0])[np.asarray(sparse.weights[0]) > 0].tolist()) == pytest.approx(
        [2, 2.1, 3]
    )


def test_more_points_than_rows_are_thinned_by_seed():
    points = np.random.default_rng(0).uniform([-0.3, -0.2, 1.0], [0.3, 0.2, 1.05], (40, 3))
    first, again, other = project(points), project(points), project(points, seed=1)
    assert first.weights.all() and np.array_equal(first.pixels, again.pixels)
    assert not np.array_equal(first.pixels, other.pixels)


def test_the_loss_is_the_mean_difference_of_inverse_depths_where_something_is_rendered():
    depths = jnp.full((1, 24, 32), 2.0).at[0, :4].set(0.0)
    sparse = SparseDepths(
        jnp.array([[[10.5, 10.5], [20.0, 12.0], [5.0, 1.0], [3.0, 3.0]]]),
        jnp.array([[4.0, 2.0, 1.0, 1.0]]),
        jnp.array([[1.0, 1.0, 1.0, 0.0]]),
    )
    value, gradient = jax.value_and_grad(depth_loss)(depths, sparse)
    assert float(value) == pytest.approx((0.25 + 0.0) / 2)
    assert np.isfinite(gradient).all() and gradient[0, 10, 10] != 0


def test_no_point_at_all_is_no_loss():
    sparse = project(np.zeros((0, 3)))
    value, gradient = jax.value_and_grad(depth_loss)(jnp.zeros((1, 24, 32)), sparse)
    assert float(value) == 0.0 and not gradient.any()


def test_depth_is_linear_between_the_centres_of_the_pixels():
    ramp = jnp.broadcast_to(jnp.arange(32.0) + 1.0, (24, 32))[None]
    sparse = SparseDepths(jnp.array([[[10.75, 3.0]]]), jnp.array([[11.25]]), jnp.ones((1, 1)))
    assert float(depth_loss(ramp, sparse)) == pytest.approx(0.0, abs=1e-6)


def test_one_view_alone_leaves_a_wall_at_a_wrong_distance_and_points_move_it_to_the_right_one():
    rng = np.random.default_rng(0)
    wall = np.concatenate([rng.uniform([-1, -0.8], [1, 0.8], (150, 2)), np.full((150, 1), 2.0)], 1)
    near = wall.astype(np.float32) * 0.75  # the same picture, at three quarters of the distance
    sparse = sparse_depths(wall, VIEW, K, width=32, height=24)
    batch = Batch(jnp.full((1, 24, 32, 3), 0.5), jnp.asarray(VIEW), jnp.asarray(K), depths=sparse)

    def distance(weight):
        rates = LearningRates(means=1e-2, means_end=0.3)
        config = TrainConfig(
            steps=120, sh_degree=0, strategy=Fixed(), depth_weight=weight, initial_scale=1.5, initial_opacity=0.7,
            rates=rates,
        )  # fmt: skip
        state = init_state(config, near, np.full((150, 3), 0.5))
        step = jax.jit(make_train_step(config))
        for _ in range(120):
            state, _ = step(state, batch)
        return float(jnp.median(state.splats.means[:, 2]))

    assert abs(distance(1.0) - 2.0) < 0.2 < abs(distance(0.0) - 2.0)
