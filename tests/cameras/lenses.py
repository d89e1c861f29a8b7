"""Lenses of every kind, and where they put a ray, written out in float64."""

from __future__ import annotations

import numpy as np

from jaxsplat import Lens
from jaxsplat.cameras.distorted import DistortedCamera
from jaxsplat.cameras.distortion import turning_radius

FULL = (0.1, -0.05, 0.01, -0.02, 0.03, 0.04, 0.05, 0.06, 0.01, -0.01, 0.02, 0.005)
"""OpenCV's k1 k2 p1 p2 k3 k4 k5 k6 s1 s2 s3 s4."""

LENSES = {
    "opencv": Lens(radial=(FULL[0], FULL[1], FULL[4]), divisor=FULL[5:8], tangential=FULL[2:4], prism=FULL[8:]),
    "barrel": Lens(radial=(-0.25, 0.03)),
    "kannala_brandt": Lens("equidistant", radial=(0.1, -0.05, 0.02, -0.01)),
    "thin_prism_fisheye": Lens("equidistant", (0.1, -0.05), tangential=(0.01, -0.02), prism=(0.05, 0.0, 0.06, 0.0)),
    "fisheye624": Lens(
        "equidistant", (0.1, -0.05, 0.03, -0.04, 0.02, -0.01), tangential=(0.01, -0.02),
        prism=(0.05, 0.06, -0.03, 0.02), radial_first=True,
    ),
    "f_theta": Lens("equidistant", polynomial=(1.0, 0.1, -0.05)),
    "fov": Lens(omega=(0.9,)),
}  # fmt: skip


def camera(lens: Lens) -> DistortedCamera:
    """The camera of a lens whose coefficients are numbers, for points of any shape."""
    return DistortedCamera(lens, turning_radius(lens).squeeze())


def expected(points: np.ndarray, lens: Lens) -> np.ndarray:
    """Plane positions [..., 2] of camera-space points [..., 3]."""
    X, Y, Z = np.moveaxis(np.asarray(points, np.float64), -1, 0)
    if lens.projection == "perspective":
        x, y = X / Z, Y / Z
    else:
        r = np.hypot(X, Y)
        theta = np.arctan2(r, Z)
        x, y = theta * X / r, theta * Y / r
    given = {key: np.zeros(6) for key in ("radial", "divisor", "tangential", "prism")}
    for key in given:
        values = np.asarray(getattr(lens, key), float)
        given[key][: len(values)] = values
    r = np.hypot(x, y)
    if lens.polynomial:
        scale = sum(a * r**i for i, a in enumerate(np.asarray(lens.polynomial)))
        x, y = x * scale, y * scale
    if lens.omega:
        w = np.asarray(lens.omega)[0]
        scale = np.arctan(2 * r * np.tan(w / 2)) / (w * r)
        x, y = x * scale, y * scale
    r2 = x * x + y * y
    factor = 1 + sum(k * r2 ** (i + 1) for i, k in enumerate(given["radial"]))
    factor = factor / (1 + sum(k * r2 ** (i + 1) for i, k in enumerate(given["divisor"])))
    (p1, p2), (s1, s2, s3, s4) = given["tangential"][:2], given["prism"][:4]
    bent_x, bent_y = x * factor, y * factor
    if lens.radial_first:
        x, y, r2 = bent_x, bent_y, bent_x**2 + bent_y**2
    return np.stack(
        [
            bent_x + 2 * p1 * x * y + p2 * (r2 + 2 * x * x) + s1 * r2 + s2 * r2 * r2,
            bent_y + p1 * (r2 + 2 * y * y) + 2 * p2 * x * y + s3 * r2 + s4 * r2 * r2,
        ],
        -1,
    )
