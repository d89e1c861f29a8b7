"""Plain C++ loops for what surrounds the rasterizer, compiled for this machine: a measure for XLA and the kernels."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import native, scenes
from jaxsplat import _constants as const
from jaxsplat import _ffi, _similarity, losses

SOURCE = Path(__file__).with_suffix(".cc")


class ProjectionGradient(NamedTuple):
    """Sum of all that a projection gives, and its gradients: means [N, 3], quats [N, 4], scales [N, 3]."""

    total: float
    means: scenes.F32
    quats: scenes.F32
    scales: scenes.F32


def projection_gradient(scene: scenes.Scene, out: ProjectionGradient | None = None) -> ProjectionGradient:
    """Project splats and differentiate the sum of their means2d, conics and depths, with one thread.

    Args:
      scene: whose quats are of unit length.
      out: an earlier result, whose arrays are written again.

    Returns:
      The sum and its gradients.
    """
    if out is None:
        out = ProjectionGradient(0.0, *(np.empty_like(x) for x in (scene.means, scene.quats, scene.scales)))
    (fx, _, cx), (_, fy, cy) = scene.K[:2]
    # The Jacobian is taken no further outside.
    border_x, border_y = const.CLAMP_MARGIN * scene.width / fx, const.CLAMP_MARGIN * scene.height / fy
    limits = (-cx / fx - border_x, (scene.width - cx) / fx + border_x)
    limits += (-cy / fy - border_y, (scene.height - cy) / fy + border_y)
    constants = [np.asarray(values, np.float32) for values in ((fx, fy, cx, cy), limits, (const.EPS2D,))]
    arrays = (scene.means, scene.quats, scene.scales, scene.viewmat, *constants, *out[1:])
    function = _library().projection_gradient
    function.restype = ctypes.c_double
    return out._replace(total=function(*native.arguments(len(scene.means), *arrays)))


def ssim_gradient(x: scenes.F32, y: scenes.F32, out: scenes.F32 | None = None) -> tuple[float, scenes.F32]:
    """Compare two pictures [H, W, D] by their mean SSIM, with one thread.

    Args:
      x: picture.
      y: picture.
      out: [H, W, D] where the gradient is written.

    Returns:
      The mean, and its gradient with respect to x.
    """
    out = np.empty_like(x) if out is None else out
    window = np.asarray(_similarity.WINDOWS["gaussian"], np.float32)
    settings = np.asarray((losses.SSIM_C1, losses.SSIM_C2), np.float32)
    function = _library().ssim_gradient
    function.restype = ctypes.c_double
    return function(*native.arguments(*x.shape, x, y, window, len(window) // 2, settings, out)), out


def _library() -> ctypes.CDLL:
    return native.load(SOURCE, "-O3", *native.isa_flags(_ffi.instruction_set()))
