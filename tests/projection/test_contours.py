"""Bounds of splats along the rays of any camera: no pixel that a splat reaches is lost."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Lens, Shutter, intrinsics_from_fov, project_outlines, rasterization, rasterize_gaussians_world
from jaxsplat.cameras import camera_rays
from tests.projection.test_outlines import near_splats
from tests.rays import anywhere

SIZE = {"width": 61, "height": 47}
VIEW = jnp.eye(4)[None]
NARROW = intrinsics_from_fov(1.2, **SIZE)[None]
WIDE = intrinsics_from_fov(np.radians(240), projection="equidistant", **SIZE)[None]
COSINE, SINE = np.cos(0.2), np.sin(0.2)
END = jnp.array([[[COSINE, -SINE, 0, 0.1], [SINE, COSINE, 0, 0.05], [0, 0, 1, -0.2], [0, 0, 0, 1]]])
CAMERAS = {
    # Coefficients are traced: one program for both.
    "240 degrees": (WIDE, Lens("equidistant", radial=(0.0, 0.0))),
    "a fisheye that turns back": (WIDE, Lens("equidistant", radial=(0.05, -0.02))),
    "fisheye": (WIDE, "fisheye"),
    "barrel": (NARROW, Lens(radial=(-0.4, 0.1))),
    "all of OpenCV": (NARROW, Lens(radial=(0.3,), divisor=(0.2,), tangential=(0.01, 0.02), prism=(0.01, 0, 0.02, 0))),
    "ortho": (jnp.array([[[15.0, 0, 30], [0, 15, 23], [0, 0, 1]]]), "ortho"),
}


@functools.partial(jax.jit, static_argnames="named")
def outlines(means, quats, scales, opacities, K, lens, shutter, named=None):
    """Bounds by a lens or, without one, by the model of that name."""
    settings = {**SIZE, "camera_model": lens or named, "shutter": shutter}
    return project_outlines(means, quats, scales, VIEW, K, opacities=opacities, **settings)


def check(K, model, shutter, halfway):
    """Asserts that the picture is that of splats without bounds, and returns what bounds spare."""
    means, quats, scales, opacities, colors = near_splats(150)
    settings = {**SIZE, "camera_model": model, "shutter": shutter}
    lens, named = (model, None) if isinstance(model, Lens) else (None, model)
    bounds = outlines(means, quats, scales, opacities, K, lens, shutter, named=named)
    rays = camera_rays(VIEW, K, **settings)
    local = jnp.asarray(np.asarray(means) @ halfway[:3, :3].T + halfway[:3, 3])
    behind = isinstance(model, Lens) and model.projection == "equidistant"
    depths = jnp.linalg.norm(local, axis=-1) if behind else local[:, 2]
    everything = anywhere(depths[None])
    everything = everything._replace(radii=jnp.where(depths[None, :, None] > 0.01, everything.radii, 0))
    splats = (means[None], quats[None], scales[None], opacities[None], colors[None], rays)
    bounded, complete = (rasterize_gaussians_world(*splats, extents=extents) for extents in (bounds, everything))
    np.testing.assert_allclose(bounded.colors, complete.colors, atol=1e-6)
    assert float(complete.alphas.mean()) > 0.3
    return float(bounded.list_count[0] / complete.list_count[0])


@pytest.mark.parametrize("name", CAMERAS)
def test_no_pixel_that_a_splat_reaches_is_lost(name):
    assert check(*CAMERAS[name], None, np.eye(4)) < 0.8


def test_no_pixel_is_lost_while_a_camera_moves():
    end = np.asarray(END[0], np.float64)
    halfway = np.eye(4)
    halfway[:2, :2] = [[np.cos(0.1), -np.sin(0.1)], [np.sin(0.1), np.cos(0.1)]]
    halfway[:3, 3] = halfway[:3, :3] @ (0.5 * end[:3, :3].T @ end[:3, 3])
    assert check(NARROW, Lens(radial=(-0.4, 0.1)), Shutter(END), halfway) < 0.9


def test_the_pipeline_shows_splats_that_a_linearisation_drops():
    """A wide splat beside a barrel lens: its mean is far outside the picture, where the linearisation shrinks it."""
    means, scales = jnp.array([[2.0, 0.0, 0.4]]), jnp.array([[0.9, 0.5, 0.3]])
    splats = (means, jnp.array([[1.0, 0, 0, 0]]), scales, jnp.array([0.9]), jnp.ones((1, 3)), VIEW, NARROW)
    K, model = CAMERAS["barrel"]
    rays = camera_rays(VIEW, K, camera_model=model, **SIZE)
    truth = rasterize_gaussians_world(*(x[None] for x in splats[:5]), rays, extents=anywhere(jnp.array([[0.4]]))).alphas

    @functools.partial(jax.jit, static_argnums=0)
    def shown(projection, *splats):
        return rasterization(*splats, evaluate="ray", camera_model=model, projection=projection, **SIZE).alphas

    chosen, linear = (shown(projection, *splats) for projection in (None, "ewa"))
    assert float(truth.max()) > 0.1
    np.testing.assert_allclose(chosen, truth, atol=1e-6)
    assert float(jnp.abs(linear - truth).max()) > 0.1


def test_bounds_of_small_splats_are_tight():
    means, quats = jnp.array([[0.5, -0.4, 1.0]]), jnp.array([[1.0, 0.3, -0.2, 0.5]])
    K, model = CAMERAS["barrel"]
    K, size = K * jnp.array([[[8.0], [8], [1]]]), {"width": 488, "height": 376}
    scales = jnp.array([[0.05, 0.02, 0.03]])
    bounds = project_outlines(
        means, quats, scales, VIEW, K, opacities=jnp.array([0.9]), camera_model=model, eps2d=0.0, **size
    )
    rays = camera_rays(VIEW, K, camera_model=model, **size)
    arguments = (means[None], quats[None], scales[None], jnp.array([[0.9]]), jnp.ones((1, 1, 1)), rays)
    seen = np.asarray(rasterize_gaussians_world(*arguments, extents=anywhere(jnp.array([[1.0]]))).last_ids[0] >= 0)
    a, b, c = (float(x) for x in bounds.conics[0, 0])
    x, y = (np.arange(s) + 0.5 - float(m) for s, m in zip((488, 376), bounds.means2d[0, 0], strict=True))
    inside = a * x[None] ** 2 + 2 * b * x[None] * y[:, None] + c * y[:, None] ** 2 <= 2 * np.log(0.9 * 255)
    assert seen.sum() > 500 and not (seen & ~inside).any()
    assert inside.sum() < 1.4 * seen.sum()
