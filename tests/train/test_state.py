"""First splats and room for more."""

import numpy as np
import pytest

from jaxsplat.strategy import MCMC
from jaxsplat.train import TrainConfig, init_state, with_rows
from tests.train.scenes import trees_equal


def test_more_points_than_the_cap_are_thinned_the_same_way_every_time():
    config = TrainConfig(strategy=MCMC(cap=10), seed=5)
    points = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    first, again = (init_state(config, points, np.abs(points) / 5) for _ in range(2))
    assert int(first.num_splats) == 10 and first.splats.means.shape == (10, 3)
    assert trees_equal(first.splats, again.splats)


def test_no_points_is_an_error():
    with pytest.raises(ValueError, match="init_state: P must be at least 1"):
        init_state(TrainConfig(), np.zeros((0, 3)), np.zeros((0, 3)))


def test_fewer_rows_than_there_are_is_an_error():
    config = TrainConfig(strategy=MCMC(cap=10))
    state = init_state(config, np.eye(4, 3), np.eye(4, 3))
    with pytest.raises(ValueError, match="rows must be at least 6, which there are, got 5"):
        with_rows(state, 5, config)
