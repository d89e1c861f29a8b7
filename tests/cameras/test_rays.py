"""Rays through the pixels of a picture."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Lens, Shutter, cameras
from jaxsplat.cameras.shutter import DIRECTIONS
from tests.cameras.lenses import expected
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


def test_rays_of_a_lens_lead_back_to_the_pixels_and_are_zero_where_it_sees_nothing():
    lens = Lens(radial=(-0.3,))  # reaches no farther than .70 on the plane
    k = jnp.array([[[10.0, 0, 16], [0, 10, 12], [0, 0, 1]]])
    rays = np.asarray(cameras.camera_rays(jnp.eye(4)[None], k, width=32, height=24, camera_model=lens))[0]
    there = (rays != 0).any(-1)
    y, x = np.mgrid[:24, :32] + 0.5
    reach = 2 / 3 / np.sqrt(0.9)
    np.testing.assert_array_equal(there, np.hypot(x - 16, y - 12) / 10 <= reach)
    directions = rays[there][:, 3:]
    np.testing.assert_allclose(np.linalg.norm(directions, axis=-1), 1, rtol=1e-6)
    back = expected(directions, lens) * 10 + [16, 12]
    np.testing.assert_allclose(back, np.stack([x, y], -1)[there], atol=1e-4)


def test_gradients_reach_the_coefficients_and_the_end_of_the_shutter():
    with double_precision():
        scene = random_scene(dtype=np.float64)
        end = scene.viewmats + 0.02 * jnp.asarray(np.random.default_rng(0).normal(size=scene.viewmats.shape))

        def rays(viewmats, Ks, end, radial, tangential):
            return cameras.camera_rays(
                viewmats, Ks, width=5, height=4, camera_model=Lens("equidistant", radial, tangential=tangential),
                shutter=Shutter(end, "left_to_right"),
            )  # fmt: skip

        arrays = (scene.viewmats, scene.Ks, end, jnp.asarray([0.1, -0.05]), jnp.asarray([[0.01, -0.02], [0.0, 0.03]]))
        assert_gradients(rays, arrays)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_lines_are_read_one_after_the_other(direction):
    scene = random_scene()
    turned = np.roll(np.asarray(scene.viewmats), 1, 0)

    def rays(viewmats, shutter=None):
        return np.asarray(cameras.camera_rays(viewmats, scene.Ks, width=5, height=4, shutter=shutter))

    first, last = rays(scene.viewmats), rays(jnp.asarray(turned))
    got = rays(scene.viewmats, Shutter(jnp.asarray(turned), direction))
    if direction in ("left_to_right", "right_to_left"):
        first, last, got = (x.swapaxes(1, 2) for x in (first, last, got))
    if direction in ("bottom_to_top", "right_to_left"):
        got = got[:, ::-1]
        first, last = first[:, ::-1], last[:, ::-1]
    np.testing.assert_allclose(got[:, 0], first[:, 0], atol=1e-5)
    np.testing.assert_allclose(got[:, -1], last[:, -1], atol=1e-5)
    assert np.abs(got[:, 1] - first[:, 1]).max() > 0.1


def test_new_coefficients_do_not_trace_again():
    traces = []

    @jax.jit
    def run(lens, end):
        traces.append(1)
        return cameras.camera_rays(jnp.eye(4)[None], K[None], width=5, height=4, camera_model=lens, shutter=end)

    for k in range(3):
        run(Lens(radial=jnp.array([0.1 * k])), Shutter(jnp.eye(4)[None] * (1 + k)))
    assert len(traces) == 1


def test_wrong_arguments_are_named():
    view = jnp.eye(4)[None]
    with pytest.raises(ValueError, match="camera_model must be one of 'pinhole', 'ortho', 'fisheye', got 'spherical'"):
        cameras.camera_rays(view, K[None], width=5, height=4, camera_model="spherical")  # pyright: ignore
    with pytest.raises(ValueError, match="Ks must have shape"):
        cameras.camera_rays(view, K, width=5, height=4)
    with pytest.raises(ValueError, match=r"shutter.viewmats_end must have shape \[..., C, 4, 4\] with C = 1"):
        cameras.camera_rays(view, K[None], width=5, height=4, shutter=Shutter(jnp.stack([jnp.eye(4)] * 2)))
    with pytest.raises(ValueError, match="shutter.direction must be one of 'top_to_bottom'.*got 'down'"):
        cameras.camera_rays(view, K[None], width=5, height=4, shutter=Shutter(view, "down"))  # pyright: ignore
