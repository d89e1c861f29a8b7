"""A COLMAP reconstruction as a capture: the largest of its models, with pictures, points and what each view sees."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from jaxsplat.data.colmap_files import load_model, model_ending
from jaxsplat.data.colmap_model import Image, Model, Points
from jaxsplat.data.frame import Frame, Source, viewmat
from jaxsplat.data.locate import has_pictures, listed
from jaxsplat.io.files import InputError
from jaxsplat.io.ply import PointCloud, load_points

_DEPTH = 4
_PARENTS = 3
_UNIT_TOLERANCE = 1e-3


def find_models(folder: Path) -> list[Path]:
    """Folders of COLMAP models in a folder and below it, not deeper than four, in the order of their names."""
    found = []
    for place, names, _ in os.walk(folder):
        depth = len(Path(place).relative_to(folder).parts)
        # Folders of pictures can be huge, and hold no models.
        names[:] = sorted(n for n in names if not n.startswith((".", "images", "masks"))) if depth < _DEPTH else []
        if model_ending(Path(place)) is not None:
            found.append(Path(place))
    return found


def load_colmap(folder: Path) -> Source:
    """Reads the largest COLMAP model of a folder; of equally large ones the least nested, then the first by name.

    Args:
      folder: of the capture, or of the model itself; the pictures are in `images` (or `images_2` ..., or `input`)
        beside the model or up to three folders above it.

    Returns:
      The views and the points.

    Raises:
      InputError: where no model is found or it cannot be read.

    Example:
      >>> load_colmap(Path("castle")).frames[0].name
      '100_7100.JPG'
    """
    models = {path: load_model(path) for path in find_models(folder)}
    if not models:
        raise InputError(f"{folder}: holds no COLMAP model (cameras and images, .bin or .txt)")
    ranked = sorted(models, key=lambda path: (-len(models[path].images), len(path.parts), path.as_posix()))
    chosen, model = ranked[0], models[ranked[0]]
    if not model.images:
        raise InputError(f"{chosen}: the COLMAP model has no images")
    notes = []
    if len(ranked) > 1:
        sizes = ", ".join(f"{_relative(path, folder)} ({len(models[path].images)} images)" for path in ranked)
        notes.append(f"{len(ranked)} COLMAP models are here: {sizes}. The first of these is used.")
    points, cloud = _points(chosen, model.points, notes)
    frames = _frames(chosen, model, points, _picture_folder(folder, chosen, model), notes)
    binary = "binary" if model_ending(chosen) == ".bin" else "text"
    return Source(f"COLMAP, {binary}, {_relative(chosen, folder)}", chosen, frames, cloud, tuple(notes))


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path != folder else path.name


def _picture_folder(folder: Path, model_folder: Path, model: Model) -> Path:
    """Where the names of the images begin."""
    names = [Path(image.name) for image in model.images]
    below = [p for p in model_folder.parents if p.is_relative_to(folder)]
    roots = [model_folder, *below] if below else [model_folder, *model_folder.parents[:_PARENTS]]
    for root in reversed(roots) if below else roots:
        for sub in ("images", "input", "."):
            if has_pictures(root / sub, names):
                return root / sub
    return folder / "images"


def _points(folder: Path, points: Points | None, notes: list[str]) -> tuple[Points | None, PointCloud | None]:
    """Points that can be used, with and without their ids."""
    if points is None:
        if not (folder / "points3D.ply").is_file():
            notes.append("The COLMAP model has no file of points; random points will be used.")
            return None, None
        return None, load_points(folder / "points3D.ply")
    finite = np.isfinite(points.positions).all(1)
    if not finite.all():
        notes.append(f"{int((~finite).sum())} of {len(points.ids)} points are not finite and left out.")
        points = Points(*(column[finite] for column in points))
    if not finite.any():
        notes.append("The COLMAP model has no points; random points will be used.")
        return None, None
    points = Points(*(column[np.argsort(points.ids, kind="stable")] for column in points))
    return points, PointCloud(points.positions.astype(np.float32), points.colors.astype(np.float32) / 255.0)


def _frames(folder: Path, model: Model, points: Points | None, pictures: Path, notes: list[str]) -> tuple[Frame, ...]:
    """The usable views; notes say what was left out."""
    frames, badly_posed, unknown_camera = [], [], []
    for image in model.images:
        where = f"{folder}: image {image.name!r}"
        if image.camera_id not in model.cameras:
            raise InputError(f"{where}: there is no camera {image.camera_id}, only {sorted(model.cameras)[:20]}")
        camera = model.cameras[image.camera_id]
        rotation = _rotation(image.quat)
        if camera is None:
            unknown_camera.append(image.name)
        elif rotation is None or not np.isfinite(image.translation).all():
            badly_posed.append(image.name)
        else:
            matrix = viewmat(rotation, -rotation.T @ image.translation)
            seen = None if points is None else _seen(points, image)
            frames.append(Frame(image.name, pictures / image.name, matrix, camera, where, seen=seen))
    bad_cameras = [str(number) for number, camera in model.cameras.items() if camera is None]
    if bad_cameras:
        notes.append(
            f"{len(bad_cameras)} of {len(model.cameras)} cameras hold values that cannot be used (camera "
            f"{listed(bad_cameras)}); their {len(unknown_camera)} images are left out: {listed(unknown_camera)}."
        )
    if badly_posed:
        notes.append(
            f"{len(badly_posed)} of {len(model.images)} images have no valid pose (no unit quaternion, or values "
            f"that are not finite) and are left out: {listed(badly_posed)}."
        )
    if not frames:
        raise InputError(f"{folder}: none of the {len(model.images)} images can be used. " + " ".join(notes))
    return tuple(frames)


def _rotation(quat: np.ndarray) -> np.ndarray | None:
    """[3, 3] of a unit quaternion w, x, y, z; None where it is none."""
    norm = float(np.linalg.norm(quat))
    if not abs(norm - 1.0) < _UNIT_TOLERANCE:
        return None
    w, x, y, z = quat / norm
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + 2.0 * (w * cross + cross @ cross)


def _seen(points: Points, image: Image) -> np.ndarray:
    """Indices of the points that an image shows, each once; points are sorted by their ids."""
    wanted = np.unique(image.point_ids[image.point_ids >= 0])
    place = np.minimum(np.searchsorted(points.ids, wanted), len(points.ids) - 1)
    return place[points.ids[place] == wanted]
