"""A capture: photographs with known cameras, as arrays ready for training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxsplat.data.transforms import Frame, Transforms, load_transforms
from jaxsplat.data.undistort import undistort, undistorted_intrinsics
from jaxsplat.io.files import InputError
from jaxsplat.io.images import composite, downscaled, image_size, load_image
from jaxsplat.io.ply import PointCloud, load_points

HOLD_OUT_EVERY = 8
"""Every 8th view by name is kept out of training, the field's habit."""

SMALLEST = 8
"""Least width and height of a picture to learn from, in pixels."""

_NAMES_SHOWN = 20


class Cameras(NamedTuple):
    """Where pictures are taken from.

    Attributes:
      names: of the views, sorted.
      viewmats: [V, 4, 4] float32 world to camera, OpenCV axes.
      Ks: [V, 3, 3] float32 intrinsics in pixels.
      width: in pixels, of every view.
      height: in pixels, of every view.
    """

    names: tuple[str, ...]
    viewmats: np.ndarray
    Ks: np.ndarray
    width: int
    height: int


@dataclasses.dataclass(frozen=True)
class Capture:
    """Photographs of a scene, without lens distortion.

    Attributes:
      cameras: one view a photograph.
      images: [V, H, W, 3] uint8; transparent pictures are put on `background`.
      held_out: [V] bool, the views that are for evaluation only.
      points: sparse points of the scene, or None.
      background: [3] float32 colour in 0..1 behind the scene.
      notes: what the user should know about the loading, a sentence each.
    """

    cameras: Cameras
    images: np.ndarray
    held_out: np.ndarray
    points: PointCloud | None
    background: np.ndarray
    notes: tuple[str, ...]


def load_capture(
    path: Path | str, *, downscale: int = 1, background: tuple[float, float, float] | None = None
) -> Capture:
    """Loads a folder with transforms.json, or with Blender's transforms_train.json and transforms_test.json.

    Lens distortion is removed at full size: a picture keeps its size, its focal length is zoomed so that every pixel
    is known. Then the picture is shrunk. Listed pictures that are missing or unreadable are left out, and noted.

    Args:
      path: the folder, or the .json file.
      downscale: integer factor by which the pictures are shrunk.
      background: colour in 0..1 behind transparent pictures; None means white where there are any, otherwise black.

    Returns:
      The capture, views sorted by name. Held out is every 8th, or the frames of transforms_test.json.

    Raises:
      InputError: naming the file and the field.

    Example:
      >>> capture = load_capture("captures/fox", downscale=2)
      >>> capture.images.shape
      (50, 480, 270, 3)
    """
    if downscale < 1:
        raise InputError(f"downscale must be at least 1, got {downscale}")
    files = find_transforms(path)
    sources = [load_transforms(file) for file in files]
    notes: list[str] = []
    pairs = [(frame, held_out) for held_out, source in enumerate(sources) for frame in source.frames]
    pairs.sort(key=lambda pair: pair[0].name)
    views, pairs = _load_views(pairs, downscale, background, notes, files[0])
    pictures = [view.picture for view in views]
    if background is None:
        background = (1.0, 1.0, 1.0) if any(view.transparent for view in views) else (0.0, 0.0, 0.0)
    if len(sources) > 1:
        held_out = np.array([bool(flag) for _, flag in pairs])
    else:
        held_out = np.arange(len(views)) % HOLD_OUT_EVERY == 0
    training = int((~held_out).sum())
    if training < 2:
        raise InputError(
            f"{files[0]}: {len(views)} readable images leave {training} for training, at least 2 are needed"
        )
    if not any(picture.any() for picture in pictures):
        raise InputError(f"{files[0]}: every pixel of all {len(pictures)} images is black")
    cameras = _cameras([frame for frame, _ in pairs], [view.K for view in views], pictures[0].shape)
    points = _points(sources, notes)
    return Capture(cameras, np.stack(pictures), held_out, points, np.array(background, np.float32), tuple(notes))


