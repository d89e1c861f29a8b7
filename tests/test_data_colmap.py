"""COLMAP models: both kinds of files, which model, which picture, which points; and what must be left out."""

import shutil
import unicodedata

import numpy as np
import pytest

from jaxsplat.data import load_cameras, load_capture
from jaxsplat.data.colmap import load_colmap
from jaxsplat.data.colmap_files import load_model
from jaxsplat.io.files import InputError
from jaxsplat.io.ply import PointCloud, save_points
from tests.colmap import CAMERAS, orbit, write_model, write_pictures
from tests.data import shared

NAMES = [f"{i}.png" for i in range(10)]
STRANGE = ["a b (1).png", "sub dir/Ünïcode [x].png", "sub dir/b.JPG", "c.jpeg", "sub/d e f .png"]


def capture_of(tmp_path, *, names=NAMES, **model):
    model.setdefault("images", orbit(names))
    write_model(tmp_path / "sparse/0", **model)
    write_pictures(tmp_path / "images", names)
    return tmp_path


def reds(capture):
    return [round(int(image[0, 0, 0]) / 10) for image in capture.images]


@pytest.mark.parametrize("binary", [True, False])
def test_poses_intrinsics_and_points_come_as_they_were_written(tmp_path, binary):
    images = orbit(NAMES)
    folder = capture_of(tmp_path, images=images, points={7: (1.0, 2.0, 3.0), 3: (4.0, 5.0, 6.0)}, binary=binary)
    capture = load_capture(folder)
    assert capture.kind == f"COLMAP, {'binary' if binary else 'text'}, sparse/0" and capture.notes == ()
    assert capture.cameras.names == tuple(NAMES) and capture.images.shape == (10, 20, 24, 3)
    assert capture.cameras.Ks[0].tolist() == [[24, 0, 12], [0, 24, 10], [0, 0, 1]]
    for image, viewmat in zip(images, capture.cameras.viewmats, strict=True):
        np.testing.assert_allclose(viewmat[:3, 3], image.translation, atol=1e-6)
        depth = viewmat @ [0, 0, 0, 1]
        np.testing.assert_allclose(depth[:2], 0, atol=1e-6), "every camera looks at the origin"
        assert depth[2] > 3
    assert capture.points is not None
    assert sorted(capture.points.points.tolist()) == [[1, 2, 3], [4, 5, 6]]
    np.testing.assert_allclose(capture.points.colors, [[1, 0, 0.2]] * 2)


@pytest.mark.parametrize("binary", [True, False])
def test_strange_names_are_matched_to_their_own_pictures(tmp_path, binary):
    images = orbit(STRANGE)[::-1]  # COLMAP lists images in the order of registration
    capture = load_capture(capture_of(tmp_path, names=STRANGE, images=images, binary=binary))
    assert capture.cameras.names == tuple(sorted(STRANGE))
    assert reds(capture) == [STRANGE.index(name) + 1 for name in sorted(STRANGE)]
    for name, viewmat in zip(capture.cameras.names, capture.cameras.viewmats, strict=True):
        written = next(image for image in images if image.name == name)
        np.testing.assert_allclose(viewmat[:3, 3], written.translation, atol=1e-6)


def test_endings_and_unicode_forms_may_differ_between_model_and_disk(tmp_path):
    names = ["a.JPG", "é.png", "c.tif", "d.png", "e.png"]
    write_model(tmp_path / "sparse/0", images=orbit(names))
    write_pictures(tmp_path / "images", ["a.jpg", unicodedata.normalize("NFD", "é.png"), "c.png", "d.png", "e.png"])
    assert reds(load_capture(tmp_path)) == [1, 3, 4, 5, 2]


def test_one_file_is_not_given_to_two_images(tmp_path):
    names = ["0.jpg", "0.png", "1.png", "2.png", "3.png"]
    write_model(tmp_path / "sparse/0", images=orbit(names))
    write_pictures(tmp_path / "images", names[1:])
    capture = load_capture(tmp_path)
    assert capture.cameras.names == tuple(names[1:])
    assert "1 of 5 listed images are missing and left out: 0.jpg." in capture.notes


