"""Maps of depths that a capture names: read where the pictures see them."""

import json

import numpy as np
import pytest
from PIL import Image

from jaxsplat.data import load_capture, raytrace
from jaxsplat.data.demo import make_demo_capture, make_scene
from jaxsplat.data.depths import grid_pixels
from jaxsplat.data.optics import lens_of_view, pixel_rays
from jaxsplat.io.files import InputError
from jaxsplat.train import TrainConfig, prepare
from tests.train.scenes import edit_transforms, write_capture


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("depths") / "c"
    make_demo_capture(folder, size=80, views=3, depths=True)
    return folder


@pytest.mark.parametrize("downscale", [1, 2])
def test_depths_are_those_of_the_map_at_the_pixel(folder, downscale):
    capture = load_capture(folder, downscale=downscale)
    assert capture.depths is not None and len(capture.depths) == 3
    truth = np.load(folder / "depth/0001.npy")
    pixels, depths = capture.depths[1]
    assert 500 < len(pixels) <= 64 * 64 and pixels.max() < 80 / downscale
    columns, rows = (pixels * downscale).astype(int).T
    np.testing.assert_array_equal(depths, truth[rows, columns])
    # The middle of the pixel of the shrunken picture is a corner of the map's: the surface is met within a step of it.
    points = capture.points.points
    K, viewmat = capture.cameras.Ks[1], capture.cameras.viewmats[1]
    rays = np.concatenate([pixels, np.ones((len(pixels), 1))], 1) @ np.linalg.inv(K).T
    world = (rays * depths[:, None] - viewmat[:3, 3]) @ viewmat[:3, :3]
    apart = np.linalg.norm(world[::29, None] - points, axis=-1).min(1)
    assert np.median(apart[depths[::29] < 5]) < 0.15


@pytest.mark.parametrize("undistort", [False, True])
def test_maps_of_distorted_pictures_are_read_where_their_pixels_lie(tmp_path, undistort):
    make_demo_capture(tmp_path / "c", size=64, views=3, depths=True, distortion=(-0.4, 0.1, 0.01, 0.0))
    capture = load_capture(tmp_path / "c", undistort=undistort)
    assert capture.depths is not None
    pixels, depths = capture.depths[2]
    cameras = capture.cameras
    lens = lens_of_view(cameras.lens, 2)
    viewmat = cameras.viewmats[2].astype(np.float64)
    rays = pixel_rays(pixels, cameras.Ks[2], lens) @ viewmat[:3, :3]
    hits = raytrace.trace(make_scene(0), (-viewmat[:3, 3] @ viewmat[:3, :3])[None], rays)
    close = np.abs(hits.t / depths - 1) < (0.02 if undistort else 1e-4)
    assert close.mean() > 0.95  # a pixel of an edge may show either side


def test_depths_of_a_fisheye_are_distances(tmp_path):
    folder = write_capture(tmp_path / "c", views=3, k1=0.01, camera_model="OPENCV_FISHEYE")
    np.save(folder / "d.npy", np.full((20, 24), 2.0, np.float32))
    edit_transforms(folder, lambda c: c["frames"][1].update(depth_file_path="d.npy", depth_unit_scale_factor=1.0))
    pixels, depths = load_capture(folder, undistort=False).depths[1]
    bent = np.linalg.norm((pixels - [12, 10]) / 24, axis=1)
    angle = bent * (1 - 0.01 * bent**2)  # to first order in k1
    np.testing.assert_allclose(depths, 2 / np.cos(angle), rtol=1e-3)


def test_units_of_millimetres_distortion_and_pixels_without_depth(tmp_path):
    folder = write_capture(tmp_path / "c", views=3, k1=0.1)
    steps = np.full((10, 12), 2500, np.uint16)
    steps[:, 6:] = 0
    Image.fromarray(steps).save(folder / "d.png")
    edit_transforms(folder, lambda c: c["frames"][1].update(depth_file_path="./d.png"))
    capture = load_capture(folder)
    pixels, depths = capture.depths[1]
    assert depths.tolist() == [2.5] * 240 and pixels[:, 0].max() == 11.5, "the right half has none"
    assert [len(capture.depths[i].depths) for i in (0, 2)] == [0, 0]
    edit_transforms(folder, lambda c: c.update(depth_unit_scale_factor=0.01))
    assert load_capture(folder).depths[1].depths[0] == 25.0


def test_training_uses_the_maps_where_there_are_no_points(folder, tmp_path):
    content = json.loads((folder / "transforms.json").read_text())
    plain = {key: value for key, value in content.items() if key != "ply_file_path"}
    (folder / "plain.json").write_text(json.dumps(plain))
    capture = load_capture(folder / "plain.json")
    assert capture.points is None
    job = prepare(capture, TrainConfig(depth_weight=0.1, initial_points=20))
    assert job.views.depths is not None and (job.views.depths.weights.sum(1) == 1024).all()
    seen = np.asarray(job.views.depths.depths) * job.normalization.scale
    assert 2.0 < np.median(seen) < 6.0


def test_damaged_maps_are_named_when_they_are_read(tmp_path):
    folder = write_capture(tmp_path / "c", views=3)
    edit_transforms(folder, lambda c: c["frames"][0].update(depth_file_path="d.npy"))
    capture = load_capture(folder)
    with pytest.raises(InputError, match="d.npy: no such file"):
        capture.depths[0]
    np.save(folder / "d.npy", np.zeros((4, 5, 3)))
    with pytest.raises(InputError, match=r"d.npy: depths must have shape \[H, W\], got \[4, 5, 3\]"):
        capture.depths[0]
    (folder / "d.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match="d.npy: unreadable depths"):
        capture.depths[0]


def test_the_grid_has_every_pixel_of_small_pictures_and_spreads_over_large_ones():
    assert grid_pixels(3, 2).tolist() == [[0.5, 0.5], [1.5, 0.5], [2.5, 0.5], [0.5, 1.5], [1.5, 1.5], [2.5, 1.5]]
    large = grid_pixels(1000, 500)
    assert len(large) == 64 * 64 and large.min() == 0.5 and large.max(0).tolist() == [999.5, 499.5]
