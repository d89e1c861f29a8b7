"""Camera models, one a file with the same three functions: `project`, `jacobian` and `ray`.

They take and return separate components, because XLA fuses those into one loop. Camera axes: +x right, +y down, +z
forward; pixel (x, y) has its centre at (x + .5, y + .5).
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat import _check
from jaxsplat.cameras import fisheye, ortho, pinhole
from jaxsplat.cameras.intrinsics import Intrinsics as Intrinsics
from jaxsplat.cameras.intrinsics import split as split
from jaxsplat.types import CameraModel

MODELS: dict[str, ModuleType] = {"pinhole": pinhole, "ortho": ortho, "fisheye": fisheye}


class Rays(NamedTuple):
    """Camera-space rays through the pixel centres.

    Attributes:
      origins: [..., C, H, W, 3] in world units.
      directions: [..., C, H, W, 3] of unit length. The point of depth z is origin + direction * z / direction_z.
    """

    origins: jax.Array
    directions: jax.Array


def camera_rays(Ks: jax.Array, *, width: int, height: int, camera_model: CameraModel = "pinhole") -> Rays:
    """Computes the camera-space ray through every pixel's centre, differentiable in `Ks`.

    Args:
      Ks: [..., C, 3, 3] camera matrices, in pixels.
      width: image width in pixels.
      height: image height in pixels.
      camera_model: "pinhole", "ortho" or "fisheye".

    Returns:
      `Rays`.

    Raises:
      ValueError: if a shape or the camera model is not one of those expected.

    Example:
      >>> Ks = jnp.array([[[10.0, 0.0, 1.5], [0.0, 10.0, 0.5], [0.0, 0.0, 1.0]]])
      >>> camera_rays(Ks, width=3, height=1).directions[0, 0, 1]
      Array([0., 0., 1.], dtype=float32)
    """
    _check.shapes("camera_rays", Ks=(Ks, "... C 3 3"))
    _check.floating("camera_rays", Ks=Ks)
    _check.positive_int("camera_rays", width=width, height=height)
    _check.choice("camera_rays", "camera_model", camera_model, tuple(MODELS))
    k = split(Ks[..., None, None, :, :])
    grid = (1,) * (Ks.ndim - 2)
    u = (jnp.arange(width, dtype=Ks.dtype) + 0.5).reshape(*grid, 1, width)
    v = (jnp.arange(height, dtype=Ks.dtype) + 0.5).reshape(*grid, height, 1)
    shape = (*Ks.shape[:-2], height, width)
    origin, direction = MODELS[camera_model].ray(u, v, k)
    stack = [jnp.stack([jnp.broadcast_to(part, shape) for part in vector], -1) for vector in (origin, direction)]
    return Rays(*stack)
