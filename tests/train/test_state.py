"""First splats and room for more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.strategy import MCMC
from jaxsplat.train import TrainConfig, init_state, render_splats, splats_from_points
from jaxsplat.train.state import with_capacity
from tests.train.scenes import random_splats, trees_equal


def test_splats_have_the_color_of_their_point_and_the_size_of_its_surroundings():
    points = jnp.array([[0.0, 0, 0], [1, 0, 0], [0, 2, 0], [0, 0, 3]])
    colors = jnp.linspace(0, 1, 12).reshape(4, 3)
    splats = splats_from_points(points, colors, sh_degree=2, opacity=0.3, scale=0.5)
    np.testing.assert_allclose(0.5 + 0.28209479 * splats.sh_dc[:, 0], colors, atol=1e-6)
    np.testing.assert_allclose(np.exp(splats.log_scales[0]), 0.5 * np.sqrt((1 + 4 + 9) / 3), rtol=1e-5)
    np.testing.assert_allclose(jax.nn.sigmoid(splats.logit_opacities), 0.3, rtol=1e-5)
    assert splats.sh_rest.shape == (4, 8, 3) and not splats.sh_rest.any()


def test_one_point_and_coinciding_points_give_finite_splats():
    for points in (jnp.zeros((1, 3)), jnp.zeros((5, 3)), jnp.zeros((2, 3))):
        splats = splats_from_points(points, jnp.full(points.shape, 0.5), sh_degree=0)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(splats))


def test_spare_rows_are_invisible():
    splats = random_splats(20)
    viewmats = jnp.eye(4).at[2, 3].set(3.0)[None]
    Ks = jnp.array([[[40.0, 0, 16], [0, 40, 12], [0, 0, 1]]])
    few = render_splats(splats, viewmats, Ks, width=32, height=24).colors
    many = render_splats(with_capacity(splats, 50), viewmats, Ks, width=32, height=24).colors
    assert np.array_equal(few, many) and few.any()


def test_more_points_than_the_cap_are_thinned_the_same_way_every_time():
    config = TrainConfig(strategy=MCMC(cap=10), seed=5)
    points = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    first, again = (init_state(config, points, np.abs(points) / 5) for _ in range(2))
    assert int(first.num_splats) == 10 and first.splats.means.shape == (10, 3)
    assert trees_equal(first.splats, again.splats)


def test_no_points_is_an_error():
    with pytest.raises(ValueError, match="init_state: P must be at least 1"):
        init_state(TrainConfig(), np.zeros((0, 3)), np.zeros((0, 3)))
