"""A small ray tracer in plain numpy: the independent truth behind the demo capture, sharing nothing with the renderer.

Rays are `origin + t * direction` with directions of any length: with a camera-space z of 1, `t` is the depth.
Everything is float64, in world units with z up; colours are linear RGB.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RGB = tuple[float, float, float]

SUN_DIRECTION = np.array([0.45, -0.35, 0.82]) / np.linalg.norm([0.45, -0.35, 0.82])
SUN_SPREAD = 0.05
"""Half the width of the sun, as a tangent: how soft the shadows are."""
SUN_COLOR = np.array([1.0, 0.93, 0.82]) * 0.85
SKY_AMBIENT = np.array([0.42, 0.47, 0.56])
GROUND_AMBIENT = np.array([0.26, 0.23, 0.20])
SHININESS = 40.0
SURFACE_OFFSET = 1e-6
"""Shadow rays start this far off the surface, so that it does not shade itself."""


class Material(NamedTuple):
    """How a surface looks.

    Attributes:
      base: linear colour.
      accent: linear colour of the other half of the pattern.
      pattern: in object coordinates; `sky` is emissive, from `accent` at the bottom to `base` at the top.
      period: size of the pattern, in world units.
      specular: strength of the highlight.
    """

    base: RGB
    accent: RGB
    pattern: Literal["checker", "stripes", "spots", "sky"]
    period: float = 0.2
    specular: float = 0.0


class Sphere(NamedTuple):
    """A sphere; seen from inside as well."""

    center: RGB
    radius: float
    material: Material


class Box(NamedTuple):
    """A box turned by `yaw` radians about the vertical axis; `half` holds its half sizes."""

    center: RGB
    half: RGB
    yaw: float
    material: Material


Shape = Sphere | Box


class Hits(NamedTuple):
    """What R rays met.

    Attributes:
      t: [R] ray parameter, inf where nothing was met.
      shape: [R] index of the shape, -1 for none.
      points: [R, 3] positions.
      normals: [R, 3] unit normals, towards the ray's origin.
    """

    t: Array
    shape: NDArray[np.int64]
    points: Array
    normals: Array


def trace(shapes: list[Shape], origins: Array, directions: Array) -> Hits:
    """Find the nearest surface along each ray.

    Args:
      shapes: the scene.
      origins: [R, 3] or [1, 3], world units.
      directions: [R, 3], of any length.

    Returns:
      The hits; rows that met nothing hold t = inf and shape -1.
    """
    nearest = np.full(len(directions), np.inf)
    index = np.full(len(directions), -1)
    for i, shape in enumerate(shapes):
        t = _intersect(shape, origins, directions)
        closer = t < nearest
        nearest = np.where(closer, t, nearest)
        index[closer] = i
    points = origins + np.where(np.isfinite(nearest), nearest, 0.0)[:, None] * directions
    normals = np.zeros_like(points)
    for i, shape in enumerate(shapes):
        rows = index == i
        normals[rows] = _normal(shape, points[rows])
    away = np.sum(normals * directions, axis=1, keepdims=True) > 0
    return Hits(nearest, index, points, np.where(away, -normals, normals))


def shade(shapes: list[Shape], hits: Hits, directions: Array, *, sun: Array, specular: bool = True) -> Array:
    """Light the hits: a sky-and-ground ambient term, a sun with shadows, and a Blinn-Phong highlight.

    Args:
      shapes: the scene.
      hits: from `trace`.
      directions: [R, 3] those of the traced rays.
      sun: [3] unit vector towards the sun.
      specular: whether to add the highlight, the only part that depends on the direction of view.

    Returns:
      [R, 3] linear colours; black where nothing was met.
    """
    color = np.zeros_like(hits.points)
    casters = [shape for shape in shapes if shape.material.pattern != "sky"]
    for i, shape in enumerate(shapes):
        rows = np.flatnonzero(hits.shape == i)
        if rows.size == 0:
            continue
        points, normals = hits.points[rows], hits.normals[rows]
        albedo = _albedo(shape, points)
        if shape.material.pattern == "sky":
            color[rows] = albedo
            continue
        up = 0.5 + 0.5 * normals[:, 2:]
        lit = normals @ sun
        lit = lit * ~_occluded(casters, points + SURFACE_OFFSET * normals, sun)
        lit = np.maximum(lit, 0.0)[:, None]
        color[rows] = albedo * (up * SKY_AMBIENT + (1 - up) * GROUND_AMBIENT + lit * SUN_COLOR)
        if specular and shape.material.specular > 0:
            view = -directions[rows] / np.linalg.norm(directions[rows], axis=1, keepdims=True)
            half = view + sun
            half /= np.maximum(np.linalg.norm(half, axis=1, keepdims=True), 1e-12)
            shine = np.maximum(np.sum(normals * half, axis=1, keepdims=True), 0.0) ** SHININESS
            color[rows] += shape.material.specular * shine * (lit > 0) * SUN_COLOR
    return color


def sun_directions() -> Array:
    """Spread the sun over four points, one for each sample of a pixel.

    Returns:
      [4, 3] unit vectors.
    """
    side = np.cross(SUN_DIRECTION, [0.0, 0.0, 1.0])
    side /= np.linalg.norm(side)
    other = np.cross(SUN_DIRECTION, side)
    corners = [SUN_DIRECTION + SUN_SPREAD * (a * side + b * other) for a in (-0.5, 0.5) for b in (-0.5, 0.5)]
    return np.stack([corner / np.linalg.norm(corner) for corner in corners])


def _occluded(shapes: list[Shape], points: Array, sun: Array) -> NDArray[np.bool_]:
    """Tell which points have something between them and the sun."""
    directions = np.broadcast_to(sun, points.shape)
    blocked = np.zeros(len(points), dtype=bool)
    for shape in shapes:
        blocked |= np.isfinite(_intersect(shape, points, directions))
    return blocked


def _to_object(shape: Shape, vectors: Array) -> Array:
    """Rotate world vectors into the shape's axes."""
    if isinstance(shape, Sphere):
        return vectors
    c, s = np.cos(shape.yaw), np.sin(shape.yaw)
    x, y, z = vectors[..., 0], vectors[..., 1], vectors[..., 2]
    return np.stack([c * x + s * y, c * y - s * x, z], axis=-1)


