"""transforms.json in the conventions of NeRF, Blender's synthetic scenes, instant-ngp and nerfstudio."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from jaxsplat.cameras import Lens
from jaxsplat.data.colmap import find_models, load_colmap
from jaxsplat.data.frame import Camera, Frame, Source, given_coefficients, viewmat_from_opengl
from jaxsplat.io.files import InputError, load_json
from jaxsplat.io.ply import PointCloud, load_points

_PERSPECTIVE = ("OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "PERSPECTIVE", "RADIAL", "SIMPLE_RADIAL")
_FISHEYE = ("OPENCV_FISHEYE", "FISHEYE")
_CAMERA_KEYS = ("fl_x", "fl_y", "cx", "cy", "w", "h", "camera_angle_x", "camera_angle_y")
_POSITIVE_KEYS = ("fl_x", "fl_y", "w", "h", "camera_angle_x", "camera_angle_y")
_RADIAL_KEYS = ("k1", "k2", "k3", "k4")
_TANGENTIAL_KEYS = ("p1", "p2")
_BLENDER = "transforms_train.json"
_MILLIMETRE = 1e-3
"""What a step of a map of depths means to nerfstudio, where nothing is said."""


def find_transforms(folder: Path) -> list[Path]:
    """The transforms file of a folder; in Blender's layout that for training and that for testing; or none."""
    if (folder / "transforms.json").is_file():
        return [folder / "transforms.json"]
    if not (folder / _BLENDER).is_file():
        return []
    # The field tests on `test`; `val` is for choosing settings, and stands in where there is no other.
    others = (folder / f"transforms_{name}.json" for name in ("test", "val"))
    return [folder / _BLENDER, *[path for path in others if path.is_file()][:1]]


def load_transforms(path: Path | str) -> Source:
    """Reads the cameras of a transforms.json. No picture is opened.

    Args:
      path: file to read, or folder with transforms.json, or with Blender's transforms_train.json and
        transforms_test.json.

    Returns:
      One frame per entry of `frames`.

    Raises:
      InputError: naming the file, the frame and the field.

    Example:
      >>> [frame.name for frame in load_transforms("fox/transforms.json").frames][:1]
      ['images/0001.jpg']
    """
    path = Path(path)
    files = [path] if path.is_file() else find_transforms(path)
    if not files:
        raise InputError(f"{path}: holds neither transforms.json nor {_BLENDER}")
    contents = [load_json(file) for file in files]
    notes: list[str] = []
    frames: list[Frame] = []
    for k, (file, top) in enumerate(zip(files, contents, strict=True)):
        entries = top.get("frames")
        if not isinstance(entries, list):
            raise InputError(f"{file}: field 'frames' must be a list, got {type(entries).__name__}")
        if not entries:
            raise InputError(f"{file}: field 'frames' is empty")
        held_out = bool(k) if len(files) > 1 else None
        frames += [_frame(file, top, i, entry, held_out) for i, entry in enumerate(entries)]
    unused = files[0].parent / "transforms_val.json"
    if len(files) > 1 and unused.is_file() and unused not in files:
        notes.append(f"{unused.name} is not used.")
    points = _points(files[0], contents[0], notes)
    kind = " and ".join(file.name for file in files)
    return Source(kind, files[0], tuple(frames), points, tuple(notes))


def _frame(path: Path, top: dict[str, Any], index: int, entry: Any, held_out: bool | None) -> Frame:
    where = f"{path}: frame {index}"
    if not isinstance(entry, dict):
        raise InputError(f"{where}: expected an object, got {type(entry).__name__}")
    file_path = _text(where, entry, "file_path")
    if not file_path:
        raise InputError(f"{where}: field 'file_path' must be a string, got {entry.get('file_path')!r}")
    where += f" ({file_path!r})"
    mask, depth = (_text(where, entry, key) for key in ("mask_path", "depth_file_path"))
    unit = {**top, **entry}.get("depth_unit_scale_factor", _MILLIMETRE)
    return Frame(
        name=file_path.removeprefix("./"),
        path=_beside(path, file_path),
        viewmat=viewmat_from_opengl(f"{where}: field 'transform_matrix'", entry.get("transform_matrix")),
        camera=_camera(where, {**top, **entry}),
        where=where,
        mask_path=_beside(path, mask) if mask else None,
        held_out=_held_out(path, top, file_path) if held_out is None else held_out,
        depth=(_beside(path, depth), _number(where, "depth_unit_scale_factor", unit)) if depth else None,
    )


