"""A smooth flight through cameras."""

from __future__ import annotations

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.spatial.transform import Rotation, RotationSpline

from jaxsplat.data.capture import Cameras

_MOST_KEYS = 24


def smooth_path(cameras: Cameras, frames: int) -> Cameras:
    """Flies through the cameras in the order of their names, at most 24 of them.

    Args:
      cameras: at least one.
      frames: number of views.

    Returns:
      Cameras named 0000, 0001 ... with the intrinsics of the first.

    Example:
      >>> smooth_path(load_cameras("captures/fox"), 120).viewmats.shape
      (120, 4, 4)
    """
    count = len(cameras.names)
    keys = np.unique(np.linspace(0, count - 1, min(count, _MOST_KEYS)).round().astype(int))
    viewmats = cameras.viewmats[keys].astype(np.float64)
    rotations = viewmats[:, :3, :3].transpose(0, 2, 1)
    centers = -np.einsum("vij,vj->vi", rotations, viewmats[:, :3, 3])
    result = np.tile(np.eye(4), (frames, 1, 1))
    if len(keys) == 1:
        result[:] = viewmats[0]
    else:
        times = np.linspace(0.0, len(keys) - 1.0, frames)
        turned = RotationSpline(np.arange(len(keys)), Rotation.from_matrix(rotations))(times).as_matrix()
        places = CubicSpline(np.arange(len(keys)), centers)(times)
        result[:, :3, :3] = turned.transpose(0, 2, 1)
        result[:, :3, 3] = -np.einsum("vji,vj->vi", turned, places)
    names = tuple(f"{i:04}" for i in range(frames))
    Ks = np.tile(cameras.Ks[:1], (frames, 1, 1))
    return Cameras(names, result.astype(np.float32), Ks, cameras.width, cameras.height)
