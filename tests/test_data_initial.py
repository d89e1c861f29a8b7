"""First points of a scene without any."""

import numpy as np
import pytest

from jaxsplat.cameras import Lens
from jaxsplat.data.initial import _costs, random_points
from jaxsplat.io.files import InputError
from tests.test_data_normalize import viewmats
from tests.train.scenes import look_at_origin

WIDTH, HEIGHT = 64, 48
K = np.array([[60.0, 0, 32], [0, 60, 24], [0, 0, 1]], np.float32)


def cameras(count):
    """Cameras close to each other above the plane z = 0."""
    poses = [look_at_origin(0.15 * i, distance=1.5, height=1.5 + 0.1 * (i % 3)) for i in range(count)]
    return viewmats(poses).astype(np.float32), np.tile(K[None], (count, 1, 1))


def photographs(views, Ks, straighten=lambda x, y: (x, y)):
    """What the cameras see of a patterned plane z = 0: each pixel's ray is cut with it."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH] + 0.5
    images = []
    for view, matrix in zip(views.astype(float), Ks, strict=True):
        plane = straighten((x - matrix[0, 2]) / matrix[0, 0], (y - matrix[1, 2]) / matrix[1, 1])
        rays = np.stack([*plane, np.ones_like(x)], -1) @ view[:3, :3]
        center = -view[:3, :3].T @ view[:3, 3]
        hit = center + rays * (-center[2] / rays[..., 2])[..., None]
        waves = [np.sin(9 * hit[..., 0]), np.cos(7 * hit[..., 1]), np.sin(5 * (hit[..., 0] + hit[..., 1]))]
        images.append(np.stack(waves, -1) * 100 + 127)
    return np.stack(images).astype(np.uint8)


def test_points_lie_on_the_surface_that_the_views_agree_on():
    views, Ks = cameras(10)
    cloud = random_points(views, Ks, photographs(views, Ks), count=500)
    assert cloud.points.shape == (500, 3)
    assert np.median(np.abs(cloud.points[:, 2])) < 0.08
    assert (np.abs(cloud.points[:, 2]) < 0.3).mean() > 0.8


def test_views_agree_through_their_lenses_at_the_depth_of_the_surface():
    views, Ks = cameras(10)
    # Fitzgibbon's division model: a point at p on the sensor came from p / (1 + k |p|^2).
    images = photographs(views, Ks, lambda x, y: (x / (1 - 1.2 * (x**2 + y**2)), y / (1 - 1.2 * (x**2 + y**2))))
    pixels = np.random.default_rng(0).uniform([2, 2], [12, 46], (40, 2))  # far from the middle
    plane = (pixels - [32, 24]) / 60
    rays = np.concatenate([plane / (1 - 1.2 * (plane**2).sum(1, keepdims=True)), np.ones((40, 1))], 1)
    rotation, shift = views[0, :3, :3].astype(float), views[0, :3, 3].astype(float)
    truth = (shift @ rotation)[2] / (rays @ rotation)[:, 2]
    lens = Lens(division=(-1.2,))
    ratios = np.exp(np.linspace(-0.6, 0.6, 13))
    cost = [
        _costs(0, [1, 2, 3, 4], pixel[None], depth * ratios, views.astype(float), [(K, lens)] * 10, images)[0]
        for pixel, depth in zip(pixels, truth, strict=True)
    ]
    seen = np.isfinite(cost).all(1)
    assert seen.sum() > 10
    assert np.median(np.abs(np.log(ratios[np.argmin(cost, 1)][seen]))) < 0.11


@pytest.mark.parametrize("division", [0.0, -0.4])
def test_points_have_the_color_of_their_pixel_and_a_depth_in_range(division):
    views, Ks = cameras(3)
    lens = Lens(division=np.full((3, 1), division)) if division else None
    images = np.zeros((3, HEIGHT, WIDTH, 3), np.uint8)
    images[..., 0] = np.array([0, 127, 255])[:, None, None]
    images[..., 1] = 3 * np.arange(WIDTH)
    images[..., 2] = 5 * np.arange(HEIGHT)[:, None]
    cloud = random_points(views, Ks, images, count=300, scale=2.0, lens=lens)
    view = np.round(cloud.colors[:, 0] * 2).astype(int)
    local = np.einsum("nij,nj->ni", views[view, :3, :3], cloud.points) + views[view, :3, 3]
    assert (local[:, 2] > 0.49).all() and (local[:, 2] < 8.01).all()
    plane = local[:, :2] / local[:, 2:]
    bent = plane * 2 / (1 + np.sqrt(1 - 4 * division * (plane**2).sum(1, keepdims=True)))
    pixel = bent * 60 + [32, 24]
    np.testing.assert_allclose(pixel[:, 0], cloud.colors[:, 1] * 85 + 0.5, atol=0.51)
    np.testing.assert_allclose(pixel[:, 1], cloud.colors[:, 2] * 51 + 0.5, atol=0.51)


def test_two_views_are_enough_and_the_seed_decides():
    views, Ks = cameras(2)
    images = photographs(views, Ks)
    first, again, other = (random_points(views, Ks, images, count=50, seed=seed).points for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert np.isfinite(first).all()


def test_points_are_drawn_where_the_masks_let_them():
    views, Ks = cameras(3)
    images = photographs(views, Ks)
    masks = np.zeros((3, HEIGHT, WIDTH), bool)
    masks[:, 10:20, 5:9] = True
    images[masks] = (1, 2, 3)
    cloud = random_points(views, Ks, images, count=200, masks=masks)
    assert len(cloud.points) == 200
    np.testing.assert_allclose(cloud.colors * 255, [[1, 2, 3]] * 200, rtol=1e-5)
    with pytest.raises(InputError, match="the masks hide every pixel"):
        random_points(views, Ks, images, count=200, masks=np.zeros_like(masks))
