"""Where a scene is and how large, for good and for odd sets of cameras."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.data.normalize import Normalization, normalization
from jaxsplat.train import render_splats
from tests.train.scenes import look_at_origin, random_splats


def viewmats(poses):
    flip = np.diag([1.0, -1.0, -1.0, 1.0])
    return np.stack([np.linalg.inv(pose @ flip) for pose in poses])


def ring(count=12, shift=(0.0, 0.0, 0.0), distance=3.0):
    poses = [look_at_origin(2 * np.pi * i / count, distance=distance) for i in range(count)]
    for pose in poses:
        pose[:3, 3] += shift
    return poses


def test_the_center_is_what_the_cameras_look_at_and_the_scale_their_distance():
    result = normalization(viewmats(ring(shift=(5.0, -2.0, 1.0))))
    np.testing.assert_allclose(result.center, [5, -2, 1], atol=0.02)
    assert result.scale == pytest.approx(np.hypot(3.0, 0.5), rel=0.02)


def test_an_outlier_camera_changes_little():
    far = look_at_origin(0.7)
    far[:3, 3] = [1e5, 3e5, 0.0]
    result = normalization(viewmats([*ring(), far]))
    np.testing.assert_allclose(result.center, 0.0, atol=0.1)
    assert result.scale == pytest.approx(3.04, rel=0.05)
    many = normalization(viewmats([*ring(), far, far, far, far]))
    np.testing.assert_allclose(many.center, 0.0, atol=0.3)
    assert many.scale == pytest.approx(3.04, rel=0.5)


def test_cameras_at_one_point_keep_the_scale_of_the_world():
    poses = ring()
    for pose in poses:
        pose[:3, 3] = [7.0, 8.0, 9.0]
    result = normalization(viewmats(poses))
    np.testing.assert_allclose(result.center, [7, 8, 9], atol=1e-9)
    assert result.scale == 1.0


@pytest.mark.parametrize("spread", [0.0, 1e-3])
def test_points_say_how_large_a_scene_around_one_point_is(spread):
    poses = ring()
    for i, pose in enumerate(poses):
        pose[:3, 3] = [7.0 + spread * i, 8.0, 9.0]
    directions = np.random.default_rng(0).normal(size=(500, 3))
    points = [7, 8, 9] + 5.0 * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    points[:20] *= 1e6
    result = normalization(viewmats(poses), points)
    np.testing.assert_allclose(result.center, [7, 8, 9], atol=0.01)
    assert result.scale == pytest.approx(5.0, rel=0.01)


def test_points_change_nothing_where_the_cameras_stand_apart():
    points = np.random.default_rng(0).normal(size=(500, 3)) * 10
    with_points, without = normalization(viewmats(ring()), points), normalization(viewmats(ring()))
    assert with_points.scale == without.scale and (with_points.center == without.center).all()


def test_parallel_cameras_give_a_finite_center_in_front():
    poses = [np.eye(4) for _ in range(5)]
    for i, pose in enumerate(poses):
        pose[0, 3] = i
    result = normalization(viewmats(poses))
    assert np.isfinite(result.center).all() and result.center[2] < 0 and 0.5 < result.scale < 50


def test_a_normalized_scene_looks_the_same():
    normal = Normalization(np.array([1.0, -2.0, 0.5]), 2.5)
    views = viewmats(ring())[:2].astype(np.float32)
    Ks = jnp.tile(jnp.array([[[40.0, 0, 16], [0, 40, 12], [0, 0, 1]]]), (2, 1, 1))
    splats = random_splats(30)
    world = normal.to_world(splats)
    moved = np.array(views)
    moved[:, :3, 3] = moved[:, :3, 3] * 2.5 - moved[:, :3, :3] @ np.array([1.0, -2.0, 0.5], np.float32)
    np.testing.assert_allclose(normal.viewmats(moved), views, atol=1e-5)
    here = render_splats(splats, jnp.asarray(views), Ks, width=32, height=24).colors
    there = render_splats(world, jnp.asarray(moved), Ks, width=32, height=24).colors
    np.testing.assert_allclose(here, there, atol=2e-3)
    np.testing.assert_allclose(normal.points(np.asarray(world.means)), np.asarray(splats.means), atol=1e-5)
