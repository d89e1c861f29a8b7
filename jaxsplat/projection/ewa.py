"""Projection of 3D Gaussians to the screen by a local linearisation of the camera (elliptical weighted averaging).

Zwicker et al., "EWA Splatting", 2002.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _check, _ffi
from jaxsplat import _constants as const
from jaxsplat.cameras import AnyCameraModel
from jaxsplat.cameras.pose import Vector, cross, dot
from jaxsplat.projection import ewa_kernel
from jaxsplat.projection.splats import (
    Camera,
    Matrix,
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
from jaxsplat.types import Backend, Projected

_NAME = "project_gaussians"


def project_gaussians(
    means: jax.Array,
    quats: jax.Array | None,
    scales: jax.Array | None,
    viewmats: jax.Array,
    Ks: jax.Array,
    *,
    width: int,
    height: int,
    covars: jax.Array | None = None,
    opacities: jax.Array | None = None,
    eps2d: jax.Array | float = const.EPS2D,
    near_plane: jax.Array | float = const.NEAR,
    far_plane: jax.Array | float = const.FAR,
    radius_clip: jax.Array | float = 0.0,
    camera_model: AnyCameraModel = "pinhole",
    antialiased: bool = False,
    alpha_min: float = const.ALPHA_MIN,
    compensation_min: float = const.COMPENSATION_MIN,
    tile_sigmas: float = 0.0,
    backend: Backend = "auto",
) -> Projected:
    """Projects 3D Gaussians to 2D Gaussians in every camera.

    Sigma' = J W Sigma W^T J^T + eps2d I, with W the rotation of the view matrix and J the camera's derivative at the
    mean (for pinhole cameras and perspective lenses taken no further than 15% outside the image).

    A row is culled, which makes all its outputs zero and its gradients exactly zero, where: the depth is not strictly
    between the planes; the determinant of Sigma' is not positive (to working precision); both radii are at most
    `radius_clip`; the bounding box lies outside the image; the opacity (times the compensation when `antialiased`) is
    below `alpha_min`, an opacity equal to it being kept; the mean lies outside the domain of the camera model; a scale
    is zero; the quaternion is zero (to within 1e-12); an input of the row is not finite; or a result is beyond the
    range in which gradients are finite (1e18 in float32).

    Culling itself is not differentiated, so the planes, `radius_clip` and, for lack of another use, `opacities` get
    zero gradients. So do the last rows of `viewmats` and `Ks`, taken to be (0, 0, 0, 1) and (0, 0, 1), and, except for
    pinhole cameras and lenses, the off-diagonal entries K[0, 1] and K[1, 0].

    Args:
      means: [..., N, 3] centres, in world units.
      quats: [..., N, 4] rotations as w, x, y, z, of any length; None when `covars` are given.
      scales: [..., N, 3] standard deviations along the rotated axes, in world units; None when `covars` are given.
      viewmats: [..., C, 4, 4] world-to-camera matrices, OpenCV axes.
      Ks: [..., C, 3, 3] camera matrices, in pixels.
      width: image width in pixels.
      height: image height in pixels.
      covars: [..., N, 3, 3] covariances, of which the symmetric part counts, or [..., N, 6] upper triangles.
      opacities: [..., N], used for culling and to make the radii tight.
      eps2d: variance in squared pixels added to both diagonal entries; a scalar.
      near_plane: smallest visible depth, exclusive; a scalar or [..., C], in world units.
      far_plane: largest visible depth, exclusive; a scalar or [..., C], in world units.
      radius_clip: splats with no radius above this are culled; a scalar, in pixels.
      camera_model: "pinhole", "ortho", "fisheye" or a `Lens`.
      antialiased: whether the opacities will be multiplied by the compensations.
      alpha_min: opacity below which a splat is not drawn.
      compensation_min: least compensation.
      tile_sigmas: where above 0, both radii are so many standard deviations of the longer axis, rounded up.
      backend: "reference" for plain JAX; otherwise it is used where there is no kernel for the platform, the precision,
        the camera model, covariances, or `tile_sigmas`.

    Returns:
      `Projected`. The radii are ceil(k sqrt(variance)) with k = sqrt(2 ln(opacity / alpha_min)), or 3.33 without
      opacities. The compensations are sqrt(det Sigma' before / after the dilation), or the least.

    Raises:
      ValueError: if shapes do not agree, or not exactly one of `covars` and `quats` with `scales` is given.
      TypeError: if an array does not hold floating-point numbers.

    Example:
      >>> one = jnp.ones((1, 3))
      >>> K = jnp.array([[[10.0, 0.0, 4.0], [0.0, 10.0, 4.0], [0.0, 0.0, 1.0]]])
      >>> project_gaussians(one, jnp.eye(4)[:1], one, jnp.eye(4)[None], K, width=8, height=8).depths
      Array([[1.]], dtype=float32)
    """
    planes = near_plane, far_plane
    sizes = check_inputs(_NAME, means, quats, scales, covars, opacities, viewmats, Ks, planes)
    _check.positive_int(_NAME, width=width, height=height)
    _check.choice(_NAME, "backend", backend, ("auto", "native", "reference"))
    if covars is None and camera_model == "pinhole" and not tile_sigmas and backend != "reference":
        gaussians = jnp.asarray(means), jnp.asarray(quats), jnp.asarray(scales)
        matrices = jnp.asarray(viewmats), jnp.asarray(Ks)
        opacities = None if opacities is None else jnp.asarray(opacities)
        if _ffi.takes(*gaussians, *matrices, *(() if opacities is None else (opacities,))):
            rule = ewa_kernel.Settings(width, height, antialiased, alpha_min, compensation_min)
            limits = *planes, eps2d, radius_clip
            return ewa_kernel.project(gaussians, opacities, *matrices, limits, rule, _as_kernel)
    rule = antialiased, alpha_min, compensation_min, tile_sigmas
    settings = _Settings(eps2d, radius_clip, width, height, camera_model, *rule)
    return _project(means, quats, scales, covars, opacities, viewmats, Ks, planes, settings, sizes)


class _Settings(NamedTuple):
    eps2d: Any
    radius_clip: Any
    width: int
    height: int
    camera_model: AnyCameraModel
    antialiased: bool
    alpha_min: float
    compensation_min: float
    tile_sigmas: float


def _project(
    means: Any,
    quats: Any,
    scales: Any,
    covars: Any,
    opacities: Any,
    viewmats: Any,
    Ks: Any,
    planes: Any,
    given: _Settings,
    sizes: dict[str, Any],
) -> Projected:
    """Plain JAX."""
    rank = len(sizes["..."]) + 2
    splats = split_splats(means, quats, scales, covars, opacities, rank)
    camera, named = split_camera(_NAME, viewmats, Ks, given.camera_model, None, sizes)
    near, far, eps2d, radius_clip = (per_camera(limit, rank) for limit in (*planes, given.eps2d, given.radius_clip))
    settings = Settings(eps2d, near, far, radius_clip, given.width, given.height, named, *given[-4:])
    # Culled rows are found first and replaced by harmless ones: a select after the fact would leave 0 * inf = NaN in
    # the gradients.
    plain = _screen(*lax.stop_gradient((splats, camera)), settings, visible=None)
    visible, radii = find_visible(plain, splats, camera, settings)
    screen = _screen(splats, camera, settings, visible)
    return stack(screen, visible, radii, (*sizes["..."], sizes["C"], sizes["N"]))


def _as_kernel(
    rule: ewa_kernel.Settings, means: Any, quats: Any, scales: Any, opacities: Any, viewmats: Any, Ks: Any, limits: Any
) -> Projected:
    """What the kernel computes."""
    near, far, eps2d, radius_clip = (limits[..., i] for i in range(4))
    settings = _Settings(eps2d, radius_clip, rule.width, rule.height, "pinhole", *rule[2:], 0.0)
    opacities = opacities if opacities.shape[-1] else None
    planes = near, far
    sizes = check_inputs(_NAME, means, quats, scales, None, opacities, viewmats, Ks, planes)
    return _project(means, quats, scales, None, opacities, viewmats, Ks, planes, settings, sizes)


def _screen(splats: Splats, camera: Camera, settings: Settings, visible: jax.Array | None) -> Screen:
    """Projects; where `visible` is given, the other rows are replaced by a point splat at depth 1."""

    def safe(value: jax.Array, otherwise: float) -> jax.Array:
        return value if visible is None else jnp.where(visible, value, otherwise)

    model = model_of(camera, settings)
    x, y, z = camera.pose.to_camera(splats.mean)
    x, y, z = safe(x, 0), safe(y, 0), safe(z, 1)
    u, v = model.project(x, y, z, camera.k)
    axes = model.jacobian(x, y, z, camera.k, settings.width, settings.height)
    columns = tuple(zip(*camera.pose.rows, strict=True))
    across, down = (tuple(safe(dot(axis, column), 0) for column in columns) for axis in axes)
    if splats.covar is None:
        assert splats.factor is not None
        columns = tuple(zip(*splats.factor, strict=True))
        across, down = (tuple(dot(axis, column) for column in columns) for axis in (across, down))
        a, b, c = dot(across, across), dot(across, down), dot(down, down)
        # Not a c - b^2, which cancels for splats thinner than a pixel.
        normal = cross(across, down)
        before = dot(normal, normal)
    else:
        image = tuple(dot(row, down) for row in splats.covar)
        a, b = dot(across, tuple(dot(row, across) for row in splats.covar)), dot(across, image)
        c = dot(down, image)
        before = _adjugate_form(splats.covar, cross(across, down))
    before = safe(before, 0)
    det = safe(before + settings.eps2d * (a + c) + settings.eps2d * settings.eps2d, 1)
    seen, depth = model.sees(x, y, z), model.depth(x, y, z)
    a, c = a + settings.eps2d, c + settings.eps2d
    return Screen((x, y, z), seen, depth, u, v, a, b, c, det, compensation(before, det, settings.compensation_min))


def _adjugate_form(s: Matrix, n: Vector) -> jax.Array:
    """n^T adj(S) n, the determinant of the 2x2 matrix T S T^T where n is the cross product of the rows of T."""
    rows = cross(s[1], s[2]), cross(s[2], s[0]), cross(s[0], s[1])
    return dot(n, tuple(dot(row, n) for row in rows))
