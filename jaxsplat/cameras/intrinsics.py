"""The numbers of a pinhole matrix, one array each."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax


class Intrinsics(NamedTuple):
    """The upper two rows of a camera matrix K, as separate arrays that broadcast against the points.

    Attributes:
      fx: K[0, 0], focal length along x in pixels.
      skew: K[0, 1].
      cx: K[0, 2], principal point along x in pixels.
      shear: K[1, 0], zero in every usual camera.
      fy: K[1, 1], focal length along y in pixels.
      cy: K[1, 2], principal point along y in pixels.
    """

    fx: jax.Array
    skew: jax.Array
    cx: jax.Array
    shear: jax.Array
    fy: jax.Array
    cy: jax.Array

    def pixels(self, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Pixel position of a point of the plane at distance 1."""
        return self.fx * x + self.skew * y + self.cx, self.shear * x + self.fy * y + self.cy

    def plane(self, u: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Point of the plane at distance 1 of a pixel position."""
        a, b = u - self.cx, v - self.cy
        inverse = 1 / (self.fx * self.fy - self.skew * self.shear)
        return (self.fy * a - self.skew * b) * inverse, (self.fx * b - self.shear * a) * inverse


_identity: Any = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
UNIT = Intrinsics(*_identity)
"""Of a camera whose pixels are the plane at distance 1."""


def split(Ks: jax.Array) -> Intrinsics:
    """Splits camera matrices [..., 3, 3] into arrays [...]. The last row is taken to be (0, 0, 1)."""
    return Intrinsics(*(Ks[..., i, j] for i in range(2) for j in range(3)))
