"""Lenses: where on the sensor a ray falls, for the distortion models of OpenCV, COLMAP and nerfstudio at once."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

Projection = Literal["perspective", "equidistant", "field_of_view", "division", "unified"]

_TINY = 1e-12


class Lens(NamedTuple):
    """A projection, followed by polynomial distortion. All coefficients zero and "perspective" is a pinhole.

    Attributes:
      projection: "perspective" keeps x/z and y/z; "equidistant" makes the distance from the centre the angle to the
        axis; "field_of_view" is Devernay and Faugeras' atan(2 r tan(w / 2)) / w; "division" is Fitzgibbon's, whose
        rays are the place on the sensor over 1 + k r^2; "unified" is Khomutenko's x / (a sqrt(b r^2 + 1) + 1 - a).
      radial: k1, k2, ... of the factor 1 + k1 r^2 + k2 r^4 + k3 r^6 + k4 r^8.
      divisor: k1, k2, k3 of a polynomial of the same kind that the factor is divided by.
      tangential: p1 and p2, in OpenCV's order.
      prism: shifts along x and y, in units of r^2.
      bend: numbers of the projection: w in radians of "field_of_view", k of "division", a and b of "unified".
    """

    projection: Projection = "perspective"
    radial: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    divisor: tuple[float, float, float] = (0.0, 0.0, 0.0)
    tangential: tuple[float, float] = (0.0, 0.0)
    prism: tuple[float, float] = (0.0, 0.0)
    bend: tuple[float, float] = (0.0, 0.0)

    @property
    def is_pinhole(self) -> bool:
        """Whether the lens leaves every ray as it is."""
        straight = self.projection == "perspective" or (self.projection != "equidistant" and not self.bend[0])
        return straight and not any((*self.radial, *self.divisor, *self.tangential, *self.prism))


PINHOLE = Lens()


def distort(points: np.ndarray, lens: Lens) -> np.ndarray:
    """Where the lens puts a ray.

    Args:
      points: [..., 2] x/z and y/z of rays.
      lens: the model.

    Returns:
      [..., 2] on the sensor, before focal lengths and principal point.

    Example:
      >>> distort(np.array([0.1, 0.0]), Lens(radial=(0.5, 0.0, 0.0, 0.0)))
      array([0.1005, 0.    ])
    """
    mapped = points * _projected(np.linalg.norm(points, axis=-1), lens)[..., None]
    x, y = mapped[..., 0], mapped[..., 1]
    r2 = x * x + y * y
    factor = _polynomial(r2, lens.radial) / _polynomial(r2, lens.divisor)
    (p1, p2), (s1, s2) = lens.tangential, lens.prism
    bent_x = x * factor + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x * x) + s1 * r2
    bent_y = y * factor + p1 * (r2 + 2.0 * y * y) + 2.0 * p2 * x * y + s2 * r2
    return np.stack([bent_x, bent_y], -1)


def radius_on_sensor(radius: np.ndarray, lens: Lens) -> np.ndarray:
    """Distance from the centre on the sensor for tan(angle to the axis), by the radial part of the lens alone."""
    mapped = radius * _projected(radius, lens)
    r2 = mapped * mapped
    return mapped * _polynomial(r2, lens.radial) / _polynomial(r2, lens.divisor)


def _projected(radius: np.ndarray, lens: Lens) -> np.ndarray:
    """Factor by which the projection shrinks rays of this tan(angle)."""
    safe = np.maximum(radius, _TINY)
    if lens.projection == "equidistant":
        return np.arctan(safe) / safe
    first, second = lens.bend
    if lens.projection == "field_of_view" and first:
        return np.arctan(safe * 2.0 * np.tan(0.5 * first)) / (safe * first)
    if lens.projection == "division":
        rest = 1.0 - 4.0 * first * safe * safe
        # Beyond the radius where the lens turns back there is no place: all go to the middle, so that nothing grows.
        return np.where(rest >= 0, 2.0 / (1.0 + np.sqrt(np.maximum(rest, 0.0))), 0.0)
    if lens.projection == "unified":
        return 1.0 / (first * np.sqrt(second * safe * safe + 1.0) + 1.0 - first)
    return np.ones_like(safe)


def _polynomial(r2: np.ndarray, coefficients: tuple[float, ...]) -> np.ndarray:
    value = np.zeros_like(r2)
    for k in reversed(coefficients):
        value = r2 * (k + value)
    return 1.0 + value