def load_cameras(path: Path | str, *, downscale: int = 1) -> Cameras:
    """Reads only the cameras of a capture, exactly as `load_capture` would give them.

    Args:
      path: the folder, or the .json file. Where a picture does not exist, the file must give w and h.
      downscale: integer factor by which the pictures are shrunk.

    Returns:
      The cameras sorted by name.

    Raises:
      InputError: naming the file and the field.

    Example:
      >>> load_cameras("captures/fox").viewmats.shape
      (67, 4, 4)
    """
    frames = sorted((f for file in find_transforms(path) for f in load_transforms(file).frames), key=lambda f: f.name)
    Ks, sizes = [], set()
    for frame in frames:
        if frame.path.is_file():
            width, height = image_size(frame.path)
        elif "w" in frame.settings and "h" in frame.settings:
            width, height = int(frame.settings["w"]), int(frame.settings["h"])
        else:
            raise InputError(f"{frame.where}: needs the fields 'w' and 'h', or the image file")
        small = (max(width // downscale, 1), max(height // downscale, 1))
        sizes.add(small)
        Ks.append(_scaled(_pinhole(frame, width, height), small[0] / width, small[1] / height))
    if len(sizes) > 1:
        raise InputError(f"{path}: cameras of different sizes: {sorted(sizes)}")
    width, height = sizes.pop()
    return _cameras(frames, Ks, (height, width, 3))


def find_transforms(path: Path | str) -> list[Path]:
    """The transforms file of a capture; two, for training and for testing, in Blender's layout."""
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InputError(f"{path}: no such file or folder")
    if (path / "transforms.json").is_file():
        return [path / "transforms.json"]
    if (path / "transforms_train.json").is_file():
        return [p for p in (path / "transforms_train.json", path / "transforms_test.json") if p.is_file()]
    if not any(path.iterdir()):
        raise InputError(f"{path}: the folder is empty")
    raise InputError(f"{path}: holds neither transforms.json nor transforms_train.json")


class _View(NamedTuple):
    picture: np.ndarray
    K: np.ndarray
    size: tuple[int, int]
    transparent: bool


def _load_views(
    pairs: list[tuple[Frame, int]],
    downscale: int,
    background: tuple[float, float, float] | None,
    notes: list[str],
    file: Path,
) -> tuple[list[_View], list[tuple[Frame, int]]]:
    """The views whose picture can be read, and their frames; notes say what was left out."""
    views, kept, missing, unreadable = [], [], [], []
    for frame, flag in pairs:
        if not frame.path.is_file():
            missing.append(frame.name)
            continue
        try:
            pixels = load_image(frame.path)
        except InputError:
            unreadable.append(frame.name)
            continue
        views.append(_view(frame, pixels, downscale, background))
        kept.append((frame, flag))
        if views[-1].size != views[0].size:
            shown = [
                f"{f.name} is {v.size[0]}x{v.size[1]}" for (f, _), v in ((kept[0], views[0]), (kept[-1], views[-1]))
            ]
            raise InputError(f"{file}: images of different sizes: {shown[0]}, {shown[1]}")
    for names, problem in ((missing, "missing"), (unreadable, "unreadable")):
        if names:
            notes.append(f"{len(names)} of {len(pairs)} listed images are {problem} and left out: {_listed(names)}.")
    if not views:
        raise InputError(f"{file}: none of the {len(pairs)} listed images can be used. " + " ".join(notes))
    notes.extend(_camera_notes(kept[0][0], views[0]))
    return views, kept


def _view(frame: Frame, pixels: np.ndarray, downscale: int, background: tuple[float, float, float] | None) -> _View:
    height, width = pixels.shape[:2]
    transparent = pixels.shape[-1] == 4 and bool((pixels[..., 3] < 255).any())
    pixels = composite(pixels, np.array(background if background is not None else (1.0, 1.0, 1.0)))
    if min(width, height) < SMALLEST * downscale:
        raise InputError(
            f"{frame.where}: downscale {downscale} leaves less than {SMALLEST} pixels of a picture of {width}x{height}"
        )
    pinhole = _pinhole(frame, width, height)
    picture = downscaled(undistort(pixels, frame.intrinsics(width, height), frame.distortion), downscale)
    K = _scaled(pinhole, picture.shape[1] / width, picture.shape[0] / height)
    return _View(picture, K, (width, height), transparent)


def _camera_notes(frame: Frame, view: _View) -> list[str]:
    width, height = view.size
    notes = []
    declared = (frame.settings.get("w", width), frame.settings.get("h", height))
    if declared != view.size:
        notes.append(f"The images are {width}x{height}, declared {declared[0]:g}x{declared[1]:g}: intrinsics scaled.")
    if any(frame.distortion):
        zoom = view.K[0, 0] / (frame.intrinsics(width, height)[0, 0] * view.picture.shape[1] / width)
        notes.append(
            f"Lens distortion removed; the focal length is zoomed by {zoom:.4f}, so that every pixel is known."
        )
    return notes


def _pinhole(frame: Frame, width: int, height: int) -> np.ndarray:
    try:
        return undistorted_intrinsics(frame.intrinsics(width, height), frame.distortion, width, height)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{frame.where}: {error}") from None


def _scaled(K: np.ndarray, scale_x: float, scale_y: float) -> np.ndarray:
    return np.diag([scale_x, scale_y, 1.0]) @ K


def _cameras(frames: list[Frame], Ks: list[np.ndarray], shape: tuple[int, ...]) -> Cameras:
    viewmats = np.stack([frame.viewmat for frame in frames]).astype(np.float32)
    names = tuple(frame.name for frame in frames)
    return Cameras(names, viewmats, np.stack(Ks).astype(np.float32), shape[1], shape[0])


def _points(sources: list[Transforms], notes: list[str]) -> PointCloud | None:
    path = sources[0].points_path
    if path is None:
        return None
    if not path.is_file():
        notes.append(f"The point cloud {path.name} is missing; random points will be used.")
        return None
    cloud = load_points(path)
    if len(cloud.points) == 0:
        notes.append(f"The point cloud {path.name} is empty; random points will be used.")
        return None
    return cloud


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
