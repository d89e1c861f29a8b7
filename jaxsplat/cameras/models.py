"""The camera models by their names."""

from __future__ import annotations

from typing import Any, Protocol

import jax

from jaxsplat import _check
from jaxsplat.cameras import fisheye, ortho, pinhole
from jaxsplat.cameras.distorted import distorted_camera
from jaxsplat.cameras.intrinsics import Intrinsics
from jaxsplat.cameras.lens import Lens
from jaxsplat.types import CameraModel

AnyCameraModel = CameraModel | Lens


class Model(Protocol):
    """What a camera model can do, by components: a module of this package, or a `DistortedCamera`."""

    def project(self, x: jax.Array, y: jax.Array, z: jax.Array, k: Intrinsics) -> tuple[jax.Array, jax.Array]:
        """Maps camera-space points to pixels."""
        ...

    def jacobian(
        self, x: jax.Array, y: jax.Array, z: jax.Array, k: Intrinsics, width: int, height: int
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]:
        """Derivative of the pixels by the points, in two rows."""
        ...

    def ray(self, u: jax.Array, v: jax.Array, k: Intrinsics) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
        """Origin and unit direction of the ray through a pixel position."""
        ...

    def sees(self, x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
        """Whether a point lies in the domain of the model."""
        ...

    def depth(self, x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
        """Depth of a point."""
        ...


MODELS: dict[str, Model] = {"pinhole": pinhole, "ortho": ortho, "fisheye": fisheye}


def find_model(function: str, camera_model: AnyCameraModel, sizes: dict[str, Any], rank: int, axes: int) -> Model:
    """The functions of a camera model.

    Args:
      function: for messages.
      camera_model: a name, or a lens.
      sizes: of the letters that are known, C among them.
      rank: number of axes of [..., C].
      axes: of the points behind C.

    Returns:
      The model.

    Raises:
      ValueError: where the name is unknown, or the shape of a coefficient does not fit.
    """
    if isinstance(camera_model, Lens):
        return distorted_camera(function, camera_model, sizes, rank, axes)
    _check.choice(function, "camera_model", camera_model, tuple(MODELS))
    return MODELS[camera_model]
