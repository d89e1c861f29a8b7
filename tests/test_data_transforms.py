"""transforms.json in every convention, and every way in which it can be wrong."""

import json
import math

import numpy as np
import pytest

from jaxsplat.cameras import Lens
from jaxsplat.data.transforms import load_transforms
from jaxsplat.io.files import InputError
from jaxsplat.io.ply import PointCloud, save_points
from tests.colmap import write_model
from tests.train.scenes import edit_transforms, look_at_origin, write_capture


def transforms(tmp_path, frame=None, **top):
    matrix = look_at_origin(0.3).tolist()
    frames = [{"file_path": "a.png", "transform_matrix": matrix, **(frame or {})}]
    (tmp_path / "transforms.json").write_text(json.dumps({"frames": frames, **top}))
    return load_transforms(tmp_path / "transforms.json")


def test_poses_become_world_to_camera_in_opencv_axes(tmp_path):
    frame = transforms(tmp_path, fl_x=10.0).frames[0]
    camera = look_at_origin(0.3)
    np.testing.assert_allclose(frame.viewmat @ camera[:, 3], [0, 0, 0, 1], atol=1e-12)
    distance = np.linalg.norm(camera[:3, 3])
    np.testing.assert_allclose(frame.viewmat[:, 3], np.array([0, 0, distance, 1]), atol=1e-12)
    above = frame.viewmat @ [0, 0, 0.1, 1]
    assert above[1] < 0, "up in the world is up in the picture, where y points down"


@pytest.mark.parametrize(
    ("top", "frame", "expected"),
    [
        ({"fl_x": 50.0, "fl_y": 60.0, "cx": 21.0, "cy": 9.0}, {}, (50, 60, 21, 9)),
        ({"fl_x": 50.0}, {}, (50, 50, 20, 10)),
        ({"camera_angle_x": 2 * math.atan(0.5)}, {}, (40, 40, 20, 10)),
        ({"camera_angle_x": 2 * math.atan(0.5), "camera_angle_y": 2 * math.atan(0.5)}, {}, (40, 20, 20, 10)),
        ({"fl_x": 50.0}, {"fl_x": 70.0, "cx": 1.0}, (70, 70, 1, 10)),
        ({"fl_x": 100.0, "cx": 42.0, "cy": 8.0, "w": 80, "h": 40}, {}, (50, 50, 21, 4)),
        ({"fl_x": 100.0, "cx": 42.0, "cy": 8.0, "w": 80, "h": 20}, {}, (50, 100, 21, 8)),
        ({"fl_x": 50.0, "camera_angle_x": 1.0, "camera_angle_y": 1.0}, {}, (50, 50, 20, 10)),
    ],
)
def test_intrinsics_of_a_40_by_20_picture(tmp_path, top, frame, expected):
    K = transforms(tmp_path, frame, **top).frames[0].camera.intrinsics(40, 20)
    np.testing.assert_allclose([K[0, 0], K[1, 1], K[0, 2], K[1, 2]], expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["./sub dir/ü [1]", "sub dir\\ü [1].JPG", "sub dir/ü [1].JPG"])
def test_paths_may_begin_with_a_dot_or_be_of_another_system(tmp_path, name):
    frame = transforms(tmp_path, {"file_path": name}, fl_x=1.0).frames[0]
    assert frame.path.parent == tmp_path / "sub dir" and frame.path.name.startswith("ü [1]")
    assert frame.name == name.removeprefix("./")


def test_distortion_may_be_given_for_all_or_for_a_frame(tmp_path):
    lens = transforms(tmp_path, {"k1": 0.5}, fl_x=1.0, k1=0.1, p2=0.2).frames[0].camera.lens
    assert lens == Lens(radial=(0.5, 0.0, 0.0, 0.0), tangential=(0.0, 0.2))


@pytest.mark.parametrize("top", [{"camera_model": "OPENCV_FISHEYE"}, {"is_fisheye": True}])
def test_a_fisheye_lens_is_known_in_both_conventions(tmp_path, top):
    lens = transforms(tmp_path, fl_x=1.0, k1=0.1, k4=0.4, **top).frames[0].camera.lens
    assert lens == Lens("equidistant", radial=(0.1, 0.0, 0.0, 0.4))


def test_rounding_noise_of_rotations_is_removed(tmp_path):
    noisy = look_at_origin(0.3)
    noisy[:3, :3] += np.random.default_rng(0).normal(size=(3, 3)) * 1e-4
    R = transforms(tmp_path, {"transform_matrix": noisy.tolist()}, fl_x=1.0).frames[0].viewmat[:3, :3]
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)


def flipped():
    matrix = look_at_origin(0.3)
    matrix[:3, 0] *= -1
    return matrix.tolist()