def _intersect(shape: Shape, origins: Array, directions: Array) -> Array:
    """Solve for the smallest t > 0 at which each ray meets the shape, inf where it does not."""
    o = _to_object(shape, origins - np.asarray(shape.center))
    d = _to_object(shape, directions)
    if isinstance(shape, Sphere):
        a, b = np.sum(d * d, axis=1), np.sum(o * d, axis=1)
        discriminant = b * b - a * (np.sum(o * o, axis=1) - shape.radius**2)
        root = np.sqrt(np.maximum(discriminant, 0.0))
        enter, leave, met = (-b - root) / a, (-b + root) / a, discriminant >= 0
    else:
        # A direction component of exactly zero gives infinite bounds, and a NaN on the face's plane itself: avoid both.
        inverse = 1.0 / np.where(np.abs(d) < 1e-12, 1e-12, d)
        low, high = (-np.asarray(shape.half) - o) * inverse, (np.asarray(shape.half) - o) * inverse
        enter, leave = np.minimum(low, high).max(axis=1), np.maximum(low, high).min(axis=1)
        met = enter <= leave
    t = np.where(enter > 0, enter, leave)
    return np.where(met & (t > 0), t, np.inf)


def _normal(shape: Shape, points: Array) -> Array:
    """Evaluate the outward unit normal at points of the surface."""
    local = _to_object(shape, points - np.asarray(shape.center))
    if isinstance(shape, Sphere):
        return local / shape.radius
    scaled = local / np.asarray(shape.half)
    axis = np.abs(scaled).argmax(axis=1)
    n = np.zeros_like(points)
    n[np.arange(len(n)), axis] = np.sign(scaled[np.arange(len(n)), axis])
    c, s = np.cos(shape.yaw), np.sin(shape.yaw)
    return np.stack([c * n[:, 0] - s * n[:, 1], s * n[:, 0] + c * n[:, 1], n[:, 2]], axis=1)


def _albedo(shape: Shape, points: Array) -> Array:
    """Evaluate the pattern at points of the surface: [R, 3]."""
    material = shape.material
    local = _to_object(shape, points - np.asarray(shape.center))
    phase = local / material.period
    if material.pattern == "checker":
        # The shift keeps faces off the planes where the pattern flips.
        mix = np.floor(phase + 0.37).sum(axis=1) % 2
    elif material.pattern == "stripes":
        mix = np.sin(2 * np.pi * (phase[:, 2] + 0.3 * np.sin(3 * np.arctan2(local[:, 1], local[:, 0])))) > 0
    elif material.pattern == "spots":
        mix = np.clip(4 * np.prod(np.sin(2 * np.pi * phase + 0.7), axis=1) + 0.5, 0, 1)
    else:
        height = np.clip(0.5 + local[:, 2] / (2 * np.linalg.norm(local, axis=1)), 0, 1)
        mix = 1 - height * height * (3 - 2 * height)
    mix = np.asarray(mix, dtype=np.float64)[:, None]
    return (1 - mix) * np.asarray(material.base) + mix * np.asarray(material.accent)
