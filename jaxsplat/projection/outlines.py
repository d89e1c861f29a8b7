"""Where a camera sees 3D Gaussians that are evaluated along rays, without a linearisation; for a pinhole, exactly.

The splat with covariance Sigma = M M^T, at t in camera space, is seen where its ellipsoid of level
L = 2 ln(opacity / alpha_min) is. The outline of that ellipsoid is a conic section, whose dual is t t^T - L Sigma.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _check, _linalg
from jaxsplat import _constants as const
from jaxsplat.cameras import AnyCameraModel, Intrinsics, Shutter
from jaxsplat.cameras.pose import Vector, cross, dot
from jaxsplat.projection.contours import Contour, contour
from jaxsplat.projection.splats import RADIUS_LIMIT, per_camera, split_camera
from jaxsplat.types import Projected

_THINNEST = 1e-5
"""Below this ratio of the determinant to the product of the variances, float32 loses the shorter axis of an ellipse."""

_NEAREST = 1e-2
"""An outline is taken for an ellipse while d is above this part of the squared depth: its numbers stay moderate."""

_LEAST_LEVEL = 1e-3
"""Of a splat whose opacity is that at which it ends."""


def project_outlines(
    means: jax.Array,
    quats: jax.Array,
    scales: jax.Array,
    viewmats: jax.Array,
    Ks: jax.Array,
    *,
    width: int,
    height: int,
    opacities: jax.Array,
    eps2d: jax.Array | float = const.EPS2D,
    near_plane: jax.Array | float = const.NEAR,
    far_plane: jax.Array | float = const.FAR,
    radius_clip: jax.Array | float = 0.0,
    camera_model: AnyCameraModel = "pinhole",
    shutter: Shutter | None = None,
    alpha_min: float = const.ALPHA_MIN,
) -> Projected:
    """Bounds where each splat reaches `alpha_min` along the rays of a camera: `extents` for the rasterizer.

    In a pinhole camera, for a splat with mean t and factor rows m_1, m_2, m_3 in camera space, level L, and
    d = t_3^2 - L |m_3|^2, the outline has the centre (t_i t_3 - L m_i . m_3) / d and the shape
    L (u_i . u_j - L n_i . n_j) / d^2, where u_i = t_3 m_i - t_i m_3 and n_i = m_i x m_3. With d <= 0 the ellipsoid
    reaches the plane of the camera, and the bounds are the whole picture. In any other camera, an ellipse is put around
    projected points of the contour, at three times of a shutter; where there is none, as for a splat around the camera,
    the bounds are the whole picture.

    Culled as in `project_gaussians`, but for means outside the domain of the camera model, whose splats may reach into
    it. Nothing here is differentiated.

    Args:
      means: [..., N, 3] centres, in world units.
      quats: [..., N, 4] rotations as w, x, y, z, of any length.
      scales: [..., N, 3] standard deviations, in world units.
      viewmats: [..., C, 4, 4] world-to-camera matrices, OpenCV axes.
      Ks: [..., C, 3, 3] camera matrices, in pixels.
      width: image width in pixels.
      height: image height in pixels.
      opacities: [..., N].
      eps2d: variance in squared pixels that the bounds are widened by, which keeps thin ones well conditioned.
      near_plane: smallest visible depth, exclusive; a scalar or [..., C], in world units.
      far_plane: largest visible depth, exclusive; a scalar or [..., C], in world units.
      radius_clip: splats with no radius above this are culled; in pixels.
      camera_model: "pinhole", "ortho", "fisheye" or a `Lens`.
      shutter: how the lines are read out while the camera moves; depths are then those halfway. None for all at once.
      alpha_min: opacity below which a splat is not drawn.

    Returns:
      `Projected`, with conics that reach `alpha_min` at the bounds, and compensations of 1.

    Raises:
      ValueError: if shapes do not agree.
      TypeError: if an array does not hold floating-point numbers.

    Example:
      >>> project_outlines(means, quats, scales, viewmats, Ks, width=64, height=48, opacities=opacities).radii.shape
      (1, 1000, 2)
    """
    name = "project_outlines"
    arrays = {
        "means": (means, "... N 3"), "quats": (quats, "... N 4"), "scales": (scales, "... N 3"),
        "opacities": (opacities, "... N"), "viewmats": (viewmats, "... C 4 4"), "Ks": (Ks, "... C 3 3"),
    }  # fmt: skip
    planes = {"near_plane": near_plane, "far_plane": far_plane}
    arrays |= {key: (value, "... C") for key, value in planes.items() if jnp.ndim(value)}
    sizes = _check.shapes(name, **arrays)
    _check.floating(name, **{key: value for key, (value, _) in arrays.items()})
    _check.positive_int(name, width=width, height=height)
    camera, named = split_camera(name, viewmats, Ks, camera_model, shutter, sizes)
    means, quats, scales, opacities, camera = lax.stop_gradient((means, quats, scales, opacities, camera))
    rank = len(sizes["..."]) + 2
    near, far = (per_camera(plane, rank) for plane in planes.values())

    def columns(x: jax.Array) -> tuple[jax.Array, ...]:
        return _linalg.components(_linalg.lift(x[..., None, :, :], rank + 1))

    t = camera.pose.to_camera(columns(means))
    scale, opacity = columns(scales), _linalg.lift(opacities[..., None, :], rank)
    axes = zip(*_linalg.rotation(*columns(quats)), strict=True)
    axes = [tuple(dot(row, axis) for row in camera.pose.rows) for axis in axes]
    level = 2 * jnp.log(jnp.maximum(opacity / alpha_min, 1))
    if camera_model == "pinhole" and shutter is None:
        outline = _outline(t, axes, scale, level)
        (u, v, a, b, c, det), seen = _to_pixels(outline, camera.k, eps2d, level, width, height), t[2] > 0
        depth = t[2]
    else:
        model = named if camera.lens is None else camera.lens
        assert model is not None
        shape = jnp.maximum(level, _LEAST_LEVEL)
        found = contour(t, axes, scale, shape, camera, named, (width, height))
        (u, v, a, b, c, det), seen = _of_contour(found, eps2d, shape, width, height), found.seen
        depth = model.depth(*(t if camera.motion is None else camera.motion.later(t, jnp.asarray(0.5, t[0].dtype))))
    across, down = (jnp.clip(jnp.ceil(jnp.sqrt(level * s)), 1, RADIUS_LIMIT) for s in (a, c))
    # A row with a value that is not finite has no factor that is.
    visible = (
        jnp.isfinite(u + v + a + b + c + sum(t) + sum(scale) + sum(sum(axis) for axis in axes))
        & camera.usable
        & seen
        & (opacity >= alpha_min)
        & (opacity < jnp.inf)
    )
    visible &= (depth > near) & (depth < far) & (scale[0] * scale[1] * scale[2] != 0)
    visible &= sum(abs(part) for part in columns(quats)) > const.NORM_FLOOR
    visible &= (across > radius_clip) | (down > radius_clip)
    visible &= (u + across > 0) & (u - across < width) & (v + down > 0) & (v - down < height)

    def stacked(*parts: jax.Array) -> jax.Array:
        shape = (*sizes["..."], sizes["C"], sizes["N"])
        return _linalg.interleave(*(jnp.broadcast_to(jnp.where(visible, part, 0), shape) for part in parts))

    return Projected(
        means2d=stacked(u, v),
        conics=stacked(c / det, -b / det, a / det),
        depths=stacked(depth)[..., 0],
        radii=stacked(across.astype(jnp.int32), down.astype(jnp.int32)),
        compensations=stacked(jnp.ones_like(u))[..., 0],
    )


Range = tuple[jax.Array, jax.Array]


class _Outline(NamedTuple):
    """On the plane at distance 1: centre, covariance of the ellipse at its level, and that one's determinant.

    Where the outline is no ellipse, the ranges of x and y that its visible branch lies in.
    """

    x: jax.Array
    y: jax.Array
    xx: jax.Array
    xy: jax.Array
    yy: jax.Array
    det: jax.Array
    bounded: jax.Array
    across: Range
    down: Range


def _outline(t: Vector, axes: list[Vector], scale: Vector, level: jax.Array) -> _Outline:
    m = [tuple(axis[i] * s for axis, s in zip(axes, scale, strict=True)) for i in range(3)]
    d = t[2] * t[2] - level * dot(m[2], m[2])
    bounded = d > _NEAREST * t[2] * t[2]
    d = jnp.where(bounded, d, 1)
    u = [tuple(t[2] * a - t[i] * b for a, b in zip(m[i], m[2], strict=True)) for i in range(2)]
    n = [cross(m[i], m[2]) for i in range(2)]
    xx, xy, yy = ((dot(u[i], u[j]) - level * dot(n[i], n[j])) / (d * d) for i, j in ((0, 0), (0, 1), (1, 1)))
    # Of the dual conic; not xx yy - xy^2, which cancels for thin splats. The rest is how far outside the camera is.
    volume = scale[0] * scale[1] * scale[2]
    distance = tuple(dot(axis, t) / s for axis, s in zip(axes, scale, strict=True))
    det = jnp.maximum(volume * volume * (dot(distance, distance) - level) / (d * d * d), 0)
    x, y = ((t[i] * t[2] - level * dot(m[i], m[2])) / d for i in range(2))
    across, down = (_range(t[i], t[2], m[i], m[2], level) for i in range(2))
    return _Outline(x, y, jnp.maximum(xx, 0), xy, jnp.maximum(yy, 0), det, bounded, across, down)


def _range(x: jax.Array, z: jax.Array, m: Vector, m_z: Vector, level: jax.Array) -> Range:
    """Slopes x / z that a splat reaches in front of the camera whose ellipsoid crosses the camera's plane.

    A plane through the camera with this slope touches the ellipsoid where a quadratic is zero, and misses it between
    these slopes. What lies in front is connected, so its slopes are those on the side of the mean.
    """
    # An ellipsoid that just does not reach the plane is taken to do so.
    a, b, c = (p - level * q for p, q in ((z * z, dot(m_z, m_z)), (x * z, dot(m, m_z)), (x * x, dot(m, m))))
    a = jnp.minimum(a, -_NEAREST * z * z)
    root = b * b - a * c
    q = b + jnp.where(b < 0, -1, 1) * jnp.sqrt(jnp.maximum(root, 0))
    slopes = q / a, jnp.where(q != 0, c / jnp.where(q != 0, q, 1), 0)
    low, high = jnp.minimum(*slopes), jnp.maximum(*slopes)
    limited, mean = root > 0, x / z
    return jnp.where(limited & (mean >= high), high, -jnp.inf), jnp.where(limited & (mean <= low), low, jnp.inf)


def _to_pixels(
    o: _Outline, k: Intrinsics, eps2d: Any, level: jax.Array, width: int, height: int
) -> tuple[jax.Array, ...]:
    """Centre, covariance and determinant in pixels, widened; where unbounded, of an ellipse around the visible part."""
    a = k.fx * k.fx * o.xx + 2 * k.fx * k.skew * o.xy + k.skew * k.skew * o.yy
    b = k.fx * k.shear * o.xx + (k.fx * k.fy + k.skew * k.shear) * o.xy + k.skew * k.fy * o.yy
    c = k.shear * k.shear * o.xx + 2 * k.shear * k.fy * o.xy + k.fy * k.fy * o.yy
    before = (k.fx * k.fy - k.skew * k.shear) ** 2 * o.det
    a, b, c, det = _widened(a, b, c, before, eps2d)
    u, v = k.fx * o.x + k.skew * o.y + k.cx, k.shear * o.x + k.fy * o.y + k.cy
    straight = (k.skew == 0) & (k.shear == 0)
    left, right = _pixels(o.across, k.fx, k.cx, straight, width)
    top, bottom = _pixels(o.down, k.fy, k.cy, straight, height)
    # Twice the square of half a side: the ellipse through the corners. Of a side of no length, nothing is seen.
    wide, high = (jnp.maximum(s, 0) ** 2 / (2 * jnp.maximum(level, _LEAST_LEVEL)) for s in (right - left, bottom - top))
    around = ((left + right) / 2, (top + bottom) / 2, wide, jnp.zeros_like(wide), high, wide * high)
    return tuple(jnp.where(o.bounded, part, other) for part, other in zip((u, v, a, b, c, det), around, strict=True))


def _widened(a: jax.Array, b: jax.Array, c: jax.Array, before: jax.Array, eps2d: Any) -> tuple[jax.Array, ...]:
    """Covariance with `eps2d` on the diagonal, and its determinant, which was `before`."""
    det = before + eps2d * (a + c) + eps2d * eps2d
    a, c = a + eps2d, c + eps2d
    # The box around an ellipse too thin for the conic: the ellipse through its corners.
    thin = det < _THINNEST * a * c
    a, b, c = jnp.where(thin, 2 * a, a), jnp.where(thin, 0, b), jnp.where(thin, 2 * c, c)
    return a, b, c, jnp.where(thin, a * c, det)


def _of_contour(o: Contour, eps2d: Any, level: jax.Array, width: int, height: int) -> tuple[jax.Array, ...]:
    """As `_to_pixels`, of an ellipse at the level in pixels."""
    # An ellipse through the corners of the picture and a pixel more.
    sides = [0.5 * (size + 2.0) ** 2 for size in (width, height)]
    whole = (0.5 * width, 0.5 * height, sides[0], 0.0, sides[1])
    u, v, a, b, c = (jnp.where(o.whole, all_, part) for all_, part in zip(whole, o[:5], strict=True))
    a, b, c = a / level, b / level, c / level
    return u, v, *_widened(a, b, c, jnp.maximum(a * c - b * b, 0), eps2d)


def _pixels(slopes: Range, focal: jax.Array, centre: jax.Array, straight: jax.Array, size: int) -> Range:
    """The part of a range that is in the picture, and a pixel more."""
    ends = [jnp.where(straight, focal * slope + centre, jnp.nan) for slope in slopes]
    low, high = jnp.minimum(*ends), jnp.maximum(*ends)
    return jnp.clip(jnp.where(straight, low, 0) - 1, -1, size + 1), jnp.clip(
        jnp.where(straight, high, size) + 1, -1, size + 1
    )
