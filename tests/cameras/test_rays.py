"""Rays through the pixels of a picture."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import cameras
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.scenes import random_scene

K = jnp.array([[25.0, 0, 19], [0, 27, 16], [0, 0, 1]])


@pytest.mark.parametrize("camera_model", list(cameras.MODELS))
def test_rays_pass_through_the_pixel_centres(camera_model):
    scene = random_scene()
    rays = np.asarray(cameras.camera_rays(scene.viewmats, scene.Ks, width=5, height=4, camera_model=camera_model))
    assert rays.shape == (2, 4, 5, 6)
    np.testing.assert_allclose(np.linalg.norm(rays[..., 3:], axis=-1), 1, rtol=1e-6)
    for c in range(2):
        view = np.asarray(scene.viewmats[c])
        point = (rays[c, ..., :3] + 2 * rays[c, ..., 3:]) @ view[:3, :3].T + view[:3, 3]
        xyz = (jnp.asarray(part) for part in np.moveaxis(point, -1, 0))
        u, v = cameras.MODELS[camera_model].project(*xyz, cameras.split(scene.Ks[c]))
        np.testing.assert_allclose(u, np.broadcast_to(np.arange(5) + 0.5, (4, 5)), atol=1e-4)
        np.testing.assert_allclose(v, np.broadcast_to(np.arange(4)[:, None] + 0.5, (4, 5)), atol=1e-4)


@pytest.mark.parametrize("camera_model", list(cameras.MODELS))
def test_gradients_to_poses_and_intrinsics_are_those_of_finite_differences(camera_model):
    with double_precision():
        scene = random_scene(dtype=np.float64)
        assert_gradients(
            lambda *a: cameras.camera_rays(*a, width=5, height=4, camera_model=camera_model), (scene.viewmats, scene.Ks)
        )


def test_wrong_arguments_are_named():
    view = jnp.eye(4)[None]
    with pytest.raises(ValueError, match="camera_model must be one of 'pinhole', 'ortho', 'fisheye', got 'spherical'"):
        cameras.camera_rays(view, K[None], width=5, height=4, camera_model="spherical")  # pyright: ignore
    with pytest.raises(ValueError, match="Ks must have shape"):
        cameras.camera_rays(view, K, width=5, height=4)