def _text(where: str, entry: dict[str, Any], key: str) -> str | None:
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise InputError(f"{where}: field {key!r} must be a string, got {value!r}")
    return value


def _beside(path: Path, name: str) -> Path:
    """The path that a name in the file means; backslashes may separate its folders."""
    return path.parent / name.replace("\\", "/")


def _held_out(path: Path, top: dict[str, Any], file_path: str) -> bool | None:
    """What nerfstudio's lists of file names say about a frame; None where there are none."""
    lists = {}
    for name in ("train", "val", "test"):
        names = top.get(f"{name}_filenames")
        if names is not None and not (isinstance(names, list) and all(isinstance(n, str) for n in names)):
            raise InputError(f"{path}: field '{name}_filenames' must be a list of strings")
        lists[name] = names
    if lists["train"] is not None:
        return file_path not in lists["train"]
    if lists["val"] is None and lists["test"] is None:
        return None
    return file_path in {*(lists["val"] or ()), *(lists["test"] or ())}


def _camera(where: str, given: dict[str, Any]) -> Camera:
    keys = (*_CAMERA_KEYS, *_RADIAL_KEYS, *_TANGENTIAL_KEYS)
    values = {key: _number(where, key, given[key]) for key in keys if given.get(key) is not None}
    for key in _POSITIVE_KEYS:
        if key in values and not values[key] > 0:
            raise InputError(f"{where}: field {key!r} must be positive, got {values[key]}")
        if key.startswith("camera_angle") and not values.get(key, 1.0) < math.pi:
            raise InputError(f"{where}: field {key!r} is in radians and must be below pi, got {values[key]}")
    if "fl_x" not in values and "camera_angle_x" not in values:
        raise InputError(f"{where}: needs fl_x or camera_angle_x")
    model = given.get("camera_model", "OPENCV")
    if model not in (*_PERSPECTIVE, *_FISHEYE):
        expected = ", ".join((*_PERSPECTIVE, *_FISHEYE))
        raise InputError(f"{where}: camera model {model!r} is not supported, expected one of {expected}")
    radial, tangential = (
        given_coefficients(tuple(values.pop(key, 0.0) for key in keys)) for keys in (_RADIAL_KEYS, _TANGENTIAL_KEYS)
    )
    fisheye = model in _FISHEYE or given.get("is_fisheye")
    lens = Lens("equidistant" if fisheye else "perspective", radial, tangential=tangential)
    return Camera(**values, lens=lens)


def _number(where: str, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{where}: field {key!r} must be a finite number, got {value!r}")
    return float(value)


def _points(path: Path, top: dict[str, Any], notes: list[str]) -> PointCloud | None:
    """The points of the file's own .ply, else those of nerfstudio's COLMAP model in the same folder."""
    name = _text(str(path), top, "ply_file_path")
    if name:
        file = _beside(path, name)
        if file.is_file():
            cloud = load_points(file)
            if len(cloud.points):
                return cloud
        problem = "empty" if file.is_file() else "missing"
        notes.append(f"The point cloud {file.name} is {problem}.")
    if top.get("applied_transform") is not None and find_models(path.parent):
        cloud = load_colmap(path.parent).points
        if cloud is not None:
            notes.append("The points are those of the COLMAP model in the folder, moved by 'applied_transform'.")
            return PointCloud(_moved(path, top, cloud.points), cloud.colors)
    return None


def _moved(path: Path, top: dict[str, Any], points: np.ndarray) -> np.ndarray:
    """Points of COLMAP's world in the world of the file."""
    where = f"{path}: field 'applied_transform'"
    # The check is that of a camera's pose; only its axes differ.
    flip = np.diag([1.0, -1.0, -1.0, 1.0])
    pose = np.linalg.inv(viewmat_from_opengl(where, top["applied_transform"])) @ flip
    scale = _number(str(path), "applied_scale", top.get("applied_scale", 1.0))
    return (scale * (points @ pose[:3, :3].T + pose[:3, 3])).astype(points.dtype)
