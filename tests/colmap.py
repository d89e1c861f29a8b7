"""Writes COLMAP models as its documentation lays them out, independently of the reader."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image
from scipy.spatial.transform import Rotation

from tests.train.scenes import look_at_origin


class WrittenImage(NamedTuple):
    """An image record: `features` are triples x, y, point id."""

    name: str
    quat: tuple[float, ...]
    translation: tuple[float, ...]
    camera: int = 1
    features: tuple[tuple[float, float, int], ...] = ()


CAMERAS = {1: (1, "PINHOLE", 24, 20, (24.0, 24.0, 12.0, 10.0))}
"""Id: number and name of the model, width, height, parameters."""


def orbit(names: list[str], camera: int = 1, features: tuple = ()) -> list[WrittenImage]:
    """Images on a circle that look at the origin."""
    images = []
    for i, name in enumerate(names):
        pose = np.linalg.inv(look_at_origin(2 * np.pi * i / len(names)) @ np.diag([1.0, -1.0, -1.0, 1.0]))
        x, y, z, w = Rotation.from_matrix(pose[:3, :3]).as_quat()
        images.append(WrittenImage(name, (w, x, y, z), tuple(pose[:3, 3]), camera, features))
    return images


def write_pictures(folder: Path, names: list[str], size: tuple[int, int] = (24, 20)) -> Path:
    """A picture of its own for each name: red counts them from 1."""
    for i, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        form = "PNG" if name.lower().endswith("png") else "JPEG"
        Image.new("RGB", size, (10 * (i + 1), 80, 160)).save(folder / name, format=form)
    return folder


def write_model(folder: Path, *, images=None, cameras=None, points=None, binary: bool = True) -> Path:
    """Writes a model; by default ten images on a circle, one camera, one point. Points are id: x, y, z."""
    folder.mkdir(parents=True, exist_ok=True)
    images = orbit([f"{i}.png" for i in range(10)]) if images is None else images
    cameras = CAMERAS if cameras is None else cameras
    points = {1: (0.0, 0.0, 0.0)} if points is None else points
    (_write_binary if binary else _write_text)(folder, images, cameras, points)
    return folder


def _write_binary(folder: Path, images, cameras, points) -> None:
    parts = [struct.pack("<Q", len(cameras))]
    for number, (model, _, width, height, values) in cameras.items():
        parts.append(struct.pack(f"<iiQQ{len(values)}d", number, model, width, height, *values))
    (folder / "cameras.bin").write_bytes(b"".join(parts))
    parts = [struct.pack("<Q", len(images))]
    for i, image in enumerate(images):
        parts.append(struct.pack("<i7di", 100 - i, *image.quat, *image.translation, image.camera))
        parts.append(image.name.encode() + b"\0" + struct.pack("<Q", len(image.features)))
        parts += [struct.pack("<ddq", *feature) for feature in image.features]
    (folder / "images.bin").write_bytes(b"".join(parts))
    parts = [struct.pack("<Q", len(points))]
    for number, position in points.items():
        parts.append(struct.pack("<Q3d3BdQ", number, *position, 255, 0, 51, 0.5, 2) + struct.pack("<4i", 1, 2, 3, 4))
    (folder / "points3D.bin").write_bytes(b"".join(parts))


def _write_text(folder: Path, images, cameras, points) -> None:
    def line(*values) -> str:
        return " ".join(v if isinstance(v, str) else f"{v:.17g}" for v in values) + "\n"

    rows = [line(n, name, w, h, *values) for n, (_, name, w, h, values) in cameras.items()]
    (folder / "cameras.txt").write_text("# Camera list\n" + "".join(rows))
    rows = []
    for i, image in enumerate(images):
        rows.append(line(100 - i, *image.quat, *image.translation, image.camera, image.name))
        rows.append(line(*(value for feature in image.features for value in feature)))
    (folder / "images.txt").write_text("# Image list\n" + "".join(rows), encoding="utf-8")
    rows = [line(number, *position, 255, 0, 51, 0.5, 1, 2, 3, 4) for number, position in points.items()]
    (folder / "points3D.txt").write_text("# Points\n" + "".join(rows))
