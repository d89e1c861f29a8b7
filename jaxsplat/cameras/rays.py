"""The rays through the pixels of a picture, in the world."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsplat import _check, _linalg
from jaxsplat.cameras.intrinsics import split
from jaxsplat.cameras.models import AnyCameraModel, find_model
from jaxsplat.cameras.pose import split_pose
from jaxsplat.cameras.shutter import Shutter, check_shutter, motion


def camera_rays(
    viewmats: jax.Array,
    Ks: jax.Array,
    *,
    width: int,
    height: int,
    camera_model: AnyCameraModel = "pinhole",
    shutter: Shutter | None = None,
) -> jax.Array:
    """Computes the ray through every pixel's centre, differentiable in every array.

    Args:
      viewmats: [..., C, 4, 4] world-to-camera matrices, OpenCV axes.
      Ks: [..., C, 3, 3] camera matrices, in pixels.
      width: image width in pixels.
      height: image height in pixels.
      camera_model: "pinhole", "ortho", "fisheye" or a `Lens`.
      shutter: how the lines are read out while the camera moves; None for all at once.

    Returns:
      [..., C, H, W, 6] origin and unit direction in the world. Zeros where the camera sees nothing.

    Raises:
      ValueError: if a shape or the camera model is not one of those expected.
      TypeError: if an array does not hold floating-point numbers.

    Example:
      >>> K = jnp.array([[[10.0, 0.0, 1.5], [0.0, 10.0, 0.5], [0.0, 0.0, 1.0]]])
      >>> camera_rays(jnp.eye(4)[None], K, width=3, height=1)[0, 0, 1]
      Array([0., 0., 0., 0., 0., 1.], dtype=float32)
    """
    name = "camera_rays"
    sizes = _check.shapes(name, viewmats=(viewmats, "... C 4 4"), Ks=(Ks, "... C 3 3"))
    _check.floating(name, viewmats=viewmats, Ks=Ks)
    _check.positive_int(name, width=width, height=height)
    rank = len(sizes["..."]) + 3
    shape = (*sizes["..."], sizes["C"], height, width)
    pose = split_pose(_linalg.lift(viewmats, rank), 2)
    k = split(_linalg.lift(Ks, rank)[..., None, None, :, :])
    u = (jnp.arange(width, dtype=Ks.dtype) + 0.5).reshape((1,) * (rank - 1) + (width,))
    v = (jnp.arange(height, dtype=Ks.dtype) + 0.5).reshape((1,) * (rank - 2) + (height, 1))
    model = find_model(name, camera_model, sizes, rank - 2, 2)
    origin, direction = model.ray(u, v, k)
    if shutter is not None:
        check_shutter(name, shutter, viewmats)
        moving = motion(pose, split_pose(_linalg.lift(shutter.viewmats_end, rank), 2))
        time = shutter.time(u, v, width, height)
        origin, direction = moving.earlier(origin, time), moving.turned_earlier(direction, time)
    origin, direction = pose.to_world(origin), _linalg.unit(*pose.turned_back(direction))
    there = sum(part * part for part in direction) > 0
    parts = (*(jnp.where(there, part, 0) for part in origin), *direction)
    return _linalg.interleave(*(jnp.broadcast_to(part, shape) for part in parts))
