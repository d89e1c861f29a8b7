"""Rows to spare."""

import jax.numpy as jnp
import numpy as np

from jaxsplat.strategy.rows import with_capacity
from jaxsplat.train import render_splats
from tests.train.scenes import random_splats


def test_spare_rows_are_invisible():
    splats = random_splats(20)
    viewmats = jnp.eye(4).at[2, 3].set(3.0)[None]
    Ks = jnp.array([[[40.0, 0, 16], [0, 40, 12], [0, 0, 1]]])
    few = render_splats(splats, viewmats, Ks, width=32, height=24).colors
    many = render_splats(with_capacity(splats, 50), viewmats, Ks, width=32, height=24).colors
    assert np.array_equal(few, many) and few.any()
