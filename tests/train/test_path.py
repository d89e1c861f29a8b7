"""Flights through cameras."""

import numpy as np

from jaxsplat.data.capture import Cameras
from jaxsplat.train.path import smooth_path
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
