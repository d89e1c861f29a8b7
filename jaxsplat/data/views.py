"""The views that a capture really has: frames of its files put together with the pictures that exist."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxsplat.cameras import LENS_FIELDS, Lens
from jaxsplat.data.frame import Frame, Source
from jaxsplat.data.locate import Finder, listed, locate, locate_mask
from jaxsplat.data.undistort import PINHOLE, undistorted_intrinsics
from jaxsplat.io.files import InputError
from jaxsplat.io.images import ImageHeader, image_header

SMALLEST = 8
"""Least width and height of a picture to learn from, in pixels."""

_PLACED = 1e-4
"""Error of the cameras' places, in units of their spread, that starts to blur pictures."""

_SIDES_APART = 1.05
"""Ratio of the scales along x and y from which they are not due to rounding."""


class View(NamedTuple):
    """A frame and its picture.

    Attributes:
      frame: what the capture's files say.
      path: of the picture.
      mask_path: of its mask, or None.
      header: of the picture.
      downscale: factor by which it is to be shrunk.
      K: [3, 3] intrinsics of the shrunken picture, float64; without distortion where that is removed.
      size: (width, height) of the same.
      lens: what stays of the distortion; None where it is removed, or no view of the capture has any.
    """

    frame: Frame
    path: Path
    mask_path: Path | None
    header: ImageHeader
    downscale: int
    K: np.ndarray
    size: tuple[int, int]
    lens: Lens | None = None


def find_views(
    source: Source, *, downscale: int, need_pictures: bool, undistort: bool = True
) -> tuple[list[View], list[str]]:
    """Finds the pictures of a capture, by name, and reads their sizes.

    Args:
      source: what the files say.
      downscale: integer factor, at least 1.
      undistort: remove lens distortion. It is also removed where the views' lenses are of different kinds.
      need_pictures: leave out views without a picture; otherwise the size that the file declares is taken for them.

    Returns:
      The views sorted by name, and notes about what was left out.

    Raises:
      InputError: where no picture is left, or one is too small.
    """
    frames = sorted(source.frames, key=lambda frame: frame.name)
    lenses = {frame.camera.lens for frame in frames}
    keep = not undistort and lenses != {PINHOLE} and len({(lens.projection, lens.radial_first) for lens in lenses}) == 1
    finder = Finder()
    located = locate([frame.path for frame in frames], finder, downscale=downscale)
    notes = [located.note] if located.note else []
    views, missing, unreadable = [], [], []
    for frame, path in zip(frames, located.paths, strict=True):
        header = None
        if path is None:
            missing.append(frame.name)
        else:
            try:
                header = image_header(path)
            except InputError:
                unreadable.append(frame.name)
        if header is not None and path is not None:
            views.append(_view(frame, path, _mask(frame, path, finder), header, located.downscale, keep))
        elif not need_pictures:
            views.append(_view(frame, frame.path, None, _declared(frame), downscale, keep))
    for names, problem in ((missing, "missing"), (unreadable, "unreadable")):
        if names:
            notes.append(f"{len(names)} of {len(frames)} listed images are {problem} and left out: {listed(names)}.")
    if not views:
        raise InputError(f"{source.path}: none of the {len(frames)} listed images can be used. " + " ".join(notes))
    return views, notes + _notes(views) + _distance_notes(views)


def canvas_size(views: Sequence[View]) -> tuple[int, int]:
    """(width, height) that holds the picture of every view."""
    return max(view.size[0] for view in views), max(view.size[1] for view in views)


def _mask(frame: Frame, path: Path, finder: Finder) -> Path | None:
    if frame.mask_path is None:
        return locate_mask(path, finder)
    found = finder.find(frame.mask_path)
    if found is None:
        raise InputError(f"{frame.where}: the mask {frame.mask_path} is missing")
    return found


def _declared(frame: Frame) -> ImageHeader:
    if frame.camera.w is None or frame.camera.h is None:
        raise InputError(f"{frame.where}: needs the fields 'w' and 'h', or the image file")
    return ImageHeader(int(frame.camera.w), int(frame.camera.h), False)


