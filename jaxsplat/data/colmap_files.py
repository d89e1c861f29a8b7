"""COLMAP's sparse models from their files, binary or text."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxsplat.data import colmap_model
from jaxsplat.data.colmap_model import Image, Model, Points
from jaxsplat.data.frame import Camera
from jaxsplat.io.files import InputError

_FEATURE = np.dtype([("xy", "<f8", 2), ("point", "<i8")])
_TRACK_ENTRY = 8


def model_ending(folder: Path) -> str | None:
    """Of the model in a folder, ".bin" before ".txt"; None where there is no model."""
    for ending in (".bin", ".txt"):
        if all((folder / (name + ending)).is_file() for name in ("cameras", "images")):
            return ending
    return None


def load_model(folder: Path) -> Model:
    """Reads a model.

    Args:
      folder: with cameras, images and perhaps points3D, all .bin or all .txt.

    Returns:
      The model, poses and points as they are in the files.

    Raises:
      InputError: naming the file, and the record or the line.

    Example:
      >>> len(load_model(Path("castle/sparse/0")).images)
      11
    """
    ending = model_ending(folder)
    if ending is None:
        raise InputError(f"{folder}: holds no COLMAP model (cameras and images, .bin or .txt)")
    cameras, images, points = (folder / (name + ending) for name in ("cameras", "images", "points3D"))
    if ending == ".bin":
        return Model(_cameras(cameras), _images(images), _points(points) if points.is_file() else None)
    return Model(_text_cameras(cameras), _text_images(images), _text_points(points) if points.is_file() else None)


class _Records:
    """A binary file that is read from its beginning: a count, then so many records."""

    def __init__(self, path: Path) -> None:
        self.path, self.data, self.position, self.count, self.done = path, path.read_bytes(), 0, 0, 0
        (self.count,) = self.take("<Q")

    def __iter__(self) -> Iterator[str]:
        for number in range(self.count):
            self.done = number
            yield f"{self.path}: record {number}"

    def take(self, form: str) -> tuple[Any, ...]:
        begin, self.position = self.position, self.position + struct.calcsize(form)
        self._check()
        return struct.unpack_from(form, self.data, begin)

    def text(self) -> str:
        begin = self.position
        end = self.data.find(b"\0", begin)
        self.position = end + 1 if end >= 0 else len(self.data) + 1
        self._check()
        return self.data[begin:end].decode("utf-8", "surrogateescape")

    def array(self, dtype: np.dtype, count: int) -> np.ndarray:
        begin, self.position = self.position, self.position + count * dtype.itemsize
        self._check()
        return np.frombuffer(self.data, dtype, count, begin)

    def skip(self, size: int) -> None:
        self.position += size
        self._check()

    def _check(self) -> None:
        if self.position > len(self.data):
            raise InputError(f"{self.path}: {self.count} records are announced, the file ends in number {self.done}")


def _cameras(path: Path) -> dict[int, Camera | None]:
    cameras, records = {}, _Records(path)
    for where in records:
        number, model, width, height = records.take("<iiQQ")
        values = records.take(f"<{colmap_model.parameter_count(where, model)}d")
        cameras[number] = colmap_model.camera(where, model, float(width), float(height), values)
    return cameras


def _images(path: Path) -> tuple[Image, ...]:
    images, records = [], _Records(path)
    for _ in records:
        _, *pose, camera_id = records.take("<i7di")
        name = records.text()
        (features,) = records.take("<Q")
        point_ids = records.array(_FEATURE, features)["point"]
        images.append(Image(name, np.array(pose[:4]), np.array(pose[4:]), camera_id, point_ids))
    return tuple(images)


def _points(path: Path) -> Points:
    records = _Records(path)
    ids, positions, colors = [], [], []
    for _ in records:
        number, x, y, z, red, green, blue, _, track = records.take("<Q3d3BdQ")
        records.skip(_TRACK_ENTRY * track)
        ids.append(number)
        positions.append((x, y, z))
        colors.append((red, green, blue))
    return _stacked(ids, positions, colors)


def _stacked(ids: list[int], positions: list[Any], colors: list[Any]) -> Points:
    count = len(ids)
    return Points(
        np.array(ids, np.int64),
        np.array(positions, np.float64).reshape(count, 3),
        np.array(colors, np.uint8).reshape(count, 3),
    )


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Every line that is no comment, and where it stands; empty ones too, which mean an image without features."""
    text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith("#"):
            yield f"{path}: line {number}", line.rstrip("\r")


def _float(word: str) -> float:
    """The number that a word means; NaN for words like -nan(ind), which some C libraries print."""
    try:
        return float(word)
    except ValueError:
        return math.nan


def _text_cameras(path: Path) -> dict[int, Camera | None]:
    cameras = {}
    for where, line in _lines(path):
        if words := line.split():
            try:
                number, model = int(words[0]), words[1]
                width, height, *values = (_float(word) for word in words[2:])
            except (ValueError, IndexError):
                raise InputError(f"{where}: expected CAMERA_ID MODEL WIDTH HEIGHT PARAMS, got {line[:80]!r}") from None
            cameras[number] = colmap_model.camera(where, model, width, height, tuple(values))
    return cameras


def _text_images(path: Path) -> tuple[Image, ...]:
    images, lines = [], _lines(path)
    for where, line in lines:
        if not line.strip():
            continue
        try:
            _, *pose, camera_id, name = line.split(maxsplit=9)  # the name is the rest: it may hold spaces
            numbers = np.array([_float(word) for word in pose])
            quat, translation = numbers[:4], numbers[4:].reshape(3)
            camera_id = int(camera_id)
        except ValueError:
            raise InputError(
                f"{where}: expected IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME, got {line[:80]!r}"
            ) from None
        where, features = next(lines, (where, ""))
        try:
            point_ids = np.array(features.split()[2::3], np.int64)
        except (ValueError, OverflowError):
            raise InputError(f"{where}: expected triples X Y POINT3D_ID, got {features[:80]!r}") from None
        images.append(Image(name, quat, translation, camera_id, point_ids))
    return tuple(images)


def _text_points(path: Path) -> Points:
    ids, positions, colors = [], [], []
    for where, line in _lines(path):
        if words := line.split(maxsplit=7):
            try:
                number, *numbers = words[:7]
                ids.append(int(number))
                positions.append([_float(word) for word in numbers[:3]])
                red, green, blue = (int(word) for word in numbers[3:])
                colors.append((red, green, blue))
            except ValueError:
                raise InputError(f"{where}: expected POINT3D_ID X Y Z R G B ..., got {line[:80]!r}") from None
    return _stacked(ids, positions, colors)
