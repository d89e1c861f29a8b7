"""Flights: through the cameras, around the scene, or a spiral in front of it."""

from __future__ import annotations

from typing import Literal

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.spatial.transform import Rotation, RotationSpline

from jaxsplat.data.capture import Cameras
from jaxsplat.data.normalize import normalization
from jaxsplat.io.files import InputError

Flight = Literal["through", "ellipse", "spiral"]

_MOST_KEYS = 24
_TURNS = 2
"""Of the spiral."""


def camera_path(cameras: Cameras, frames: int, *, flight: Flight = "through") -> Cameras:
    """Makes the views of a flight.

    Args:
      cameras: at least one.
      frames: number of views.
      flight: "through" the cameras; on an "ellipse" that fits them, for captures that go around something; or on a
        "spiral" about their middle, for captures that face one way. The last two look at the point that the cameras
        look at, and end where they begin.

    Returns:
      Cameras named 0000, 0001 ... with the intrinsics of the first.

    Raises:
      InputError: for less than one frame.

    Example:
      >>> camera_path(load_cameras("captures/fox"), 120, flight="ellipse").viewmats.shape
      (120, 4, 4)
    """
    if frames < 1:
        raise InputError(f"a flight needs at least 1 frame, got {frames}")
    if flight == "through":
        return smooth_path(cameras, frames)
    viewmats = cameras.viewmats.astype(np.float64)
    rotations = viewmats[:, :3, :3].transpose(0, 2, 1)
    centers = -np.einsum("vij,vj->vi", rotations, viewmats[:, :3, 3])
    focus = normalization(viewmats).center
    if np.ptp(centers, 0).max() < _PARALLEL:  # all cameras at one point: it looks ahead as they do
        focus = centers[0] + rotations[:, :, 2].mean(0)
    up = -_unit(rotations[:, :, 1].mean(0))
    turn = 2 * np.pi * np.arange(frames)[:, None] / frames
    places = _ellipse(centers, up, turn) if flight == "ellipse" else _spiral(centers, rotations, turn)
    return _named(cameras, np.stack([_looking_at(place, focus, up) for place in places]))


def _ellipse(centers: np.ndarray, up: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Places on the ellipse, level with `up`, that has the spread of the centres along their principal axes."""
    middle = centers.mean(0)
    level = centers - middle
    level = level - (level @ up)[:, None] * up
    _, squared, axes = np.linalg.svd(level.T @ level)
    # A point that goes around an ellipse evenly has a root mean square of the half axis over the square root of two.
    radii = np.sqrt(2.0 * squared / len(centers))
    second = np.cross(up, axes[0])
    return middle + radii[0] * np.cos(turn) * axes[0] + radii[1] * np.sin(turn) * second


def _spiral(centers: np.ndarray, rotations: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Places that circle about the middle, twice, while they go forward and back, as far as the cameras are spread."""
    axes = Rotation.from_matrix(rotations).mean().as_matrix().T
    reach = np.abs((centers - centers.mean(0)) @ axes.T).mean(0)
    waves = np.concatenate([np.cos(_TURNS * turn), np.sin(_TURNS * turn), np.sin(turn)], 1)
    return centers.mean(0) + (reach * waves) @ axes


def _looking_at(place: np.ndarray, focus: np.ndarray, up: np.ndarray) -> np.ndarray:
    """World to camera, OpenCV axes."""
    forward = _unit(focus - place)
    right = np.cross(forward, up)
    if np.linalg.norm(right) < _PARALLEL:  # it looks straight up or down: any right will do
        right = np.cross(forward, np.eye(3)[np.abs(forward).argmin()])
    right = _unit(right)
    viewmat = np.eye(4)
    viewmat[:3, :3] = right, np.cross(forward, right), forward
    viewmat[:3, 3] = -viewmat[:3, :3] @ place
    return viewmat


_PARALLEL = 1e-6


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def _named(cameras: Cameras, viewmats: np.ndarray) -> Cameras:
    names = tuple(f"{i:04}" for i in range(len(viewmats)))
    Ks = np.tile(cameras.Ks[:1], (len(viewmats), 1, 1))
    return Cameras(names, viewmats.astype(np.float32), Ks, cameras.width, cameras.height)


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
    return _named(cameras, result)
