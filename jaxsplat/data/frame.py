"""What every kind of capture is read into: one frame a photograph, before any picture is opened."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxsplat.cameras import Lens
from jaxsplat.data.undistort import PINHOLE
from jaxsplat.io.files import InputError
from jaxsplat.io.ply import PointCloud

_ORTHONORMAL_TOLERANCE = 0.01


@dataclasses.dataclass(frozen=True)
class Camera:
    """Intrinsics as a file declares them; what it leaves out is None.

    Attributes:
      fl_x: focal length along x, in pixels of a picture of size w x h.
      fl_y: along y; by default the pixels are square.
      cx: principal point along x, in pixels; by default the middle.
      cy: along y.
      w: width in pixels that the numbers above speak of; by default that of the picture.
      h: height.
      camera_angle_x: horizontal field of view in radians, used where fl_x is missing.
      camera_angle_y: vertical field of view, used where fl_x and fl_y are missing.
      lens: distortion.
    """

    fl_x: float | None = None
    fl_y: float | None = None
    cx: float | None = None
    cy: float | None = None
    w: float | None = None
    h: float | None = None
    camera_angle_x: float | None = None
    camera_angle_y: float | None = None
    lens: Lens = PINHOLE

    def intrinsics(self, width: int, height: int) -> np.ndarray:
        """K [3, 3] for a picture of this size, float64; what is declared for another size is scaled, per axis."""
        scale_x = width / (self.w or width)
        scale_y = height / (self.h or height)
        if self.fl_x is not None:
            fl_x = self.fl_x * scale_x
        elif self.camera_angle_x is not None:
            fl_x = 0.5 * width / math.tan(0.5 * self.camera_angle_x)
        else:
            raise InputError("needs fl_x or camera_angle_x")
        if self.fl_y is not None:
            fl_y = self.fl_y * scale_y
        elif self.camera_angle_y is not None and self.fl_x is None:
            fl_y = 0.5 * height / math.tan(0.5 * self.camera_angle_y)
        else:
            fl_y = fl_x / scale_x * scale_y  # square pixels in the size that the file speaks of
        cx = self.cx * scale_x if self.cx is not None else 0.5 * width
        cy = self.cy * scale_y if self.cy is not None else 0.5 * height
        return np.array([[fl_x, 0.0, cx], [0.0, fl_y, cy], [0.0, 0.0, 1.0]])


@dataclasses.dataclass(frozen=True)
class Frame:
    """One photograph as a file describes it.

    Attributes:
      name: identifies and sorts the view.
      path: where the picture should be; it may not exist, or under another ending.
      viewmat: [4, 4] world to camera, OpenCV axes, float64.
      camera: intrinsics and lens.
      where: for messages.
      mask_path: its mask, where the file names one.
      held_out: whether it is for evaluation only; None where the file does not say.
      seen: indices of the capture's points that the photograph shows; None where the file does not say.
      depth: file of its depths along the optical axis, and the world units of one step in it; None where there is none.
    """

    name: str
    path: Path
    viewmat: np.ndarray
    camera: Camera
    where: str
    mask_path: Path | None = None
    held_out: bool | None = None
    seen: np.ndarray | None = None
    depth: tuple[Path, float] | None = None


class Source(NamedTuple):
    """What the files of a capture say.

    Attributes:
      kind: of the capture, in words.
      path: the file, or the folder of the files.
      frames: in the order of the file.
      points: sparse points, or None.
      notes: what the user should know, a sentence each.
    """

    kind: str
    path: Path
    frames: tuple[Frame, ...]
    points: PointCloud | None
    notes: tuple[str, ...] = ()


def given_coefficients(values: tuple[float, ...]) -> tuple[float, ...]:
    """Coefficients of a lens as a file gives them, none where all are zero: what is left out costs nothing."""
    return values if any(values) else ()


def viewmat_from_opengl(where: str, value: object) -> np.ndarray:
    """World to camera in OpenCV axes (y down, z forward) from camera to world in OpenGL axes (y up, z back).

    Args:
      where: for messages.
      value: nested lists or an array, 4x4 or 3x4.

    Returns:
      [4, 4] float64; rounding noise of the rotation is removed.

    Raises:
      InputError: where the value is no rigid motion: not finite, a reflection, stretched.
    """
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
    return viewmat((left @ right).T, matrix[:3, 3])


def viewmat(rotation: np.ndarray, center: np.ndarray) -> np.ndarray:
    """[4, 4] world to camera from the rotation [3, 3] world to camera and the place [3] of the camera."""
    matrix = np.eye(4)
    matrix[:3, :3] = rotation
    matrix[:3, 3] = -rotation @ center
    return matrix