def test_missing_pictures_are_counted_and_unlisted_ones_shift_nothing(tmp_path):
    folder = capture_of(tmp_path)
    (folder / "images/3.png").unlink()
    write_pictures(folder / "images", ["00.png", "not listed.png"])
    capture = load_capture(folder)
    assert "1 of 10 listed images are missing and left out: 3.png." in capture.notes
    assert reds(capture) == [1, 2, 3, 5, 6, 7, 8, 9, 10]


def test_the_largest_model_is_taken_and_said(tmp_path):
    write_pictures(tmp_path / "images", NAMES)
    for place, count in (("0", 3), ("1", 10), ("2/deep", 5)):
        write_model(tmp_path / "sparse" / place, images=orbit(NAMES[:count]), binary=place != "1")
    capture = load_capture(tmp_path)
    assert len(capture.images) == 10 and capture.kind == "COLMAP, text, sparse/1"
    expected = "sparse/1 (10 images), sparse/2/deep (5 images), sparse/0 (3 images). The first of these is used."
    assert capture.notes == (f"3 COLMAP models are here: {expected}",)
    chosen = load_capture(tmp_path / "sparse/2/deep")
    assert len(chosen.images) == 5 and chosen.kind == "COLMAP, binary, deep" and chosen.notes == ()


def test_pictures_may_lie_in_input_or_beside_the_model(tmp_path):
    write_model(tmp_path / "a/distorted/sparse/0")
    write_pictures(tmp_path / "a/input", NAMES)
    write_model(tmp_path / "b")
    write_pictures(tmp_path / "b", NAMES)
    assert reds(load_capture(tmp_path / "a")) == reds(load_capture(tmp_path / "b")) == list(range(1, 11))


def test_cameras_with_nan_are_skipped_with_their_images(tmp_path):
    cameras = CAMERAS | {2: (0, "SIMPLE_PINHOLE", 24, 20, (24.0, 12.0, 10.0))}
    images = orbit(NAMES)
    images[4:6] = [image._replace(camera=2) for image in images[4:6]]
    folder = capture_of(tmp_path, images=images, cameras=cameras, binary=False)
    path = folder / "sparse/0/cameras.txt"
    path.write_text(path.read_text().replace("2 SIMPLE_PINHOLE 24 20 24 12", "2 SIMPLE_PINHOLE 24 20 -nan(ind) 12"))
    capture = load_capture(folder)
    assert reds(capture) == [1, 2, 3, 4, 7, 8, 9, 10]
    assert capture.notes == (
        "1 of 2 cameras hold values that cannot be used (camera 2); their 2 images are left out: 4.png, 5.png.",
    )


@pytest.mark.parametrize("quat", [(0.0, 0.0, 0.0, 0.0), (float("nan"), 0.0, 0.0, 1.0), (2.0, 0.0, 0.0, 0.0)])
def test_images_without_a_valid_pose_are_left_out_and_named(tmp_path, quat):
    images = orbit(NAMES)
    images[2] = images[2]._replace(quat=quat)
    images[8] = images[8]._replace(translation=(0.0, float("inf"), 0.0))
    capture = load_capture(capture_of(tmp_path, images=images))
    assert len(capture.images) == 8
    assert "2 of 10 images have no valid pose" in capture.notes[0] and "2.png, 8.png" in capture.notes[0]


@pytest.mark.parametrize("binary", [True, False])
def test_depths_are_those_of_the_points_that_each_image_shows(tmp_path, binary):
    images = orbit(NAMES)
    features = ((0.0, 0.0, 9), (1.0, 1.0, -1), (2.0, 2.0, 4), (3.0, 3.0, 12345))
    images[0] = images[0]._replace(features=features)
    points = {9: (0.1, 0.2, 0.3), 4: (0.0, 0.0, 0.0), 5: (0.2, 0.0, 0.0)}
    capture = load_capture(capture_of(tmp_path, images=images, points=points, binary=binary))
    assert capture.depths is not None and [len(d.depths) for d in capture.depths] == [2] + [0] * 9
    viewmat, K = capture.cameras.viewmats[0], capture.cameras.Ks[0]
    for pixel, depth in zip(*capture.depths[0], strict=True):
        world = np.linalg.inv(viewmat) @ [*(np.linalg.inv(K) @ [*pixel, 1.0] * depth), 1.0]
        assert np.abs(np.array([points[9], points[4]]) - world[:3]).max(1).min() < 1e-5


