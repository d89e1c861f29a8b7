"""Flights through cameras."""

import numpy as np
import pytest

from jaxsplat.data import normalization
from jaxsplat.data.capture import Cameras
from jaxsplat.io.files import InputError
from jaxsplat.train.path import camera_path, smooth_path
from tests.test_data_normalize import ring, viewmats


def cameras(count):
    poses = viewmats(ring(12)[:count]).astype(np.float32)
    Ks = np.tile(np.eye(3, dtype=np.float32), (count, 1, 1))
    return Cameras(tuple(str(i) for i in range(count)), poses, Ks, 8, 6)


def test_the_path_goes_through_the_cameras_smoothly():
    flight = smooth_path(cameras(5), 41)
    assert flight.names[0] == "0000" and flight.viewmats.shape == (41, 4, 4) and flight.Ks.shape == (41, 3, 3)
    np.testing.assert_allclose(flight.viewmats[::10], cameras(5).viewmats, atol=1e-5)
    R = flight.viewmats[:, :3, :3]
    np.testing.assert_allclose(R @ R.transpose(0, 2, 1), np.tile(np.eye(3), (41, 1, 1)), atol=1e-5)
    assert np.abs(np.diff(flight.viewmats, axis=0)).max() < 0.2


def test_one_camera_stands_still():
    flight = smooth_path(cameras(1), 3)
    np.testing.assert_allclose(flight.viewmats, np.tile(cameras(1).viewmats, (3, 1, 1)))


def places(flight):
    return -np.einsum("vji,vj->vi", flight.viewmats[:, :3, :3], flight.viewmats[:, :3, 3])


@pytest.mark.parametrize("kind", ["ellipse", "spiral"])
def test_closed_flights_end_where_they_begin_and_look_at_the_scene_upright(kind):
    views, flight = cameras(12), camera_path(cameras(12), 60, flight=kind)
    focus = normalization(views.viewmats).center
    R, centers = flight.viewmats[:, :3, :3].astype(np.float64), places(flight)
    np.testing.assert_allclose(R @ R.transpose(0, 2, 1), np.tile(np.eye(3), (60, 1, 1)), atol=1e-5)
    np.testing.assert_allclose(np.linalg.det(R), 1, atol=1e-5)
    toward = focus - centers
    np.testing.assert_allclose(R[:, 2], toward / np.linalg.norm(toward, axis=1, keepdims=True), atol=1e-5)
    up = -views.viewmats[:, 1, :3].mean(0)
    assert ((-R[:, 1] @ up) > 0).all()
    steps = np.linalg.norm(np.diff(np.concatenate([centers, centers[:1]]), axis=0), axis=1)
    assert steps.max() < 3 * np.median(steps)


def test_the_ellipse_of_cameras_on_a_ring_is_that_ring():
    views, flight = cameras(12), camera_path(cameras(12), 24, flight="ellipse")
    ring_places, found = places(views), places(flight)
    middle = ring_places.mean(0)
    radius = np.linalg.norm(ring_places - middle, axis=1)
    np.testing.assert_allclose(np.linalg.norm(found - middle, axis=1), radius.mean(), rtol=1e-3)
    assert np.ptp((found - middle) @ np.linalg.svd(ring_places - middle)[2][2]) < 1e-4


@pytest.mark.parametrize("kind", ["through", "ellipse", "spiral"])
def test_any_flight_of_one_camera_is_finite(kind):
    flight = camera_path(cameras(1), 3, flight=kind)
    R = flight.viewmats[:, :3, :3]
    np.testing.assert_allclose(R @ R.transpose(0, 2, 1), np.tile(np.eye(3), (3, 1, 1)), atol=1e-5)
    with pytest.raises(InputError, match="at least 1 frame, got 0"):
        camera_path(cameras(3), 0, flight=kind)