def _view(frame: Frame, path: Path, mask_path: Path | None, header: ImageHeader, downscale: int, keep: bool) -> View:
    width, height = header.width, header.height
    small = (width // downscale, height // downscale)
    if min(small) < SMALLEST:
        raise InputError(
            f"{frame.where}: downscale {downscale} leaves less than {SMALLEST} pixels of a picture of {width}x{height}"
        )
    shrink = np.diag([small[0] / width, small[1] / height, 1.0])
    if keep:
        K = shrink @ frame.camera.intrinsics(width, height)
        return View(frame, path, mask_path, header, downscale, K, small, frame.camera.lens)
    try:
        pinhole = undistorted_intrinsics(frame.camera.intrinsics(width, height), frame.camera.lens, width, height)
    except ValueError as error:
        raise InputError(f"{frame.where}: {error}") from None
    return View(frame, path, mask_path, header, downscale, shrink @ pinhole, small)


def joined_lens(views: Sequence[View]) -> Lens | None:
    """One lens with coefficients [V, n], float32, for views that keep theirs; None where they do not."""
    lenses = [view.lens for view in views if view.lens is not None]
    if not lenses:
        return None
    fields = {}
    for field in LENS_FIELDS:
        values = [getattr(lens, field) for lens in lenses]
        longest = max(map(len, values))
        if longest:
            fields[field] = np.array([(*v, *(0.0,) * (longest - len(v))) for v in values], np.float32)
    return dataclasses.replace(lenses[0], **fields)


def _notes(views: list[View]) -> list[str]:
    """About sizes, lenses and masks; of several cameras the first speaks."""
    notes, first = [], views[0]
    width, height = first.header[:2]
    declared = (first.frame.camera.w or width, first.frame.camera.h or height)
    if declared != (width, height):
        scales = (width / declared[0], height / declared[1])
        turned = max(scales) / min(scales) > _SIDES_APART
        doubt = f", by {scales[0]:.3g} and {scales[1]:.3g}: are they turned or cropped?" if turned else "."
        notes.append(
            f"The images are {width}x{height}, declared {declared[0]:g}x{declared[1]:g}: intrinsics scaled{doubt}"
        )
    lens = first.frame.camera.lens
    if lens != PINHOLE and first.lens is None:
        zoom = first.K[0, 0] / (first.frame.camera.intrinsics(width, height)[0, 0] * first.size[0] / width)
        fisheye = "" if lens.projection == "perspective" else ", the fisheye picture made straight"
        notes.append(
            f"Lens distortion removed{fisheye}; the focal length is zoomed by {zoom:.4f}, so that every pixel is known."
        )
    sizes = Counter(view.size for view in views)
    if len(sizes) > 1:
        shown = listed([f"{count} of {w}x{h}" for (w, h), count in sizes.most_common()])
        canvas = canvas_size(views)
        notes.append(
            f"Images of different sizes: {shown}; they are padded to {canvas[0]}x{canvas[1]}, the rest masked."
        )
    masks = sum(view.mask_path is not None for view in views)
    if masks:
        notes.append(
            f"{masks} of {len(views)} images have a mask; what it hides counts neither in training nor in metrics."
        )
    return notes


def _distance_notes(views: list[View]) -> list[str]:
    """About captures in map coordinates, which single precision cannot hold."""
    centers = np.stack([-view.frame.viewmat[:3, :3].T @ view.frame.viewmat[:3, 3] for view in views])
    middle = np.median(centers, 0)
    spread = float(np.median(np.linalg.norm(centers - middle, axis=1)))
    error = float(np.spacing(np.float32(np.abs(middle).max())))
    if not 0 < spread * _PLACED < error:
        return []
    return [
        f"The cameras stand {np.abs(middle).max():.3g} units from the origin and {spread:.3g} apart: single precision "
        f"places them to {error:.2g} only. Move the capture to its origin."
    ]
