"""Undistortion against the lens model itself."""

import numpy as np
import pytest

from jaxsplat.cameras import Lens
from jaxsplat.data.undistort import PINHOLE, distort, undistort, undistorted_intrinsics

WIDTH, HEIGHT = 90, 70
K = np.array([[80.0, 0.0, 44.0], [0.0, 82.0, 36.0], [0.0, 0.0, 1.0]])
LENSES = [
    Lens(radial=(0.06, -0.08, 0.0, 0.0), tangential=(-0.001, 0.0002)),
    Lens(radial=(-0.2, 0.05, 0.0, 0.0)),
    Lens(radial=(0.1, 0.05, 0.01, 0.002), tangential=(0.003, -0.004)),
    Lens(radial=(0.1, 0.05, 0.01, 0.0), divisor=(0.2, 0.1, 0.0), prism=(0.01, 0.0, -0.02, 0.0)),
    Lens("equidistant", radial=(0.05, -0.01, 0.0, 0.0)),
    Lens(omega=(0.9,)),
    Lens(division=(-0.2,)),
]


TURNING = Lens(radial=(-1 / (3 * 0.3**2), 0.0, 0.0, 0.0))


def scene(rays):
    """A smooth picture as a function of the direction."""
    x, y = rays[..., 0], rays[..., 1]
    return np.stack([120 + 100 * np.sin(4 * x + 1), 120 + 100 * np.cos(5 * y), 120 + 60 * np.sin(3 * x * y)], -1)


def rays_of(matrix):
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH] + 0.5
    return np.stack([(x - matrix[0, 2]) / matrix[0, 0], (y - matrix[1, 2]) / matrix[1, 1]], -1)


def inverse(bent, lens):
    """Rays that the lens bends to these: by fixed-point iteration."""
    rays = bent.copy()
    for _ in range(200):
        rays -= distort(rays, lens) - bent
    return rays


@pytest.mark.parametrize("lens", LENSES)
def test_the_pinhole_picture_is_recovered(lens):
    photo = np.round(scene(inverse(rays_of(K), lens))).astype(np.uint8)
    pinhole = undistorted_intrinsics(K, lens, WIDTH, HEIGHT)
    assert np.abs(undistort(photo, K, lens) - scene(rays_of(pinhole))).max() < 1.6


@pytest.mark.parametrize("lens", LENSES)
def test_every_pixel_is_known_and_no_smaller_zoom_would_do(lens):
    pinhole = undistorted_intrinsics(K, lens, WIDTH, HEIGHT)
    corners = np.stack(np.meshgrid(np.linspace(0, WIDTH, 50), np.linspace(0, HEIGHT, 50)), -1)
    rays = (corners - pinhole[:2, 2]) / np.diag(pinhole)[:2]
    source = distort(rays, lens) * np.diag(K)[:2] + K[:2, 2]
    slack = np.minimum(source, [WIDTH, HEIGHT] - source)
    assert -1e-2 < slack.min() < 0.1
    assert pinhole[0, 0] / K[0, 0] == pytest.approx(pinhole[1, 1] / K[1, 1])


def test_a_lens_that_turns_back_is_an_error_even_where_it_covers_the_picture():
    # r (1 + k1 r^2) falls beyond r = .3, which lies well inside the picture.
    with pytest.raises(ValueError, match="cannot be undone"):
        undistorted_intrinsics(np.diag([20.0, 20.0, 1.0]) + [[0, 0, 45], [0, 0, 35], [0, 0, 0]], TURNING, WIDTH, HEIGHT)


def test_without_distortion_nothing_changes():
    image = np.random.default_rng(0).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    assert undistort(image, K, PINHOLE) is image
    assert (undistorted_intrinsics(K, PINHOLE, WIDTH, HEIGHT) == K).all()


def test_a_lens_that_cannot_be_undone_is_an_error():
    with pytest.raises(ValueError, match="cannot be undone"):
        undistorted_intrinsics(K, Lens(radial=(500.0, 0.0, 0.0, 0.0)), WIDTH, HEIGHT)
