"""The reference along rays: golden file in float64, and finite differences."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Blend, rasterization, rasterize_gaussians_world
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.rays import FLOATS, anywhere, check_golden, ray_scene
from tests.scenes import random_scene


def test_golden_picture_and_every_gradient_in_float64():
    check_golden("reference")


@pytest.mark.parametrize("hits", [False, True])
def test_gradients_agree_with_finite_differences(hits):
    with double_precision():
        # A cut-off so low that no step crosses it.
        arguments, depths = ray_scene(8, cameras=1, moving=True, dtype=np.float64)

        def render(*floats):
            return rasterize_gaussians_world(
                *floats, extents=anywhere(depths), hits=hits, blend=Blend(alpha_min=1e-12), backend="reference"
            )

        assert_gradients(render, [arguments[name] for name in FLOATS])


def test_gradients_to_poses_and_intrinsics_agree_with_finite_differences():
    with double_precision():
        scene = random_scene(8, cameras=1, dtype=np.float64)
        colors = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (8, 3)))

        def render(means, viewmats, Ks):
            output = rasterization(
                means, scene.quats, scene.scales, scene.opacities, colors, viewmats, Ks, width=24, height=18,
                evaluate="ray", render_mode="RGB+D", blend=Blend(alpha_min=1e-12), backend="reference",
            )  # fmt: skip
            assert output.info is not None
            return output.colors, output.alphas, output.info.normals

        assert_gradients(render, [scene.means, scene.viewmats, scene.Ks])
