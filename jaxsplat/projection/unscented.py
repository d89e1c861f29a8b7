"""Projection of 3D Gaussians to the screen through seven points of each: no derivative of the camera is needed.

Julier and Uhlmann, "Unscented filtering and nonlinear estimation", 2004; Wu et al., "3DGUT", 2025. Any camera will do,
also one that moves while its picture is read out.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _check
from jaxsplat import _constants as const
from jaxsplat.cameras import AnyCameraModel, Intrinsics, Model, Shutter
from jaxsplat.cameras.pose import Vector, dot
from jaxsplat.projection.splats import (
    Camera,
    Screen,
    Settings,
    Splats,
    check_inputs,
    compensation,
    find_visible,
    model_of,
    per_camera,
    split_camera,
    split_splats,
    stack,
)
from jaxsplat.types import Projected

_SHUTTER_STEPS = 5
_SLOPE = 0.1  # a line that the motion follows as fast as it is read gives no step
_LATE = 1e-2
"""Error in time, in read-out times, from which a point counts as not found."""


@dataclasses.dataclass(frozen=True)
class Unscented:
    """Where the points of the unscented transform lie, and what they weigh. Static: a new value compiles anew.

    The points are the mean and, on each axis of the Gaussian, two at `alpha * sqrt(3 + kappa)` standard deviations.

    Attributes:
      alpha: spread of the points.
      beta: weight of the shift of the mean in the covariance is `beta - alpha^2`; 2 suits Gaussians.
      kappa: more spread.
      margin: cull splats none of whose points lies in the picture widened on each side by this fraction of its size
        (3DGUT: 0.1); None culls by the bounding box alone, and so loses no splat that reaches the picture.
    """

    alpha: float = 1.0
    beta: float = 2.0
    kappa: float = 0.0
    margin: float | None = None


def project_unscented(
    means: jax.Array,
    quats: jax.Array,
    scales: jax.Array,
    viewmats: jax.Array,
    Ks: jax.Array,
    *,
    width: int,
    height: int,
    opacities: jax.Array | None = None,
    eps2d: jax.Array | float = const.EPS2D,
    near_plane: jax.Array | float = const.NEAR,
    far_plane: jax.Array | float = const.FAR,
    radius_clip: jax.Array | float = 0.0,
    camera_model: AnyCameraModel = "pinhole",
    shutter: Shutter | None = None,
    antialiased: bool = False,
    alpha_min: float = const.ALPHA_MIN,
    compensation_min: float = const.COMPENSATION_MIN,
    tile_sigmas: float = 0.0,
    transform: Unscented = Unscented(),
) -> Projected:
    """Projects 3D Gaussians to 2D Gaussians in every camera, by the mean and covariance of projected points.

    With e the offsets of the projected points from the projected mean, and w = 1 / (2 alpha^2 (3 + kappa)) their
    weight: the shift is s = sum w e, the centre that of the mean plus s, and the covariance
    sum w e e^T + (beta - alpha^2) s s^T + eps2d I. This is the usual transform, written so that nothing cancels.

    A row is culled as by `project_gaussians`, and where on some axis both points lie outside the domain of the camera
    model or before the near plane. If one does, the mirror image of the other's offset stands in for it. Under a
    shutter, each point is projected at the time at which its own line is read; gradients are those of the implicit
    function. The depth is that of the mean at its time.

    Args:
      means: [..., N, 3] centres, in world units.
      quats: [..., N, 4] rotations as w, x, y, z, of any length.
      scales: [..., N, 3] standard deviations along the rotated axes, in world units.
      viewmats: [..., C, 4, 4] world-to-camera matrices, OpenCV axes; with a shutter, when the first line is read.
      Ks: [..., C, 3, 3] camera matrices, in pixels.
      width: image width in pixels.
      height: image height in pixels.
      opacities: [..., N], used for culling and to make the radii tight.
      eps2d: variance in squared pixels added to both diagonal entries; a scalar.
      near_plane: smallest visible depth, exclusive; a scalar or [..., C], in world units.
      far_plane: largest visible depth, exclusive; a scalar or [..., C], in world units.
      radius_clip: splats with no radius above this are culled; a scalar, in pixels.
      camera_model: "pinhole", "ortho", "fisheye" or a `Lens`.
      shutter: how the lines are read out while the camera moves; None for all at once.
      antialiased: whether the opacities will be multiplied by the compensations.
      alpha_min: opacity below which a splat is not drawn.
      compensation_min: least compensation.
      tile_sigmas: as in `project_gaussians`.
      transform: the points and their weights.

    Returns:
      `Projected`, as by `project_gaussians`.

    Raises:
      ValueError: if shapes do not agree, or the transform makes no sense.
      TypeError: if an array does not hold floating-point numbers.

    Example:
      >>> one = jnp.ones((1, 3))
      >>> K = jnp.array([[[10.0, 0.0, 4.0], [0.0, 10.0, 4.0], [0.0, 0.0, 1.0]]])
      >>> lens = Lens("equidistant", radial=(0.1,))
      >>> project_unscented(
      ...     one, jnp.eye(4)[:1], 0.1 * one, jnp.eye(4)[None], K, width=16, height=16, camera_model=lens
      ... ).depths
      Array([[1.7320508]], dtype=float32)
    """
    name = "project_unscented"
    planes = near_plane, far_plane
    sizes = check_inputs(name, means, quats, scales, None, opacities, viewmats, Ks, planes)
    _check.positive_int(name, width=width, height=height)
    if not (transform.alpha > 0 and transform.kappa > -3):
        raise ValueError(f"{name}: transform must have alpha > 0 and kappa > -3, got {transform}.")
    rank = len(sizes["..."]) + 2
    splats = split_splats(means, quats, scales, None, opacities, rank)
    camera, named = split_camera(name, viewmats, Ks, camera_model, shutter, sizes)
    near, far = (per_camera(plane, rank) for plane in planes)
    rule = antialiased, alpha_min, compensation_min, tile_sigmas
    settings = Settings(eps2d, near, far, radius_clip, width, height, named, *rule)
    # As in the other projection: culled rows are found first, and replaced by harmless ones.
    plain = _screen(*lax.stop_gradient((splats, camera)), settings, shutter, transform, visible=None)
    visible, radii = find_visible(plain, splats, camera, settings)
    screen = _screen(splats, camera, settings, shutter, transform, visible)
    return stack(screen, visible, radii, (*sizes["..."], sizes["C"], sizes["N"]))


def _screen(
    splats: Splats,
    camera: Camera,
    settings: Settings,
    shutter: Shutter | None,
    transform: Unscented,
    visible: jax.Array | None,
) -> Screen:
    """Projects; where `visible` is given, the other rows are replaced by a point splat at depth 1."""

    def safe(value: jax.Array, otherwise: float) -> jax.Array:
        return value if visible is None else jnp.where(visible, value, otherwise)

    spread = transform.alpha * math.sqrt(3 + transform.kappa)
    assert splats.factor is not None
    mean = tuple(safe(part, at) for part, at in zip(camera.pose.to_camera(splats.mean), (0, 0, 1), strict=True))
    axes = [
        tuple(safe(spread * dot(row, axis), 0) for row in camera.pose.rows) for axis in zip(*splats.factor, strict=True)
    ]
    points = [mean]
    for axis, sign in itertools.product(axes, (1, -1)):
        points.append(tuple(part + sign * offset for part, offset in zip(mean, axis, strict=True)))
    u, v, seen, depth = _positions(points, camera, settings, shutter)
    across, down, whole = _moments(u, v, seen)
    if transform.margin is not None:
        places = zip(u, v, seen, strict=True)
        inside = [_in_picture(x, y, settings, transform.margin) & shown for x, y, shown in places]
        whole &= functools.reduce(jnp.logical_or, inside)
    scale = 1 / spread
    vectors = [(x * scale, y * scale) for x, y in zip(across, down, strict=True)]
    shift = tuple(_sum(part[3:]) * scale * scale for part in (across, down))
    weighted = [*((1.0, vector) for vector in vectors), (transform.beta - transform.alpha**2, shift)]
    a, b, c = (_sum([w * p[i] * p[j] for w, p in weighted]) for i, j in ((0, 0), (0, 1), (1, 1)))
    # Cauchy and Binet's formula, not a c - b^2, which cancels for splats thinner than a pixel.
    pairs = itertools.combinations(weighted, 2)
    before = _sum([w1 * w2 * jnp.square(p[0] * q[1] - p[1] * q[0]) for (w1, p), (w2, q) in pairs])
    before = safe(before, 0)
    det = safe(before + settings.eps2d * (a + c) + settings.eps2d * settings.eps2d, 1)
    a, c = a + settings.eps2d, c + settings.eps2d
    return Screen(
        mean,
        whole,
        depth,
        u[0] + shift[0],
        v[0] + shift[1],
        a,
        b,
        c,
        det,
        compensation(before, det, settings.compensation_min),
    )


def _moments(u: Vector, v: Vector, seen: Vector) -> tuple[list[jax.Array], list[jax.Array], jax.Array]:
    """Of each axis, half the difference of the two offsets, then half their sum; and whether the splat can be drawn."""
    whole = seen[0]
    parts: tuple[list[jax.Array], list[jax.Array]] = ([], [])
    sums: tuple[list[jax.Array], list[jax.Array]] = ([], [])
    for k in (1, 3, 5):
        there, opposite = seen[k], seen[k + 1]
        whole = whole & (there | opposite)
        for position, differences, means in zip((u, v), parts, sums, strict=True):
            first, second = position[k] - position[0], position[k + 1] - position[0]
            first, second = jnp.where(there, first, -second), jnp.where(opposite, second, -first)
            differences.append(0.5 * (first - second))
            means.append(0.5 * (first + second))
    return parts[0] + sums[0], parts[1] + sums[1], whole


def _positions(
    points: Sequence[Vector], camera: Camera, settings: Settings, shutter: Shutter | None
) -> tuple[Vector, Vector, Vector, jax.Array]:
    """Pixel positions [..., C, N] of seven points, whether they are seen, and the depth of the first."""
    model = model_of(camera, settings)

    def position(point: Vector) -> tuple[jax.Array, ...]:
        found: jax.Array | bool = True
        if shutter is not None:
            point, found = _at_its_time(point, camera, settings, shutter)
        x, y, z = point
        depth = model.depth(x, y, z)
        u, v, shown = _project(model, point, camera.k)
        return u, v, shown & found & (depth > settings.near), depth

    # Fused with what follows, every point would be projected again for each of its uses.
    u, v, seen, depths = zip(*lax.optimization_barrier([position(point) for point in points]), strict=True)
    return u, v, seen, depths[0]


def _project(model: Model, point: Vector, k: Intrinsics) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Pixel positions, and whether the camera model shows the points; those that it does not, it shows elsewhere."""
    x, y, z = point
    seen = model.sees(x, y, z)
    # Not a select after the fact: a division by zero would leave NaN in the gradients.
    x, y, z = (jnp.where(seen, part, at) for part, at in ((x, 0), (y, 0), (z, 1)))
    return *model.project(x, y, z, k), seen


