"""First splats."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat.initialization import splats_from_points


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