def test_points_that_are_not_finite_are_left_out_and_counted_and_none_is_no_failure(tmp_path):
    folder = capture_of(tmp_path, points={1: (0.0, 0.0, 0.0), 2: (float("nan"), 0.0, 0.0)})
    capture = load_capture(folder)
    assert capture.points is not None and len(capture.points.points) == 1
    assert "1 of 2 points are not finite and left out." in capture.notes
    write_model(folder / "sparse/0", images=orbit(NAMES), points={})
    empty = load_capture(folder)
    assert empty.points is None and empty.depths is None
    assert "The COLMAP model has no points; random points will be used." in empty.notes
    (folder / "sparse/0/points3D.bin").unlink()
    assert "no file of points; random points will be used" in load_capture(folder).notes[0]
    save_points(folder / "sparse/0/points3D.ply", PointCloud(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)))
    cloud = load_capture(folder).points
    assert cloud is not None and len(cloud.points) == 2


def test_smaller_folders_of_pictures_are_used_and_intrinsics_follow_the_real_sizes(tmp_path):
    cameras = {1: (1, "PINHOLE", 101, 83, (100.0, 90.0, 50.0, 40.0))}
    folder = capture_of(tmp_path, cameras=cameras)
    shutil.rmtree(folder / "images")
    write_pictures(folder / "images", NAMES, (101, 83))
    write_pictures(folder / "images_2", NAMES, (51, 42))
    write_pictures(folder / "images_4", NAMES, (25, 21))
    for downscale, (width, height), note in ((1, (101, 83), ""), (2, (51, 42), "images_2"), (4, (25, 21), "images_4")):
        capture = load_capture(folder, downscale=downscale)
        assert capture.images.shape[1:3] == (height, width) and note in " ".join(capture.notes)
        sx, sy = width / 101, height / 83
        expected = [[100 * sx, 0, 50 * sx], [0, 90 * sy, 40 * sy], [0, 0, 1]]
        np.testing.assert_allclose(capture.cameras.Ks[3], expected, rtol=1e-6)
        for a, b in zip(capture.cameras, load_cameras(folder, downscale=downscale), strict=True):
            assert np.array_equal(a, b)
    assert load_capture(folder, downscale=6).images.shape[1:3] == (14, 17), "images_2, shrunk by 3"
    shutil.rmtree(folder / "images")
    shutil.rmtree(folder / "images_2")
    alone = load_capture(folder)
    assert alone.images.shape[1:3] == (21, 25)
    assert "No folder of pictures fits downscale 1: those of images_4 are used as they are." in alone.notes


def test_a_fisheye_picture_is_made_straight(tmp_path):
    cameras = {1: (8, "SIMPLE_RADIAL_FISHEYE", 24, 20, (16.0, 12.0, 10.0, 0.01))}
    capture = load_capture(capture_of(tmp_path, cameras=cameras))
    K = capture.cameras.Ks[0]
    assert K[0, 0] == K[1, 1] and 0.69 * 16 < K[0, 0] < 1.01 * 16
    assert "the fisheye picture made straight" in capture.notes[0]


def truncated(name, keep):
    def apply(folder):
        path = folder / "sparse/0" / name
        path.write_bytes(path.read_bytes()[:keep])

    return apply


