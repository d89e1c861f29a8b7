"""Every camera model of COLMAP against positions that pycolmap 4.2.1 (`Camera.img_from_cam`) gives."""

import numpy as np
import pytest

from jaxsplat.data.colmap_model import camera, parameter_count
from jaxsplat.data.undistort import PINHOLE, distort
from jaxsplat.io.files import InputError

RAYS = np.array([[0.3, -0.2], [0.0, 0.0], [-0.7, 0.5]])
PIXELS = {
    "SIMPLE_PINHOLE": ((50, 32, 24), [[47.0, 14.0], [32.0, 24.0], [-3.0, 49.0]]),
    "PINHOLE": ((50, 60, 32, 24), [[47.0, 12.0], [32.0, 24.0], [-3.0, 54.0]]),
    "SIMPLE_RADIAL": ((50, 32, 24, 0.1), [[47.195, 13.87], [32.0, 24.0], [-5.59, 50.85]]),
    "RADIAL": ((50, 32, 24, 0.1, -0.05), [[47.182325, 13.87845], [32.0, 24.0], [-4.6317, 50.1655]]),
    "OPENCV": (
        (50, 60, 32, 24, 0.1, -0.05, 0.01, -0.02),
        [[46.812325, 12.12414], [32.0, 24.0], [-6.7017, 56.9826]],
    ),
    "OPENCV_FISHEYE": (
        (50, 60, 32, 24, 0.1, -0.05, 0.02, -0.01),
        [[46.55896, 12.352832], [32.0, 24.0], [1.949817, 49.757299]],
    ),
    "FULL_OPENCV": (
        (50, 60, 32, 24, 0.1, -0.05, 0.01, -0.02, 0.03, 0.04, 0.05, 0.06),
        [[46.720105, 12.197916], [32.0, 24.0], [-4.341164, 54.959284]],
    ),
    "FOV": ((50, 60, 32, 24, 0.9), [[47.494238, 11.60461], [32.0, 24.0], [0.652881, 50.868959]]),
    "SIMPLE_RADIAL_FISHEYE": ((50, 32, 24, 0.1), [[46.568818, 14.287455], [32.0, 24.0], [1.637285, 45.687653]]),
    "RADIAL_FISHEYE": ((50, 32, 24, 0.1, -0.05), [[46.558495, 14.294336], [32.0, 24.0], [2.005373, 45.424734]]),
    "THIN_PRISM_FISHEYE": (
        (50, 60, 32, 24, 0.1, -0.05, 0.01, -0.02, 0.03, -0.04, 0.05, 0.06),
        [[46.517667, 13.032508], [32.0, 24.0], [1.818876, 52.638036]],
    ),
    "RAD_TAN_THIN_PRISM_FISHEYE": (
        (50, 60, 32, 24, 0.1, -0.05, 0.03, -0.04, 0.02, -0.01, 0.01, -0.02, 0.05, 0.06, -0.03, 0.02),
        [[47.169371, 11.845018], [32.0, 24.0], [5.359735, 47.722308]],
    ),
    "SIMPLE_DIVISION": ((50, 32, 24, -0.2), [[46.629051, 14.247299], [32.0, 24.0], [1.050443, 46.106826]]),
    "DIVISION": ((50, 60, 32, 24, 0.15), [[47.304496, 11.756403], [32.0, 24.0], [-8.099583, 58.371071]]),
    "SIMPLE_FISHEYE": ((50, 32, 24), [[46.396423, 14.402385], [32.0, 24.0], [3.095998, 44.645716]]),
    "FISHEYE": ((50, 60, 32, 24), [[46.396423, 12.482862], [32.0, 24.0], [3.095998, 48.774859]]),
    "EUCM": ((50, 60, 32, 24, 0.6, 1.1), [[46.40276, 12.477792], [32.0, 24.0], [3.029102, 48.832198]]),
}


@pytest.mark.parametrize(("number", "name"), list(enumerate(PIXELS)))
def test_rays_fall_where_colmap_puts_them(number, name):
    values, expected = PIXELS[name]
    by_number, by_name = (camera("here", model, 64.0, 48.0, tuple(map(float, values))) for model in (number, name))
    assert by_number is not None and by_number == by_name
    K = by_number.intrinsics(64, 48)
    np.testing.assert_allclose(distort(RAYS, by_number.lens) @ K[:2, :2].T + K[:2, 2], expected, atol=1e-6)
    assert (by_number.lens == PINHOLE) == name.endswith("PINHOLE")


def test_values_that_are_not_finite_make_no_camera():
    for values in ((float("nan"), 1.0, 2.0), (-1.0, 1.0, 2.0), (5.0, float("inf"), 2.0)):
        assert camera("here", "SIMPLE_PINHOLE", 64.0, 48.0, values) is None
    assert camera("here", "SIMPLE_PINHOLE", float("nan"), 48.0, (5.0, 1.0, 2.0)) is None


def test_panoramas_are_named_with_what_to_do_about_them():
    with pytest.raises(InputError, match="EQUIRECTANGULAR is a panorama.*cut the panoramas into perspective pictures"):
        parameter_count("here", 17)
    with pytest.raises(InputError, match="EQUIRECTANGULAR is a panorama"):
        camera("here", "EQUIRECTANGULAR", 64.0, 48.0, (64.0, 48.0))


def test_unknown_models_and_wrong_numbers_of_parameters_are_named():
    with pytest.raises(InputError, match="here: camera model 99 is not supported, expected one of SIMPLE_PINHOLE, P"):
        parameter_count("here", 99)
    with pytest.raises(InputError, match="here: camera model HOLOGRAM is not supported"):
        camera("here", "HOLOGRAM", 64.0, 48.0, ())
    with pytest.raises(InputError, match=r"here: RADIAL has 5 parameters \(f cx cy k1 k2\), got 3"):
        camera("here", "RADIAL", 64.0, 48.0, (1.0, 2.0, 3.0))
