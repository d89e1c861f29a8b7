"""Rays through the pixels of a picture."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import cameras

K = jnp.array([[25.0, 0, 19], [0, 27, 16], [0, 0, 1]])


@pytest.mark.parametrize("camera_model", list(cameras.MODELS))
def test_rays_pass_through_the_pixel_centres(camera_model):
    rays = cameras.camera_rays(jnp.stack([K, 2 * K]), width=5, height=4, camera_model=camera_model)
    assert rays.origins.shape == rays.directions.shape == (2, 4, 5, 3)
    point = rays.origins + 2 * rays.directions
    for c, k in enumerate((K, 2 * K)):
        u, v = cameras.MODELS[camera_model].project(*jnp.moveaxis(point[c], -1, 0), cameras.split(k))
        np.testing.assert_allclose(u, np.broadcast_to(np.arange(5) + 0.5, (4, 5)), atol=2e-5)
        np.testing.assert_allclose(v, np.broadcast_to(np.arange(4)[:, None] + 0.5, (4, 5)), atol=2e-5)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="camera_model must be one of 'pinhole', 'ortho', 'fisheye', got 'spherical'"):
        cameras.camera_rays(K[None], width=5, height=4, camera_model="spherical")  # pyright: ignore
    with pytest.raises(ValueError, match="Ks must have shape"):
        cameras.camera_rays(K, width=5, height=4)
