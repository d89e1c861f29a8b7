"""Lenses: what distorts a picture, as a value whose kind is static and whose coefficients are traced."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxsplat import _check, _linalg

Projection = Literal["perspective", "equidistant"]
Coefficients = jax.typing.ArrayLike | Sequence[float] | Sequence[jax.Array]

_SIZES = {
    "radial": "n", "divisor": "m", "tangential": "2", "prism": "4", "polynomial": "p", "omega": "1", "division": "1",
    "unified": "2",
}  # fmt: skip
_ONLY = {"perspective": ("omega", "division", "unified"), "equidistant": ("polynomial",)}
"""Coefficients that go with one projection."""
LENS_FIELDS = tuple(_SIZES)
_OPENCV_SIZES = (4, 5, 8, 12)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Lens:
    """A projection to a plane, bent there by whichever of the coefficients are given.

    Coefficients are [n], shared by all cameras, or [..., C, n]. New values never compile anew; what is left out costs
    nothing. With (x, y) the point on the plane and r its distance from the centre:

    * `Lens(radial=k, tangential=p)`: OPENCV of OpenCV and COLMAP, with `divisor` FULL_OPENCV, with `prism` thin prism.
    * `Lens("equidistant", radial=k)`: Kannala and Brandt's fisheye, with `tangential` and `prism` THIN_PRISM_FISHEYE,
      with `radial_first` too Project Aria's Fisheye624, which COLMAP calls RAD_TAN_THIN_PRISM_FISHEYE.
    * `Lens("equidistant", polynomial=a)`: f-theta. With focal lengths of 1 in K, the polynomial is in pixels.
    * `Lens(omega=w)`: Devernay and Faugeras' FOV; `Lens(division=k)`: Fitzgibbon's; `Lens(unified=(a, b))`: EUCM.

    What lies beyond the angle at which the radial part turns back, or behind a perspective lens, is not seen.

    Attributes:
      projection: static. "perspective": (x, y) = (X, Y) / Z. "equidistant": r is the angle to the axis, up to 180
        degrees; depth is then the distance to the camera, which is positive all around.
      radial: k1, k2, ... of the factor 1 + k1 r^2 + k2 r^4 + ...
      divisor: k1, k2, ... of a second polynomial of this kind that the factor is divided by.
      tangential: p1, p2 in OpenCV's order: x += 2 p1 x y + p2 (r^2 + 2 x^2), y += p1 (r^2 + 2 y^2) + 2 p2 x y.
      prism: s1 to s4 in OpenCV's order: x += s1 r^2 + s2 r^4, y += s3 r^2 + s4 r^4.
      polynomial: a1, a2, ... of r = a1 t + a2 t^2 + ... with t the angle to the axis; "equidistant" only.
      omega: w of r = atan(2 r tan(w / 2)) / w, in radians; "perspective" only.
      division: k of the factor 2 / (1 + sqrt(1 - 4 k r^2)); "perspective" only.
      unified: a, b of the factor 1 / (a sqrt(b r^2 + 1) + 1 - a); "perspective" only.
      radial_first: static. The tangential and prism terms are those of the point that the radial factor has moved.
    """

    projection: Projection = dataclasses.field(default="perspective", metadata={"static": True})
    radial: Coefficients = ()
    divisor: Coefficients = ()
    tangential: Coefficients = ()
    prism: Coefficients = ()
    polynomial: Coefficients = ()
    omega: Coefficients = ()
    division: Coefficients = ()
    unified: Coefficients = ()
    radial_first: bool = dataclasses.field(default=False, metadata={"static": True})


def opencv_lens(coefficients: jax.Array | Sequence[float]) -> Lens:
    """Makes the lens of OpenCV's vector of distortion coefficients.

    Args:
      coefficients: [..., n] k1, k2, p1, p2, then k3, then k4, k5, k6, then s1, s2, s3, s4; n is 4, 5, 8 or 12.

    Returns:
      A perspective `Lens`, differentiable in the coefficients.

    Raises:
      ValueError: for any other number of coefficients.

    Example:
      >>> opencv_lens([0.1, -0.05, 0.001, 0.0]).tangential
      Array([0.001, 0.   ], dtype=float32)
    """
    c = jnp.asarray(coefficients)
    if c.ndim < 1 or c.shape[-1] not in _OPENCV_SIZES:
        raise ValueError(f"opencv_lens: coefficients must have shape [..., 4], 5, 8 or 12, got {list(c.shape)}.")
    radial = jnp.concatenate([c[..., :2], c[..., 4:5]], -1)
    return Lens(radial=radial, divisor=c[..., 5:8], tangential=c[..., 2:4], prism=c[..., 8:12])


def per_camera_lens(lens: Lens, count: int) -> Lens:
    """The lens with coefficients [..., C, n] for so many cameras; what is not given stays empty."""
    fields = {}
    for field in _SIZES:
        value = jnp.asarray(getattr(lens, field))
        each = jnp.broadcast_to(value[None], (count, value.size)) if value.ndim == 1 else value
        fields[field] = each if value.size else ()
    return dataclasses.replace(lens, **fields)


def split_lens(function: str, lens: Lens, sizes: dict[str, Any], rank: int, axes: int) -> Lens:
    """Checks the coefficients and splits them into components that broadcast against [..., C] and so many more axes.

    Args:
      function: for messages.
      lens: with coefficients [n] or [..., C, n].
      sizes: of the letters that are known.
      rank: number of axes of [..., C].
      axes: number of axes behind C.

    Returns:
      A lens whose coefficients are tuples of arrays of rank `rank + axes`, empty where there are none.

    Raises:
      ValueError: where a shape, or a coefficient for this projection, does not fit.
    """
    _check.choice(function, "camera_model.projection", lens.projection, ("perspective", "equidistant"))
    split: dict[str, Any] = {}
    for field, size in _SIZES.items():
        value = jnp.asarray(getattr(lens, field))
        if not value.size:
            split[field] = ()
            continue
        spec = size if value.ndim == 1 else f"... C {size}"
        _check.shapes(
            function,
            **{"cameras": (jnp.empty((*sizes["..."], sizes["C"])), "... C")},
            **{f"camera_model.{field}": (value, spec)},
        )
        _check.floating(function, **{f"camera_model.{field}": value})
        value = _linalg.lift(value, rank + 1)
        split[field] = tuple(value[(..., *(None,) * axes, i)] for i in range(value.shape[-1]))
    for projection, fields in _ONLY.items():
        for field in fields:
            if split[field] and lens.projection != projection:
                raise ValueError(f"{function}: camera_model.{field} does not go with projection={lens.projection!r}.")
    return dataclasses.replace(lens, **split)
