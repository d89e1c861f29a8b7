"""What a COLMAP sparse model holds, and its camera models."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from jaxsplat.cameras import Lens
from jaxsplat.data.frame import Camera, given_coefficients
from jaxsplat.io.files import InputError

# Number in binary files: name in text files, and the parameters in their order; d1 ... are a divisor, s1 ... a prism.
MODELS = {
    0: ("SIMPLE_PINHOLE", "f cx cy"),
    1: ("PINHOLE", "fx fy cx cy"),
    2: ("SIMPLE_RADIAL", "f cx cy k1"),
    3: ("RADIAL", "f cx cy k1 k2"),
    4: ("OPENCV", "fx fy cx cy k1 k2 p1 p2"),
    5: ("OPENCV_FISHEYE", "fx fy cx cy k1 k2 k3 k4"),
    6: ("FULL_OPENCV", "fx fy cx cy k1 k2 p1 p2 k3 d1 d2 d3"),
    7: ("FOV", "fx fy cx cy omega"),
    8: ("SIMPLE_RADIAL_FISHEYE", "f cx cy k1"),
    9: ("RADIAL_FISHEYE", "f cx cy k1 k2"),
    10: ("THIN_PRISM_FISHEYE", "fx fy cx cy k1 k2 p1 p2 k3 k4 s1 s3"),
    11: ("RAD_TAN_THIN_PRISM_FISHEYE", "fx fy cx cy k1 k2 k3 k4 k5 k6 p2 p1 s1 s2 s3 s4"),
    12: ("SIMPLE_DIVISION", "f cx cy division"),
    13: ("DIVISION", "fx fy cx cy division"),
    14: ("SIMPLE_FISHEYE", "f cx cy"),
    15: ("FISHEYE", "fx fy cx cy"),
    16: ("EUCM", "fx fy cx cy alpha beta"),
}
_LENS = {
    "radial": "k1 k2 k3 k4 k5 k6", "divisor": "d1 d2 d3", "tangential": "p1 p2", "prism": "s1 s2 s3 s4",
    "omega": "omega", "division": "division", "unified": "alpha beta",
}  # fmt: skip
_PANORAMA = {17: "EQUIRECTANGULAR"}


class Image(NamedTuple):
    """A registered photograph.

    Attributes:
      name: as COLMAP knows it, with folders.
      quat: [4] w, x, y, z of the rotation world to camera.
      translation: [3] of the same.
      camera_id: of its camera.
      point_ids: [F] int64, of the points that its features belong to; negative for features without a point.
    """

    name: str
    quat: np.ndarray
    translation: np.ndarray
    camera_id: int
    point_ids: np.ndarray


class Points(NamedTuple):
    """Triangulated points.

    Attributes:
      ids: [P] int64.
      positions: [P, 3] float64.
      colors: [P, 3] uint8.
    """

    ids: np.ndarray
    positions: np.ndarray
    colors: np.ndarray


class Model(NamedTuple):
    """A sparse model.

    Attributes:
      cameras: by their id; None where a camera holds values that cannot be used.
      images: in the order of the file.
      points: None where the model has no file of points.
    """

    cameras: dict[int, Camera | None]
    images: tuple[Image, ...]
    points: Points | None


def parameter_count(where: str, model: int) -> int:
    """Number of parameters of a camera model, given by its number."""
    if model not in MODELS:
        raise _unknown(where, model)
    return len(MODELS[model][1].split())


def camera(where: str, model: int | str, width: float, height: float, values: tuple[float, ...]) -> Camera | None:
    """The camera of a record; None where a value is not finite, or a size or focal length is not positive.

    Args:
      where: for messages.
      model: number or name of the camera model.
      width: in pixels.
      height: in pixels.
      values: the parameters.

    Returns:
      The camera.

    Raises:
      InputError: where the model is unknown or has another number of parameters.
    """
    known = {key: entry for number, entry in MODELS.items() for key in (number, entry[0])}
    if model not in known:
        raise _unknown(where, model)
    name, letters = known[model]
    names = letters.split()
    if len(values) != len(names):
        raise InputError(f"{where}: {name} has {len(names)} parameters ({letters}), got {len(values)}")
    given = dict(zip(names, values, strict=True))
    fl_x, fl_y = (given.get(key, given.get("f", 0.0)) for key in ("fx", "fy"))
    if not all(map(math.isfinite, (width, height, *values))) or min(width, height, fl_x, fl_y) <= 0:
        return None
    coefficients = {
        kind: given_coefficients(tuple(given.get(key, 0.0) for key in keys.split())) for kind, keys in _LENS.items()
    }
    projection = "equidistant" if "FISHEYE" in name else "perspective"
    lens = Lens(projection, **coefficients, radial_first=name == "RAD_TAN_THIN_PRISM_FISHEYE")
    return Camera(fl_x, fl_y, given["cx"], given["cy"], width, height, lens=lens)


def _unknown(where: str, model: object) -> InputError:
    for number, name in _PANORAMA.items():
        if model in (number, name):
            return InputError(
                f"{where}: camera model {name} is a panorama, which no single pinhole picture can show: cut the "
                "panoramas into perspective pictures, and reconstruct from those"
            )
    names = ", ".join(name for name, _ in MODELS.values())
    return InputError(f"{where}: camera model {model} is not supported, expected one of {names}")
