"""Captures as arrays, and the captures that broke others."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from jaxsplat.data.capture import load_cameras, load_capture
from jaxsplat.io.files import InputError
from jaxsplat.io.ply import PointCloud, save_points
from tests.data import shared
from tests.train.scenes import edit_transforms, write_capture


def test_views_come_sorted_by_name_with_their_own_picture(tmp_path):
    folder = write_capture(tmp_path / "c", views=10)
    edit_transforms(folder, lambda content: content["frames"].reverse())
    capture = load_capture(folder)
    assert capture.cameras.names == tuple(f"images/{i:03}.png" for i in range(10))
    for i, name in enumerate(capture.cameras.names):
        assert (capture.images[i] == np.asarray(Image.open(folder / name))).all()
    assert np.flatnonzero(capture.held_out).tolist() == [0, 8]
    assert capture.points is None and capture.background.tolist() == [0, 0, 0] and capture.notes == ()


def test_downscaling_shrinks_pictures_and_intrinsics_per_axis(tmp_path):
    folder = write_capture(tmp_path / "c", size=(25, 21), cx=13.0, cy=9.0)
    full, small = load_capture(folder), load_capture(folder, downscale=2)
    assert small.images.shape == (10, 10, 12, 3)
    np.testing.assert_allclose(small.cameras.Ks[0, 0], full.cameras.Ks[0, 0] * 12 / 25, rtol=1e-6)
    np.testing.assert_allclose(small.cameras.Ks[0, 1], full.cameras.Ks[0, 1] * 10 / 21, rtol=1e-6)


def test_a_downscale_that_leaves_nothing_to_learn_from_is_refused(tmp_path):
    with pytest.raises(InputError, match="downscale 100 leaves less than 8 pixels of a picture of"):
        load_capture(write_capture(tmp_path), downscale=100)


def test_missing_and_unreadable_pictures_are_counted_and_named_and_the_rest_stays_matched(tmp_path):
    folder = write_capture(tmp_path / "c", views=10)
    whole = load_capture(folder)
    (folder / "images/003.png").unlink()
    (folder / "images/007.png").write_bytes(b"broken")
    Image.new("RGB", (3, 3)).save(folder / "images/not listed.png")
    capture = load_capture(folder)
    assert "1 of 10 listed images are missing and left out: images/003.png." in capture.notes
    assert "1 of 10 listed images are unreadable and left out: images/007.png." in capture.notes
    kept = [i for i in range(10) if i not in (3, 7)]
    assert np.array_equal(capture.images, whole.images[np.array(kept)])
    assert (capture.cameras.viewmats == whole.cameras.viewmats[kept]).all()


def test_a_declared_size_that_differs_from_the_file_scales_the_intrinsics(tmp_path):
    folder = write_capture(tmp_path / "c", size=(24, 20))
    plain = load_capture(folder).cameras
    edit_transforms(folder, lambda c: c.update(w=48, h=40, fl_x=48.0, fl_y=48.0, cx=24.0, cy=20.0))
    capture = load_capture(folder)
    np.testing.assert_allclose(capture.cameras.Ks, plain.Ks, rtol=1e-6)
    assert capture.notes == ("The images are 24x20, declared 48x40: intrinsics scaled.",)


def test_transparent_pictures_are_put_on_white_or_on_the_given_color(tmp_path):
    folder = write_capture(tmp_path / "c", views=4)
    clear = np.zeros((20, 24, 4), np.uint8)
    clear[:10] = (10, 20, 30, 255)
    for path in (folder / "images").iterdir():
        Image.fromarray(clear).save(path)
    white = load_capture(folder)
    assert white.background.tolist() == [1, 1, 1] and white.masks is None
    assert white.images[0][0, 0].tolist() == [10, 20, 30] and white.images[0][15, 0].tolist() == [255, 255, 255]
    assert white.alphas is not None and (white.alphas[0] == clear[..., 3]).all()
    red = load_capture(folder, background=(1.0, 0.0, 0.0))
    assert red.images[0][15, 0].tolist() == [255, 0, 0] and red.background.tolist() == [1, 0, 0]


def test_transparency_may_be_a_mask_instead(tmp_path):
    folder = write_capture(tmp_path / "c", views=4)
    colors = np.random.default_rng(0).integers(0, 256, (20, 24, 4), dtype=np.uint8)
    for path in (folder / "images").iterdir():
        Image.fromarray(colors).save(path)
    capture = load_capture(folder, alpha="mask")
    assert capture.masks is not None and capture.alphas is None and capture.background.tolist() == [0, 0, 0]
    assert (capture.masks[2] == (colors[..., 3] >= 128)).all() and (capture.images[2] == colors[..., :3]).all()


def test_blender_layout_holds_out_the_test_frames(tmp_path):
    folder = write_capture(tmp_path / "c", views=6)
    content = json.loads((folder / "transforms.json").read_text())
    for name, frames in (("train", content["frames"][:4]), ("test", content["frames"][4:])):
        (folder / f"transforms_{name}.json").write_text(json.dumps({"camera_angle_x": 0.9, "frames": frames}))
    (folder / "transforms.json").unlink()
    capture = load_capture(folder)
    assert capture.held_out.tolist() == [False] * 4 + [True] * 2
    np.testing.assert_allclose(capture.cameras.Ks[:, 0, 0], 12 / np.tan(0.45), rtol=1e-6)
    (folder / "transforms_test.json").rename(folder / "transforms_val.json")
    assert load_capture(folder).held_out.tolist() == [False] * 4 + [True] * 2
    (folder / "transforms_val.json").unlink()
    assert load_capture(folder).held_out.tolist() == [True, False, False, False]


def test_named_views_are_held_out_whatever_the_files_say(tmp_path):
    folder = write_capture(tmp_path / "c", views=10, train_filenames=[f"images/{i:03}.png" for i in range(9)])
    assert np.flatnonzero(load_capture(folder).held_out).tolist() == [9]
    assert np.flatnonzero(load_capture(folder, held_out=("images/007.png", "002.png")).held_out).tolist() == [2, 7]
    with pytest.raises(InputError, match=r"must name one usable image each, got 2.png, 11; there are images/000.png"):
        load_capture(folder, held_out=("2.png", "003.png", "11"))


def test_points_of_the_capture_are_loaded_and_a_missing_file_is_noted(tmp_path):
    folder = write_capture(tmp_path / "c", ply_file_path="p.ply")
    assert load_capture(folder).notes == ("The point cloud p.ply is missing.",)
    save_points(folder / "p.ply", PointCloud(np.ones((3, 3), np.float32), np.zeros((3, 3), np.float32)))
    points = load_capture(folder).points
    assert points is not None and points.points.tolist() == [[1, 1, 1]] * 3


def test_cameras_alone_are_those_of_the_whole_capture(tmp_path):
    folder = write_capture(tmp_path / "c", k1=0.05, p1=0.001)
    capture, cameras = load_capture(folder, downscale=2).cameras, load_cameras(folder, downscale=2)
    for a, b in zip(capture, cameras, strict=True):
        assert np.array_equal(a, b)
    shutil.rmtree(folder / "images")
    assert np.array_equal(load_cameras(folder / "transforms.json", downscale=2).Ks, capture.Ks)


def test_views_of_different_sizes_and_cameras_keep_their_own_and_the_padding_does_not_count(tmp_path):
    folder = write_capture(tmp_path / "c", views=10)
    upright = np.random.default_rng(0).integers(0, 256, (30, 16, 3), dtype=np.uint8)
    Image.fromarray(upright).save(folder / "images/004.png")
    edit_transforms(folder, lambda c: c["frames"][4].update(fl_x=50.0, fl_y=50.0, w=16, h=30, cx=7.0))
    capture = load_capture(folder)
    assert capture.images.shape == (10, 30, 24, 3) and capture.masks is not None
    assert (capture.images[4][:30, :16] == upright).all() and not capture.images[4][:, 16:].any()
    for i, (height, width) in ((4, (30, 16)), (5, (20, 24))):
        assert capture.masks[i][:height, :width].all() and capture.masks[i].sum() == height * width
    assert capture.cameras.Ks[4].tolist() == [[50, 0, 7], [0, 50, 15], [0, 0, 1]]
    assert capture.cameras.Ks[5].tolist() == [[24, 0, 12], [0, 24, 10], [0, 0, 1]]
    expected = "Images of different sizes: 9 of 24x20, 1 of 16x30; they are padded to 24x30, the rest masked."
    assert capture.notes == (expected,)


def test_a_picture_that_seems_turned_is_told(tmp_path):
    folder = write_capture(tmp_path / "c", size=(24, 20), w=20, h=24)
    assert load_capture(folder).notes == (
        "The images are 24x20, declared 20x24: intrinsics scaled, by 1.2 and 0.833: are they turned or cropped?",
    )


def test_pictures_turned_by_a_tag_are_read_as_they_are_stored(tmp_path):
    folder = write_capture(tmp_path / "c")
    stored = np.asarray(Image.open(folder / "images/004.png"))
    tag = Image.Exif()
    tag[0x0112] = 6  # shown turned by a quarter
    Image.fromarray(stored).save(folder / "images/004.png", exif=tag)
    capture = load_capture(folder)
    assert capture.notes == () and (capture.images[4] == stored).all()


@pytest.mark.parametrize("mode", ["L", "I;16", "P", "CMYK", "LA"])
def test_pictures_of_any_kind_are_converted(tmp_path, mode):
    folder = write_capture(tmp_path / "c", views=4)
    grey = np.asarray(Image.open(folder / "images/002.png").convert("L"))
    for path in sorted((folder / "images").iterdir()):
        if mode == "I;16":
            Image.fromarray(grey.astype(np.uint16) * 257).save(path)
        else:
            picture = Image.fromarray(grey).convert("RGB" if mode == "CMYK" else "L").convert(mode)
            picture.save(path, format="TIFF" if mode == "CMYK" else "PNG")
    np.testing.assert_allclose(load_capture(folder).images[2], np.repeat(grey[..., None], 3, -1), atol=3)


def test_a_smaller_folder_of_pictures_saves_the_shrinking(tmp_path):
    folder = write_capture(tmp_path / "c", views=4)
    (folder / "images_2").mkdir()
    for i in range(4):
        Image.new("RGB", (12, 10), (i + 1, 0, 0)).save(folder / f"images_2/{i:03}.png")
    capture = load_capture(folder, downscale=2)
    assert capture.notes[0] == "The pictures are those of images_2." and capture.images[2].max() == 3
    assert load_capture(folder).images[2].max() > 100


def test_a_lens_is_kept_where_that_is_asked_for(tmp_path):
    folder = write_capture(tmp_path / "c", k1=0.1, k3=0.02, p2=0.01)
    edit_transforms(folder, lambda content: content["frames"][2].update(k1=0, k3=0, p2=0))
    kept = load_capture(folder, undistort=False, downscale=1)
    assert kept.notes == ()
    assert kept.cameras.lens is not None and kept.cameras.lens.projection == "perspective"
    expected = np.tile(np.float32([0.1, 0, 0.02, 0]), (10, 1))
    expected[2] = 0
    np.testing.assert_array_equal(kept.cameras.lens.radial, expected)
    np.testing.assert_array_equal(kept.cameras.lens.tangential[[2, 3]], np.float32([[0, 0], [0, 0.01]]))
    assert (kept.images[5] == np.asarray(Image.open(folder / "images/005.png"))).all()
    plain = load_capture(write_capture(tmp_path / "plain"), undistort=False).cameras
    np.testing.assert_array_equal(kept.cameras.Ks, plain.Ks)
    assert plain.lens is None
    removed = load_capture(folder)
    assert removed.cameras.lens is None and removed.cameras.Ks[0, 0, 0] != plain.Ks[0, 0, 0]


def test_lenses_of_different_projections_are_removed_nevertheless(tmp_path):
    folder = write_capture(tmp_path / "c", k1=0.1)
    edit_transforms(folder, lambda content: content["frames"][2].update(camera_model="OPENCV_FISHEYE"))
    assert load_capture(folder, undistort=False).cameras.lens is None


def test_coordinates_too_large_for_single_precision_are_told(tmp_path):
    folder = write_capture(tmp_path / "c")

    def move(content):
        for frame in content["frames"]:
            frame["transform_matrix"][0][3] += 5e6

    edit_transforms(folder, move)
    assert load_capture(folder).notes == (
        "The cameras stand 5e+06 units from the origin and 3 apart: single precision places them to 0.5 only. "
        "Move the capture to its origin.",
    )


def broken(change):
    def apply(folder):
        edit_transforms(folder, change)

    return apply


def blacken(folder):
    for path in (folder / "images").iterdir():
        Image.new("RGB", (24, 20)).save(path)


def keep(count):
    return broken(lambda content: content.update(frames=content["frames"][:count]))


def forget_pictures(folder):
    shutil.rmtree(folder / "images")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (keep(0), "field 'frames' is empty"),
        (keep(1), "1 usable images leave 0 for training, at least 2 are needed"),
        (keep(2), r"2 usable images leave 1 for training, at least 2 are needed; 1 are held out\.$"),
        (forget_pictures, "none of the 10 listed images can be used. 10 of 10 listed images are missing"),
        (blacken, "every pixel of all 10 images is black"),
        (broken(lambda c: c.update(k1=400.0)), r"frame 0 \('images/000.png'\): distortion .* cannot be undone"),
        (lambda folder: (folder / "transforms.json").write_text("{"), "malformed JSON at line 1"),
        (
            lambda folder: (folder / "transforms.json").unlink(),
            "holds neither transforms.json nor transforms_train.json, nor a COLMAP model",
        ),
    ],
)
def test_captures_that_cannot_be_used_say_why(tmp_path, change, message):
    folder = write_capture(tmp_path / "c", views=10)
    change(folder)
    with pytest.raises(InputError, match=message):
        load_capture(folder)


def test_no_folder_and_an_empty_folder_are_told_apart(tmp_path):
    with pytest.raises(InputError, match="nowhere: no such file or folder"):
        load_capture(tmp_path / "nowhere")
    with pytest.raises(InputError, match="the folder is empty"):
        load_capture(tmp_path)
    with pytest.raises(InputError, match="downscale must be at least 1, got 0"):
        load_capture(tmp_path, downscale=0)


def test_a_real_capture_loads_with_its_17_missing_frames():
    capture = load_capture(shared("data/captures/fox"), downscale=8)
    assert capture.images.shape == (50, 120, 67, 3) and capture.held_out.sum() == 7
    assert "17 of 67 listed images are missing" in capture.notes[0] and "images/0113.jpg" in capture.notes[0]


def test_a_real_blender_capture_stands_on_white():
    capture = load_capture(shared("data/captures/chair_nerf_synthetic"), downscale=4)
    assert capture.images.shape == (125, 50, 50, 3) and capture.held_out.sum() == 25
    assert all((image[0, 0] == 255).all() for image in capture.images)
    assert capture.kind == "transforms_train.json and transforms_test.json"
    assert capture.notes == ("transforms_val.json is not used.",)
    np.testing.assert_allclose(capture.cameras.Ks[:, 0, 0], 277.7778 / 4, rtol=1e-5)
