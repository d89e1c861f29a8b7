"""Projection of 3D Gaussians to the screen by a local linearisation of the camera (elliptical weighted averaging).

Zwicker et al., "EWA Splatting", 2002. Everything is written as scalar expressions over arrays [..., C, N], so that XLA
fuses it into one loop; only the results are stacked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxsplat import _check, _ffi, _linalg
from jaxsplat import _constants as const
from jaxsplat.cameras import MODELS, Intrinsics
from jaxsplat.projection import ewa_kernel
from jaxsplat.types import Backend, CameraModel, Projected

RADIUS_LIMIT = 2**30
"""Largest radius in pixels, which leaves room in int32 to add a radius to a tile index."""

Vector = tuple[jax.Array, jax.Array, jax.Array]


class _Splats(NamedTuple):
    """Per splat, as components [..., 1, N]. Exactly one of `factor` (M with covariance M M^T) and `covar` is given."""

    mean: tuple[jax.Array, ...]
    factor: tuple[tuple[jax.Array, ...], ...] | None
    covar: tuple[tuple[jax.Array, ...], ...] | None
    opacity: jax.Array | None
    usable: jax.Array


class _Camera(NamedTuple):
    """Per camera, as components [..., C, 1]."""

    rows: tuple[tuple[jax.Array, ...], ...]
    shift: tuple[jax.Array, ...]
    k: Intrinsics
    usable: jax.Array


class _Settings(NamedTuple):
    eps2d: Any
    near: Any
    far: Any
    radius_clip: Any
    width: int
    height: int
    camera_model: str
    antialiased: bool
    alpha_min: float


class _Screen(NamedTuple):
    """Per camera and splat, as arrays [..., C, N]: a, b, c is the dilated covariance, `det` its determinant."""

    x: jax.Array
    y: jax.Array
    depth: jax.Array
    u: jax.Array
    v: jax.Array
    a: jax.Array
    b: jax.Array
    c: jax.Array
    det: jax.Array
    compensation: jax.Array


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
    camera_model: CameraModel = "pinhole",
    antialiased: bool = False,
    alpha_min: float = const.ALPHA_MIN,
    backend: Backend = "auto",
) -> Projected:
    """Projects 3D Gaussians to 2D Gaussians in every camera.

    Sigma' = J W Sigma W^T J^T + eps2d I, with W the rotation of the view matrix and J the camera's derivative at the
    mean (for pinhole cameras taken no further than 15% outside the image).

    A row is culled, which makes all its outputs zero and its gradients exactly zero, where: the depth is not strictly
    between the planes; the determinant of Sigma' is not positive (to working precision); both radii are at most
    `radius_clip`; the bounding box lies outside the image; the opacity (times the compensation when `antialiased`) is
    below `alpha_min`, an opacity equal to it being kept; a scale is zero; the quaternion is zero (to within 1e-12); an
    input of the row is not finite; or a result is beyond the range in which gradients are finite (1e18 in float32).

    Culling itself is not differentiated, so the planes, `radius_clip` and, for lack of another use, `opacities` get
    zero gradients. So do the last rows of `viewmats` and `Ks`, taken to be (0, 0, 0, 1) and (0, 0, 1), and, except for
    pinhole cameras, the off-diagonal entries K[0, 1] and K[1, 0].

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
      camera_model: "pinhole", "ortho" or "fisheye".
      antialiased: whether the opacities will be multiplied by the compensations.
      alpha_min: opacity below which a splat is not drawn.
      backend: "reference" for plain JAX; otherwise it is used where there is no kernel for the platform, the precision,
        the camera model, or covariances.

    Returns:
      `Projected`. The radii are ceil(k sqrt(variance)) with k = sqrt(2 ln(opacity / alpha_min)), or 3.33 without
      opacities. The compensations are sqrt(det Sigma' before / after the dilation), at least 0.005.

    Raises:
      ValueError: if shapes do not agree, or not exactly one of `covars` and `quats` with `scales` is given.
      TypeError: if an array does not hold floating-point numbers.

    Example:
      >>> one = jnp.ones((1, 3))
      >>> K = jnp.array([[[10.0, 0.0, 4.0], [0.0, 10.0, 4.0], [0.0, 0.0, 1.0]]])
      >>> project_gaussians(one, jnp.eye(4)[:1], one, jnp.eye(4)[None], K, width=8, height=8).depths
      Array([[1.]], dtype=float32)
    """
    name = "project_gaussians"
    sizes = _checked(name, means, quats, scales, covars, opacities, viewmats, Ks, near_plane, far_plane)
    _check.positive_int(name, width=width, height=height)
    _check.choice(name, "camera_model", camera_model, tuple(MODELS))
    _check.choice(name, "backend", backend, ("auto", "native", "reference"))
    if covars is None and camera_model == "pinhole" and backend != "reference":
        splats = tuple(jnp.asarray(x) for x in (means, quats, scales))
        viewmats, Ks = jnp.asarray(viewmats), jnp.asarray(Ks)
        opacities = None if opacities is None else jnp.asarray(opacities)
        if _ffi.takes(*splats, viewmats, Ks, *(() if opacities is None else (opacities,))):
            settings = ewa_kernel.Settings(width, height, antialiased, alpha_min)
            limits = near_plane, far_plane, eps2d, radius_clip
            return ewa_kernel.project(splats, opacities, viewmats, Ks, limits, settings)
    rank = len(sizes["..."]) + 2
    splats = _splats(means, quats, scales, covars, opacities, rank)
    camera = _camera(viewmats, Ks, rank)
    settings = _Settings(
        eps2d,
        _per_camera(near_plane, rank),
        _per_camera(far_plane, rank),
        radius_clip,
        width,
        height,
        camera_model,
        antialiased,
        alpha_min,
    )
    # Culled rows are found first and replaced by harmless ones: a select after the fact would leave 0 * inf = NaN in
    # the gradients.
    plain = _screen(*lax.stop_gradient((splats, camera)), settings, visible=None)
    visible, radii = _visible(plain, splats, camera, settings)
    screen = _screen(splats, camera, settings, visible)
    return _stack(screen, visible, radii, (*sizes["..."], sizes["C"], sizes["N"]))


def _checked(
    name: str,
    means: Any,
    quats: Any,
    scales: Any,
    covars: Any,
    opacities: Any,
    viewmats: Any,
    Ks: Any,
    near_plane: Any,
    far_plane: Any,
) -> dict[str, Any]:
    if (covars is None) != (quats is not None and scales is not None) or (
        covars is not None and (quats is not None or scales is not None)
    ):
        raise ValueError(
            f"{name}: expected either quats and scales, or covars alone, got {_given(quats, scales, covars)}."
        )
    triu = covars is not None and jnp.shape(covars)[-1:] == (6,)
    arrays: dict[str, tuple[Any, str]] = {
        "means": (means, "... N 3"),
        "quats": (quats, "... N 4"),
        "scales": (scales, "... N 3"),
        "covars": (covars, "... N 6" if triu else "... N 3 3"),
        "opacities": (opacities, "... N"),
        "viewmats": (viewmats, "... C 4 4"),
        "Ks": (Ks, "... C 3 3"),
    }
    for plane, value in (("near_plane", near_plane), ("far_plane", far_plane)):
        if jnp.ndim(value):
            arrays[plane] = (value, "... C")
    sizes = _check.shapes(name, **arrays)
    _check.floating(name, **{key: value for key, (value, _) in arrays.items()})
    return sizes


def _given(quats: Any, scales: Any, covars: Any) -> str:
    present = [key for key, value in (("quats", quats), ("scales", scales), ("covars", covars)) if value is not None]
    return " and ".join(present) or "none of them"


def _splats(means: Any, quats: Any, scales: Any, covars: Any, opacities: Any, rank: int) -> _Splats:
    """Splits the per-splat inputs and replaces those of unusable rows by zeros."""
    mean = _columns(means, rank)
    finite = [jnp.isfinite(part) for part in mean]
    if covars is None:
        parts = _columns(quats, rank) + _columns(scales, rank)
        largest = jnp.maximum(jnp.maximum(abs(parts[0]), abs(parts[1])), jnp.maximum(abs(parts[2]), abs(parts[3])))
        finite += [largest > const.NORM_FLOOR, *(scale != 0 for scale in parts[4:])]
    else:
        parts = _columns(covars if covars.shape[-1] == 6 else covars.reshape(*covars.shape[:-2], 9), rank)
    finite += [jnp.isfinite(part) for part in parts]
    opacity = None
    if opacities is not None:
        opacity = _linalg.lift(opacities[..., None, :], rank)
        finite.append(jnp.isfinite(opacity))
    usable = finite[0]
    for condition in finite[1:]:
        usable = usable & condition
    mean = tuple(jnp.where(usable, part, 0) for part in mean)
    parts = tuple(jnp.where(usable, part, 0) for part in parts)
    factor = covar = None
    if covars is None:
        rows = _linalg.rotation(*parts[:4])
        factor = tuple(tuple(entry * scale for entry, scale in zip(row, parts[4:], strict=True)) for row in rows)
    elif len(parts) == 6:
        covar = tuple(tuple(parts[index] for index in row) for row in ((0, 1, 2), (1, 3, 4), (2, 4, 5)))
    else:
        covar = tuple(tuple((parts[3 * i + j] + parts[3 * j + i]) * 0.5 for j in range(3)) for i in range(3))
    return _Splats(mean, factor, covar, opacity, usable)


def _camera(viewmats: jax.Array, Ks: jax.Array, rank: int) -> _Camera:
    """Splits the per-camera inputs and replaces those of a camera that is not finite by zeros."""
    view = _linalg.lift(viewmats[..., :3, :].reshape(*viewmats.shape[:-2], 1, 12), rank + 1)
    matrix = _linalg.lift(Ks[..., :2, :].reshape(*Ks.shape[:-2], 1, 6), rank + 1)
    usable = jnp.all(jnp.isfinite(view), -1) & jnp.all(jnp.isfinite(matrix), -1)
    view = jnp.where(usable[..., None], view, 0)
    matrix = jnp.where(usable[..., None], matrix, 0)
    entries = _linalg.components(view)
    rows = tuple(entries[4 * i : 4 * i + 3] for i in range(3))
    return _Camera(rows, entries[3::4], Intrinsics(*_linalg.components(matrix)), usable)


def _columns(x: jax.Array, rank: int) -> tuple[jax.Array, ...]:
    return _linalg.components(_linalg.lift(x[..., None, :, :], rank + 1))


def _per_camera(value: Any, rank: int) -> Any:
    return _linalg.lift(jnp.asarray(value)[..., None], rank) if jnp.ndim(value) else value


def _screen(splats: _Splats, camera: _Camera, settings: _Settings, visible: jax.Array | None) -> _Screen:
    """Projects; where `visible` is given, the other rows are replaced by a point splat at depth 1."""

    def safe(value: jax.Array, otherwise: float) -> jax.Array:
        return value if visible is None else jnp.where(visible, value, otherwise)

    model = MODELS[settings.camera_model]
    x, y, z = (_dot(row, splats.mean) + shift for row, shift in zip(camera.rows, camera.shift, strict=True))
    x, y, z = safe(x, 0), safe(y, 0), safe(z, 1)
    u, v = model.project(x, y, z, camera.k)
    axes = model.jacobian(x, y, z, camera.k, settings.width, settings.height)
    columns = tuple(zip(*camera.rows, strict=True))
    across, down = (tuple(safe(_dot(axis, column), 0) for column in columns) for axis in axes)
    if splats.covar is None:
        assert splats.factor is not None
        columns = tuple(zip(*splats.factor, strict=True))
        across, down = (tuple(_dot(axis, column) for column in columns) for axis in (across, down))
        a, b, c = _dot(across, across), _dot(across, down), _dot(down, down)
        # Not a c - b^2, which cancels for splats thinner than a pixel.
        normal = _cross(across, down)
        before = _dot(normal, normal)
    else:
        image = tuple(_dot(row, down) for row in splats.covar)
        a, b = _dot(across, tuple(_dot(row, across) for row in splats.covar)), _dot(across, image)
        c = _dot(down, image)
        before = _adjugate_form(splats.covar, _cross(across, down))
    before = safe(before, 0)
    det = safe(before + settings.eps2d * (a + c) + settings.eps2d * settings.eps2d, 1)
    return _Screen(x, y, z, u, v, a + settings.eps2d, b, c + settings.eps2d, det, _compensation(before, det))


def _compensation(before: jax.Array, det: jax.Array) -> jax.Array:
    """sqrt(before / det), no smaller than `COMPENSATION_MIN`, where det = before + non-negative terms."""
    ratio = before / det
    above = ratio > const.COMPENSATION_MIN**2
    return jnp.where(above, jnp.sqrt(jnp.where(above, ratio, 1)), const.COMPENSATION_MIN)


def _visible(
    screen: _Screen, splats: _Splats, camera: _Camera, settings: _Settings
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Which rows are drawn, and their radii in pixels (floating point)."""
    visible = splats.usable & camera.usable & (screen.depth > settings.near) & (screen.depth < settings.far)
    # The square of anything larger overflows in the gradients.
    limit = float(jnp.finfo(screen.det.dtype).max) ** 0.5 / 4
    trace = screen.a + screen.c
    visible &= (trace < limit) & (screen.det * limit > 1) & (trace < limit * screen.det)
    for value in (screen.x, screen.y, screen.depth, screen.u, screen.v, screen.b):
        visible &= jnp.abs(value) < limit
    extent: Any = const.EXTENT
    if splats.opacity is not None:
        opacity = splats.opacity * screen.compensation if settings.antialiased else splats.opacity
        visible &= opacity >= settings.alpha_min
        extent = jnp.sqrt(2 * jnp.log(jnp.maximum(opacity / settings.alpha_min, 1)))
    # At least 1: a splat whose opacity is exactly alpha_min can still reach the pixel that it is centred on.
    across, down = (jnp.clip(jnp.ceil(extent * jnp.sqrt(s)), 1, RADIUS_LIMIT) for s in (screen.a, screen.c))
    visible &= (across > settings.radius_clip) | (down > settings.radius_clip)
    visible &= (screen.u + across > 0) & (screen.u - across < settings.width)
    visible &= (screen.v + down > 0) & (screen.v - down < settings.height)
    return visible, (across, down)


def _stack(
    screen: _Screen, visible: jax.Array, radii: tuple[jax.Array, jax.Array], shape: tuple[int, ...]
) -> Projected:
    def masked(*parts: jax.Array) -> list[jax.Array]:
        return [jnp.broadcast_to(jnp.where(visible, part, 0), shape) for part in parts]

    conic = _linalg.inverse_2x2(screen.a, screen.b, screen.c, screen.det)
    return Projected(
        means2d=_linalg.interleave(*masked(screen.u, screen.v)),
        conics=_linalg.interleave(*masked(*conic)),
        depths=masked(screen.depth)[0],
        radii=_linalg.interleave(*(part.astype(jnp.int32) for part in masked(*radii))),
        compensations=masked(screen.compensation)[0],
    )


def _dot(p: tuple[jax.Array, ...], q: tuple[jax.Array, ...]) -> jax.Array:
    return p[0] * q[0] + p[1] * q[1] + p[2] * q[2]


def _cross(p: tuple[jax.Array, ...], q: tuple[jax.Array, ...]) -> Vector:
    return p[1] * q[2] - p[2] * q[1], p[2] * q[0] - p[0] * q[2], p[0] * q[1] - p[1] * q[0]


def _adjugate_form(s: tuple[tuple[jax.Array, ...], ...], n: Vector) -> jax.Array:
    """n^T adj(S) n, the determinant of the 2x2 matrix T S T^T where n is the cross product of the rows of T."""
    rows = _cross(s[1], s[2]), _cross(s[2], s[0]), _cross(s[0], s[1])
    return _dot(n, tuple(_dot(row, n) for row in rows))
