"""poses_bounds.npy."""

import numpy as np
import pytest

from jaxsplat.data import load_capture, normalization
from jaxsplat.io.files import InputError
from tests.colmap import write_pictures
from tests.data import shared
from tests.train.scenes import look_at_origin

NAMES = [f"p{i}.jpg" for i in range(6)]


def write_llff(folder, *, poses=None):
    """Pictures of 24x20, poses for 96x80."""
    rows = []
    for i in range(len(NAMES)):
        right, up, back, center = look_at_origin(i)[:3].T
        rows.append([*np.stack([-up, right, back, center, [80.0, 96.0, 100.0]], 1).ravel(), 1.0, 9.0])
    np.save(folder / "poses_bounds.npy", np.array(rows) if poses is None else poses)
    write_pictures(folder / "images_4", NAMES)
    return folder


def test_axes_and_intrinsics_are_converted(tmp_path):
    capture = load_capture(write_llff(tmp_path), downscale=4)
    assert capture.kind == "poses_bounds.npy" and capture.cameras.names == tuple(NAMES)
    assert capture.cameras.Ks[0].tolist() == [[25, 0, 12], [0, 25, 10], [0, 0, 1]]
    for i, viewmat in enumerate(capture.cameras.viewmats):
        pose = look_at_origin(i)
        np.testing.assert_allclose(viewmat @ pose[:, 3], [0, 0, 0, 1], atol=1e-5)
        assert (viewmat @ [0, 0, 0, 1])[2] > 3 and (viewmat @ [0, 0, 0.1, 1])[1] < 0


@pytest.mark.parametrize(
    ("poses", "message"),
    [
        (np.zeros((6, 15)), r"expected floating-point numbers \[V, 17\], got float64\[6, 15\]"),
        (np.zeros((5, 17)), "6 pictures, but poses_bounds.npy has 5 rows"),
        (np.full((6, 17), np.nan), r"row 0 \('p0.jpg'\): expected finite numbers"),
        (np.ones((6, 17)), r"row 0 \('p0.jpg'\) is a reflection or singular"),
    ],
)
def test_mistakes_are_named(tmp_path, poses, message):
    with pytest.raises(InputError, match=message):
        load_capture(write_llff(tmp_path, poses=poses))


def test_a_damaged_file_and_missing_pictures_are_named(tmp_path):
    (tmp_path / "poses_bounds.npy").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="unreadable array"):
        load_capture(tmp_path)
    np.save(tmp_path / "poses_bounds.npy", np.zeros((2, 17)))
    with pytest.raises(InputError, match="there is no folder images"):
        load_capture(tmp_path / "poses_bounds.npy")


def test_the_visual_hull_of_a_real_capture_lies_where_it_is_known_to():
    capture = load_capture(shared("data/captures/mary_rose_tankard"), downscale=8)
    assert capture.images.shape == (69, 432, 432, 3) and capture.masks is not None
    # The object's box as measured from the masks; its middle is inside the masks of nearly all views, far points not.
    middle, far = np.array([-0.85, 0.88, 0.0, 1.0]), np.array([-0.85, 0.88, 3.0, 1.0])
    inside = np.zeros((2, 69), bool)
    for i in range(69):
        for k, point in enumerate((middle, far)):
            x, y, z = capture.cameras.Ks[i] @ (capture.cameras.viewmats[i] @ point)[:3]
            column, row = int(x / z), int(y / z)
            if z > 0 and 0 <= column < 432 and 0 <= row < 432:
                inside[k, i] = capture.masks[i][row, column]
    assert inside[0].mean() > 0.95 and inside[1].mean() < 0.2
    assert np.linalg.norm(normalization(capture.cameras.viewmats).center - middle[:3]) < 0.5
