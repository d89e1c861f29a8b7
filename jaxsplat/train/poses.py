"""Cameras that are learned along with the scene: small corrections of poses and intrinsics."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat import _check, _linalg


@dataclasses.dataclass(frozen=True)
class CameraRefinement:
    """Settings of what is learned about the cameras. All rates fall to a hundredth over the run.

    Attributes:
      pose_rate: learning rate of rotations (radians) and places (units of the scene's size); 0 keeps them. Usual: 1e-4.
      intrinsics_rate: of the focal lengths (relative) and the principal point (fraction of the picture), which all
        views share; 0 keeps them. Usual: 1e-4.
      decay: weight of the squared corrections in the loss.
      align_steps: steps in which each held-out camera is then moved to where the scene shows its photograph best, for
        a second set of figures; 0 for none. Usual: 100.
    """

    pose_rate: float = 0.0
    intrinsics_rate: float = 0.0
    decay: float = 1e-6
    align_steps: int = 0

    def on(self) -> bool:
        """Whether anything is learned."""
        return self.pose_rate > 0 or self.intrinsics_rate > 0


class CameraDeltas(NamedTuple):
    """Corrections of cameras; zeros change nothing.

    Attributes:
      rotations: [V, 3] axis times angle in radians, about the axes of each camera.
      translations: [V, 3] along the axes of each camera, in world units.
      log_focals: [2] logarithms of the factors on fx and fy.
      centers: [2] shift of the principal point, as a fraction of width and height.
    """

    rotations: jax.Array
    translations: jax.Array
    log_focals: jax.Array
    centers: jax.Array


def no_deltas(views: int) -> CameraDeltas:
    """Corrections of so many views that change nothing."""
    return CameraDeltas(jnp.zeros((views, 3)), jnp.zeros((views, 3)), jnp.zeros(2), jnp.zeros(2))


def rotation_from_axis_angle(vectors: jax.Array) -> jax.Array:
    """Rodrigues' formula: the exponential of so(3), with finite gradients at zero.

    Args:
      vectors: [..., 3] axis times angle, in radians.

    Returns:
      [..., 3, 3] rotation matrices.

    Example:
      >>> rotation_from_axis_angle(jnp.zeros(3))[0]
      Array([1., 0., 0.], dtype=float32)
    """
    _check.shapes("rotation_from_axis_angle", vectors=(vectors, "... 3"))
    x, y, z = vectors[..., 0], vectors[..., 1], vectors[..., 2]
    first, second = _linalg.rodrigues(x * x + y * y + z * z)
    zero = jnp.zeros_like(x)
    cross = jnp.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(*x.shape, 3, 3)
    identity = jnp.broadcast_to(jnp.eye(3, dtype=vectors.dtype), cross.shape)
    return identity + first[..., None, None] * cross + second[..., None, None] * (cross @ cross)


def refined_viewmats(viewmats: jax.Array, rotations: jax.Array, translations: jax.Array) -> jax.Array:
    """Moves cameras in their own frames: the rigid motion [exp(w) | v] times the view matrix.

    Args:
      viewmats: [B, 4, 4] world to camera.
      rotations: [B, 3] axis times angle in radians.
      translations: [B, 3] in world units.

    Returns:
      [B, 4, 4] world to camera.

    Example:
      >>> refined_viewmats(viewmats, jnp.zeros((1, 3)), jnp.array([[0.0, 0.0, 0.1]]))[0, 2, 3] - viewmats[0, 2, 3]
      Array(0.1, dtype=float32)
    """
    _check.shapes(
        "refined_viewmats",
        viewmats=(viewmats, "B 4 4"),
        rotations=(rotations, "B 3"),
        translations=(translations, "B 3"),
    )
    # [R | t] becomes [exp(w) R | exp(w) t + v]; the last row stays.
    top = rotation_from_axis_angle(rotations) @ viewmats[:, :3, :]
    top = top.at[:, :, 3].add(translations)
    return jnp.concatenate([top, viewmats[:, 3:, :]], 1)


def refined_intrinsics(
    Ks: jax.Array, log_focals: jax.Array, centers: jax.Array, *, width: int, height: int
) -> jax.Array:
    """Scales the focal lengths and shifts the principal point.

    Args:
      Ks: [B, 3, 3] in pixels.
      log_focals: [2] logarithms of the factors on fx and fy.
      centers: [2] shift as a fraction of width and height.
      width: of the pictures, in pixels.
      height: of the pictures, in pixels.

    Returns:
      [B, 3, 3] in pixels.

    Example:
      >>> refined_intrinsics(Ks, jnp.log(jnp.array([2.0, 2.0])), jnp.zeros(2), width=64, height=48)[0, 0, 0]
    """
    _check.shapes("refined_intrinsics", Ks=(Ks, "B 3 3"), log_focals=(log_focals, "2"), centers=(centers, "2"))
    factors = jnp.ones((1, 3, 3), Ks.dtype).at[:, 0, 0].set(jnp.exp(log_focals[0]))
    factors = factors.at[:, 1, 1].set(jnp.exp(log_focals[1]))
    shifts = jnp.zeros((1, 3, 3), Ks.dtype).at[:, 0, 2].set(centers[0] * width)
    return Ks * factors + shifts.at[:, 1, 2].set(centers[1] * height)