def text(name, change):
    def apply(folder):
        shutil.rmtree(folder / "sparse")
        write_model(folder / "sparse/0", binary=False, points={1: (0.0, 0.0, 0.0)})
        path = folder / "sparse/0" / name
        path.write_text(change(path.read_text()))

    return apply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (truncated("images.bin", 300), "images.bin: 10 records are announced, the file ends in number 3"),
        (truncated("cameras.bin", 5), "cameras.bin: 0 records are announced, the file ends in number 0"),
        (text("cameras.txt", lambda t: t + "nonsense\n"), "cameras.txt: line 3: expected CAMERA_ID MODEL WIDTH HEIGHT"),
        (
            text("cameras.txt", lambda t: t.replace("PINHOLE", "EQUIRECTANGULAR")),
            "line 2: camera model EQUIRECTANGULAR is a panorama",
        ),
        (text("images.txt", lambda t: "\n\n5 1 0 0\n" + t), "images.txt: line 3: expected IMAGE_ID QW QX QY QZ TX"),
        (text("images.txt", lambda t: t.replace("\n\n", "\n1 2 x\n", 1)), "line 3: expected triples X Y POINT3D_ID"),
        (text("points3D.txt", lambda t: t + "1 2\n"), "points3D.txt: line 3: expected POINT3D_ID X Y Z R G B"),
        (text("cameras.txt", lambda t: t.replace("\n1 ", "\n7 ")), r"image '0.png': there is no camera 1, only \[7\]"),
        (text("images.txt", lambda t: "# none\n"), "the COLMAP model has no images"),
    ],
)
def test_damaged_models_say_where(tmp_path, change, message):
    folder = capture_of(tmp_path)
    change(folder)
    with pytest.raises(InputError, match=message):
        load_capture(folder)


def test_a_folder_without_a_model_is_told(tmp_path):
    with pytest.raises(InputError, match="holds no COLMAP model"):
        load_colmap(tmp_path)
    with pytest.raises(InputError, match="holds no COLMAP model"):
        load_model(tmp_path)


def test_binary_and_text_of_a_real_model_agree():
    folder = shared("data/captures/sceaux_castle")
    capture, other = load_capture(folder), load_capture(folder / "sparse_txt/0")
    assert capture.kind == "COLMAP, binary, sparse/0" and other.kind == "COLMAP, text, 0"
    assert capture.images.shape == other.images.shape == (11, 532, 708, 3)
    np.testing.assert_allclose(capture.cameras.viewmats, other.cameras.viewmats, atol=1e-5)
    np.testing.assert_allclose(capture.cameras.Ks, other.cameras.Ks, rtol=1e-5)
    assert capture.points is not None and other.points is not None and len(capture.points.points) == 7862
    np.testing.assert_allclose(capture.points.points, other.points.points, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("name", "limit", "shuffled"), [("sceaux_castle", 14, 25), ("banana", 8, 28)])
def test_points_of_a_real_model_fall_on_pixels_of_their_color(name, limit, shuffled):
    capture = load_capture(shared(f"data/captures/{name}"), downscale=4)
    assert capture.depths is not None and capture.points is not None
    own, others = [], []
    for view, depths in enumerate(capture.depths):
        viewmat, K = capture.cameras.viewmats[view], capture.cameras.Ks[view]
        rays = np.concatenate([depths.pixels, np.ones((len(depths.pixels), 1))], 1) @ np.linalg.inv(K).T
        world = (rays * depths.depths[:, None] - viewmat[:3, 3]) @ viewmat[:3, :3]
        index = np.abs(capture.points.points[None] - world[::100, None]).max(-1).argmin(1)
        colors = capture.points.colors[index] * 255
        pixels = capture.images[view][tuple(depths.pixels[::100, ::-1].astype(int).T)].astype(float)
        own.append(np.abs(pixels - colors).mean(1))
        others.append(np.abs(pixels - colors[::-1]).mean(1))
    assert np.median(np.concatenate(own)) < limit
    assert np.median(np.concatenate(others)) > shuffled


def test_the_other_extra_files_of_new_models_do_not_disturb():
    folder = shared("data/captures/banana")
    assert (folder / "sparse/0/rigs.bin").is_file()
    capture = load_capture(folder)
    assert capture.images.shape == (16, 500, 752, 3) and len(capture.points.points) == 13800