def _at_its_time(point: Vector, camera: Camera, settings: Settings, shutter: Shutter) -> tuple[Vector, jax.Array]:
    """A point in the coordinates of the camera when its line is read, and whether that time was found."""
    model, moving = model_of(camera, settings), camera.motion
    assert moving is not None

    def residual(time: jax.Array) -> jax.Array:
        u, v, _ = _project(model, moving.later(point, time), camera.k)
        # Outside the picture the camera stands still.
        return time - jnp.clip(shutter.time(u, v, settings.width, settings.height), 0, 1)

    def solve(residual: Callable[[jax.Array], jax.Array], time: jax.Array) -> jax.Array:
        def newton(_: int, time: jax.Array) -> jax.Array:
            value, slope = jax.jvp(residual, (time,), (jnp.ones_like(time),))
            return jnp.clip(time - value / jnp.where(jnp.abs(slope) > _SLOPE, slope, 1), 0, 1)

        return lax.fori_loop(0, _SHUTTER_STEPS, newton, time)

    start = jnp.full_like(point[0], 0.5)
    time = lax.custom_root(residual, start, solve, lambda linear, right: right / linear(jnp.ones_like(right)))
    return moving.later(point, time), jnp.abs(lax.stop_gradient(residual(time))) < _LATE


def _in_picture(u: jax.Array, v: jax.Array, settings: Settings, margin: float) -> jax.Array:
    """Whether positions lie in the picture, widened by a fraction of its size."""
    inside = (u > -margin * settings.width) & (u < (1 + margin) * settings.width)
    return inside & (v > -margin * settings.height) & (v < (1 + margin) * settings.height)


def _sum(parts: Sequence[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.add, parts)
