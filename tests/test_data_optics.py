"""Points through lenses on the host, against the formulas written out."""

import numpy as np
import pytest

from jaxsplat.cameras import Lens
from jaxsplat.data.optics import lens_of_view, pixel_rays, show_points

K = np.array([[80.0, 0.0, 44.0], [0.0, 82.0, 36.0], [0.0, 0.0, 1.0]])
POINTS = np.array([[0.3, -0.2, 1.5], [-0.8, 0.5, 1.0], [0.01, 0.02, 4.0]])


def test_points_in_front_of_a_pinhole_are_where_its_matrix_puts_them():
    shown = show_points(np.concatenate([POINTS, [[0.1, 0.1, -1.0]]]), K)
    image = POINTS @ K.T
    np.testing.assert_allclose(shown.pixels[:3], image[:, :2] / image[:, 2:], rtol=1e-12)
    assert shown.depths.tolist() == [1.5, 1.0, 4.0, 0.0] and shown.seen.tolist() == [True] * 3 + [False]


def test_a_perspective_lens_bends_the_plane_as_opencv_does():
    k1, k2, p1, p2 = -0.3, 0.08, 0.01, -0.02
    x, y = (POINTS[:, :2] / POINTS[:, 2:]).T
    r2 = x * x + y * y
    radial = 1 + k1 * r2 + k2 * r2**2
    bent = [
        x * radial + 2 * p1 * x * y + p2 * (r2 + 2 * x * x),
        y * radial + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y,
    ]
    expected = np.stack(bent, -1) * np.diag(K)[:2] + K[:2, 2]
    shown = show_points(POINTS, K, Lens(radial=(k1, k2), tangential=(p1, p2)))
    np.testing.assert_allclose(shown.pixels, expected, rtol=1e-12)
    np.testing.assert_array_equal(shown.depths, POINTS[:, 2])


def test_a_fisheye_shows_what_is_behind_it_at_its_distance():
    points = np.concatenate([POINTS, POINTS * [1, 1, -0.3]])
    distance = np.linalg.norm(points, axis=-1)
    angle = np.arccos(points[:, 2] / distance)
    bent = angle * (1 + 0.02 * angle**2)
    direction = points[:, :2] / np.linalg.norm(points[:, :2], axis=-1, keepdims=True)
    shown = show_points(points, K, Lens("equidistant", radial=(0.02,)))
    assert shown.seen.all()
    np.testing.assert_allclose(shown.pixels, bent[:, None] * direction * np.diag(K)[:2] + K[:2, 2], rtol=1e-9)
    np.testing.assert_allclose(shown.depths, distance, rtol=1e-12)


def test_thin_prisms_push_along_fixed_directions():
    s = (0.02, -0.01, 0.03, 0.05)
    plane = POINTS[:, :2] / POINTS[:, 2:]
    r2 = (plane**2).sum(-1)
    expected = plane + np.stack([s[0] * r2 + s[1] * r2**2, s[2] * r2 + s[3] * r2**2], -1)
    shown = show_points(POINTS, K, Lens(prism=s))
    np.testing.assert_allclose(shown.pixels, expected * np.diag(K)[:2] + K[:2, 2], rtol=1e-12)


@pytest.mark.parametrize(
    "lens", [None, Lens(radial=(-0.4, 0.1), tangential=(0.01, -0.02)), Lens("equidistant", polynomial=(1.2, 0, -0.05))]
)
def test_a_ray_times_a_depth_is_shown_at_its_pixel(lens):
    pixels = np.random.default_rng(0).uniform(0, 80, (7, 3, 2))
    shown = show_points(2.5 * pixel_rays(pixels, K, lens), K, lens)
    np.testing.assert_allclose(shown.pixels, pixels, atol=1e-9)
    np.testing.assert_allclose(shown.depths, 2.5, rtol=1e-12)


def test_there_is_no_ray_where_the_lens_sees_nothing():
    turning = Lens(radial=(-1.0,))  # r (1 - r^2) has its maximum, 0.385, at r = 0.577
    rays = pixel_rays(np.array([[44.0 + 80 * 0.38, 36], [44 + 80 * 0.39, 36]]), K, turning)
    assert rays[0, 2] == 1.0 and not rays[1].any()


def test_the_lens_of_a_view_is_its_row():
    lens = Lens("equidistant", radial=np.float32([[0.5, 0.25], [0, 0]]))
    assert lens_of_view(lens, 0) == Lens("equidistant", radial=(0.5, 0.25))
    assert lens_of_view(None, 0) is None
