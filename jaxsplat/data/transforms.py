"""transforms.json in the conventions of NeRF, Blender's synthetic scenes, instant-ngp and nerfstudio."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np

from jaxsplat.io.files import InputError, load_json

EXTENSIONS = (".png", ".jpg", ".jpeg", ".JPG", ".JPEG", ".PNG", ".webp")
DISTORTION_KEYS = ("k1", "k2", "k3", "k4", "p1", "p2")
_PINHOLE_MODELS = ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "PERSPECTIVE", "RADIAL", "SIMPLE_RADIAL")
_ORTHONORMAL_TOLERANCE = 0.01


@dataclasses.dataclass(frozen=True)
class Frame:
    """One photograph as the file describes it.

    Attributes:
      name: file_path without a leading ./, which identifies and sorts the view.
      path: where the picture should be; it may not exist.
      viewmat: [4, 4] world to camera, OpenCV axes, float64.
      distortion: k1, k2, k3, k4, p1, p2.
      settings: the numbers given for the camera (fl_x, cx, w, camera_angle_x ...), the frame's before the file's.
      where: for messages.
    """

    name: str
    path: Path
    viewmat: np.ndarray
    distortion: tuple[float, ...]
    settings: dict[str, float]
    where: str

    def intrinsics(self, width: int, height: int) -> np.ndarray:
        """K [3, 3] for a picture of this size, float64; what the file says for another size is scaled, per axis."""
        given = self.settings
        scale_x = width / given.get("w", width)
        scale_y = height / given.get("h", height)
        if "fl_x" in given:
            fl_x = given["fl_x"] * scale_x
        elif "camera_angle_x" in given:
            fl_x = 0.5 * width / math.tan(0.5 * given["camera_angle_x"])
        else:
            raise InputError(f"{self.where}: needs fl_x or camera_angle_x")
        if "fl_y" in given:
            fl_y = given["fl_y"] * scale_y
        elif "camera_angle_y" in given and "fl_x" not in given:
            fl_y = 0.5 * height / math.tan(0.5 * given["camera_angle_y"])
        else:
            fl_y = fl_x / scale_x * scale_y  # square pixels in the size that the file speaks of
        cx = given["cx"] * scale_x if "cx" in given else 0.5 * width
        cy = given["cy"] * scale_y if "cy" in given else 0.5 * height
        return np.array([[fl_x, 0.0, cx], [0.0, fl_y, cy], [0.0, 0.0, 1.0]])


@dataclasses.dataclass(frozen=True)
class Transforms:
    """What a transforms.json holds.

    Attributes:
      path: the file.
      frames: in the order of the file.
      points_path: the .ply that the file names, if any.
    """

    path: Path
    frames: tuple[Frame, ...]
    points_path: Path | None


def load_transforms(path: Path | str) -> Transforms:
    """Reads the cameras of a transforms.json. No picture is opened.

    Args:
      path: file to read.

    Returns:
      One frame per entry of `frames`.

    Raises:
      InputError: naming the file, the frame and the field.

    Example:
      >>> [frame.name for frame in load_transforms("fox/transforms.json").frames][:1]
      ['images/0001.jpg']
    """
    path = Path(path)
    top = load_json(path)
    entries = top.get("frames")
    if not isinstance(entries, list):
        raise InputError(f"{path}: field 'frames' must be a list, got {type(entries).__name__}")
    if not entries:
        raise InputError(f"{path}: field 'frames' is empty")
    frames = tuple(_frame(path, top, i, entry) for i, entry in enumerate(entries))
    points = top.get("ply_file_path")
    if points is not None and not isinstance(points, str):
        raise InputError(f"{path}: field 'ply_file_path' must be a string, got {points!r}")
    return Transforms(path, frames, path.parent / points if points else None)


def _frame(path: Path, top: dict[str, Any], index: int, entry: Any) -> Frame:
    where = f"{path}: frame {index}"
    if not isinstance(entry, dict):
        raise InputError(f"{where}: expected an object, got {type(entry).__name__}")
    file_path = entry.get("file_path")
    if not isinstance(file_path, str) or not file_path:
        raise InputError(f"{where}: field 'file_path' must be a string, got {file_path!r}")
    where += f" ({file_path!r})"
    both = {**top, **entry}
    model = both.get("camera_model", "OPENCV")
    if model not in _PINHOLE_MODELS or both.get("is_fisheye"):
        shown = "is_fisheye" if both.get("is_fisheye") else repr(model)
        raise InputError(
            f"{where}: camera model {shown} is not supported, expected one of {', '.join(_PINHOLE_MODELS)}"
        )
    settings = {}
    for key in ("fl_x", "fl_y", "cx", "cy", "w", "h", "camera_angle_x", "camera_angle_y", *DISTORTION_KEYS):
        if both.get(key) is not None:
            settings[key] = _number(where, key, both[key])
    for key in ("fl_x", "fl_y", "w", "h", "camera_angle_x", "camera_angle_y"):
        if key in settings and not settings[key] > 0:
            raise InputError(f"{where}: field {key!r} must be positive, got {settings[key]}")
        if key.startswith("camera_angle") and not settings.get(key, 1.0) < math.pi:
            raise InputError(f"{where}: field {key!r} is in radians and must be below pi, got {settings[key]}")
    return Frame(
        name=file_path.removeprefix("./"),
        path=_picture(path.parent, file_path),
        viewmat=_viewmat(where, entry.get("transform_matrix")),
        distortion=tuple(settings.get(key, 0.0) for key in DISTORTION_KEYS),
        settings=settings,
        where=where,
    )


def _number(where: str, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{where}: field {key!r} must be a finite number, got {value!r}")
    return float(value)


def _picture(folder: Path, file_path: str) -> Path:
    """The file that `file_path` means: an ending may be missing, and a backslash may separate folders."""
    names = [file_path, file_path.replace("\\", "/")]
    for name in names:
        for ending in ("", *EXTENSIONS):
            candidate = folder / (name + ending)
            if candidate.is_file():
                return candidate
    return folder / file_path


def _viewmat(where: str, value: Any) -> np.ndarray:
    """World to camera in OpenCV axes (y down, z forward) from camera to world in OpenGL axes (y up, z back)."""
    where = f"{where}: field 'transform_matrix'"
    try:
        matrix = np.array(value, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{where} must be a 4x4 matrix of numbers") from None
    if matrix.shape not in ((4, 4), (3, 4)):
        raise InputError(f"{where} must be a 4x4 matrix, got shape {list(matrix.shape)}")
    if not np.isfinite(matrix).all():
        raise InputError(f"{where} holds values that are not finite: {matrix[~np.isfinite(matrix)][0]}")
    rotation = matrix[:3, :3] * np.array([1.0, -1.0, -1.0])
    if np.linalg.det(rotation) <= 0:
        raise InputError(f"{where} is a reflection or singular (determinant {np.linalg.det(rotation):.3g}), expected 1")
    left, singular, right = np.linalg.svd(rotation)
    if np.abs(singular - 1.0).max() > _ORTHONORMAL_TOLERANCE:
        raise InputError(f"{where} is no rotation: it stretches by {singular.round(3).tolist()}, expected 1")
    nearest = left @ right  # rounding noise of the file is removed
    viewmat = np.eye(4)
    viewmat[:3, :3] = nearest.T
    viewmat[:3, 3] = -nearest.T @ matrix[:3, 3]
    return viewmat