@pytest.mark.parametrize(
    ("frame", "top", "message"),
    [
        (
            {"transform_matrix": [[float("nan")] * 4] * 4},
            {},
            "'transform_matrix' holds values that are not finite: nan",
        ),
        ({"transform_matrix": [[1, 2], [3, 4]]}, {}, r"'transform_matrix' must be a 4x4 matrix, got shape \[2, 2\]"),
        ({"transform_matrix": "here"}, {}, "'transform_matrix' must be a 4x4 matrix of numbers"),
        ({"transform_matrix": None}, {}, "'transform_matrix' must be a 4x4 matrix"),
        ({"transform_matrix": flipped()}, {}, "reflection or singular"),
        ({"transform_matrix": np.diag([2.0, 2, 2, 1]).tolist()}, {}, "is no rotation: it stretches by"),
        ({"file_path": 7}, {}, "field 'file_path' must be a string, got 7"),
        ({}, {"fl_x": "wide"}, "field 'fl_x' must be a finite number, got 'wide'"),
        ({}, {"fl_x": -1.0}, "field 'fl_x' must be positive"),
        ({}, {"camera_angle_x": 50.0}, "field 'camera_angle_x' is in radians and must be below pi, got 50.0"),
        ({}, {"fl_x": 1.0, "k1": float("nan")}, "field 'k1' must be a finite number, got nan"),
        ({}, {"fl_x": 1.0, "camera_model": "EQUIRECTANGULAR"}, "camera model 'EQUIRECTANGULAR' is not supported"),
        ({}, {}, r"frame 0 \('a.png'\): needs fl_x or camera_angle_x"),
        ({}, {"fl_x": None}, "needs fl_x or camera_angle_x"),
        ({"mask_path": 3}, {"fl_x": 1.0}, "field 'mask_path' must be a string, got 3"),
        ({}, {"fl_x": 1.0, "test_filenames": "a.png"}, "field 'test_filenames' must be a list of strings"),
        ({}, {"fl_x": 1.0, "frames": {}}, "field 'frames' must be a list, got dict"),
        ({}, {"fl_x": 1.0, "frames": []}, "field 'frames' is empty"),
        ({}, {"fl_x": 1.0, "frames": [3]}, "frame 0: expected an object, got int"),
        ({}, {"fl_x": 1.0, "ply_file_path": 3}, "field 'ply_file_path' must be a string, got 3"),
    ],
)
def test_mistakes_name_the_file_the_frame_and_the_field(tmp_path, frame, top, message):
    with pytest.raises(InputError, match=message) as error:
        transforms(tmp_path, frame, **top)
    assert "transforms.json" in str(error.value)


def test_the_points_are_those_of_the_file_that_is_named(tmp_path):
    folder = write_capture(tmp_path / "c", ply_file_path="p.ply")
    source = load_transforms(folder / "transforms.json")
    assert source.points is None and source.notes == ("The point cloud p.ply is missing.",)
    save_points(folder / "p.ply", PointCloud(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32)))
    assert load_transforms(folder / "transforms.json").notes == ("The point cloud p.ply is empty.",)
    save_points(folder / "p.ply", PointCloud(np.ones((3, 3), np.float32), np.zeros((3, 3), np.float32)))
    source = load_transforms(folder / "transforms.json")
    assert source.points is not None and source.points.points.tolist() == [[1, 1, 1]] * 3 and source.notes == ()


def test_points_of_nerfstudios_colmap_model_are_moved_by_the_applied_transform(tmp_path):
    folder = write_capture(tmp_path / "c", applied_transform=[[1, 0, 0, 5], [0, 0, 1, 0], [0, -1, 0, 0]])
    write_model(folder / "colmap/sparse/0", points={1: (1.0, 2.0, 3.0)})
    source = load_transforms(folder)
    assert source.points is not None and source.points.points.tolist() == [[6, 3, -2]]
    assert "moved by 'applied_transform'" in source.notes[0]
    edit_transforms(folder, lambda c: c.update(applied_transform=np.diag([1.0, 1.0, -1.0, 1.0]).tolist()))
    with pytest.raises(InputError, match="'applied_transform' is a reflection"):
        load_transforms(folder)
    edit_transforms(folder, lambda c: c.pop("applied_transform"))
    assert load_transforms(folder).points is None, "without it nothing says how the two worlds lie"


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        ({"train_filenames": ["images/000.png", "images/002.png"]}, [False, True, False]),
        ({"train_filenames": ["images/000.png"], "val_filenames": ["images/001.png"]}, [False, True, True]),
        ({"test_filenames": ["images/002.png"], "val_filenames": []}, [False, False, True]),
        ({}, [None, None, None]),
    ],
)
def test_nerfstudios_lists_say_what_is_held_out(tmp_path, lists, expected):
    folder = write_capture(tmp_path / "c", views=3, **lists)
    assert [frame.held_out for frame in load_transforms(folder).frames] == expected
