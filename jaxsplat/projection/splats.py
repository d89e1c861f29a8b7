"""What the projections of 3D Gaussians have in common: the inputs by components, what is culled, and the output.

Everything is written as scalar expressions over arrays [..., C, N], so that XLA fuses it into one loop; only the
results are stacked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat import _check, _linalg
from jaxsplat import _constants as const
from jaxsplat.cameras import AnyCameraModel, Intrinsics, Lens, Model, Shutter, find_model
from jaxsplat.cameras.distorted import DistortedCamera
from jaxsplat.cameras.distortion import turning_radius
from jaxsplat.cameras.lens import split_lens
from jaxsplat.cameras.pose import Pose, split_pose
from jaxsplat.cameras.shutter import Motion, check_shutter, motion
from jaxsplat.types import Projected

RADIUS_LIMIT = 2**30
"""Largest radius in pixels, which leaves room in int32 to add a radius to a tile index."""

Matrix = tuple[tuple[jax.Array, ...], ...]


class Splats(NamedTuple):
    """Per splat, as components [..., 1, N]. Exactly one of `factor` (M with covariance M M^T) and `covar` is given."""

    mean: tuple[jax.Array, ...]
    factor: Matrix | None
    covar: Matrix | None
    opacity: jax.Array | None
    usable: jax.Array


class Camera(NamedTuple):
    """Per camera, as components [..., C, 1]. `lens` and `motion` are given where there is a lens or a shutter."""

    pose: Pose
    k: Intrinsics
    lens: DistortedCamera | None
    motion: Motion | None
    usable: jax.Array


class Settings(NamedTuple):
    """What does not depend on splats; `named` is the camera model where there is no lens."""

    eps2d: Any
    near: Any
    far: Any
    radius_clip: Any
    width: int
    height: int
    named: Model | None
    antialiased: bool
    alpha_min: float
    compensation_min: float
    tile_sigmas: float


class Screen(NamedTuple):
    """Per camera and splat, as arrays [..., C, N]: a, b, c is the dilated covariance, `det` its determinant.

    `point` is the centre in camera space, `seen` whether the camera model shows it.
    """

    point: tuple[jax.Array, ...]
    seen: jax.Array
    depth: jax.Array
    u: jax.Array
    v: jax.Array
    a: jax.Array
    b: jax.Array
    c: jax.Array
    det: jax.Array
    compensation: jax.Array


def check_inputs(
    name: str, means: Any, quats: Any, scales: Any, covars: Any, opacities: Any, viewmats: Any, Ks: Any, planes: Any
) -> dict[str, Any]:
    """Checks shapes and types of the arrays of a projection, and returns the sizes; `planes` are near and far."""
    if (covars is None) != (quats is not None and scales is not None) or (
        covars is not None and (quats is not None or scales is not None)
    ):
        given = (("quats", quats), ("scales", scales), ("covars", covars))
        present = " and ".join(key for key, value in given if value is not None) or "none of them"
        raise ValueError(f"{name}: expected either quats and scales, or covars alone, got {present}.")
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
    for plane, value in zip(("near_plane", "far_plane"), planes, strict=True):
        if jnp.ndim(value):
            arrays[plane] = (value, "... C")
    sizes = _check.shapes(name, **arrays)
    _check.floating(name, **{key: value for key, (value, _) in arrays.items()})
    return sizes


def split_splats(means: Any, quats: Any, scales: Any, covars: Any, opacities: Any, rank: int) -> Splats:
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
    return Splats(mean, factor, covar, opacity, usable)


def split_camera(
    name: str, viewmats: Any, Ks: Any, camera_model: AnyCameraModel, shutter: Shutter | None, sizes: dict[str, Any]
) -> tuple[Camera, Model | None]:
    """Splits the per-camera inputs, and replaces those of a camera that is not finite by zeros.

    Returns:
      The camera, and its model where that is no lens.
    """
    rank = len(sizes["..."]) + 1
    matrix = _linalg.components(_linalg.lift(Ks[..., :2, :].reshape(*Ks.shape[:-2], 1, 6), rank + 2))
    parts: Any = split_pose(_linalg.lift(viewmats, rank + 2), 1), Intrinsics(*matrix)
    model = lens = end = None
    if isinstance(camera_model, Lens):
        lens = split_lens(name, camera_model, sizes, rank, 1)
    else:
        model = find_model(name, camera_model, sizes, rank, 1)
    if shutter is not None:
        check_shutter(name, shutter, viewmats)
        end = split_pose(_linalg.lift(shutter.viewmats_end, rank + 2), 1)
    leaves = jax.tree.leaves((parts, lens, end))
    usable = jnp.isfinite(leaves[0])
    for leaf in leaves[1:]:
        usable = usable & jnp.isfinite(leaf)
    (pose, k), lens, end = jax.tree.map(lambda part: jnp.where(usable, part, 0), (parts, lens, end))
    return Camera(
        pose,
        k,
        None if lens is None else DistortedCamera(lens, turning_radius(lens)),
        None if end is None else motion(pose, end),
        usable,
    ), model


def model_of(camera: Camera, settings: Settings) -> Model:
    """The camera model, which is one of the two."""
    model = settings.named if camera.lens is None else camera.lens
    assert model is not None
    return model


def per_camera(value: Any, rank: int) -> Any:
    """A scalar, or [..., C] with an axis for the splats."""
    return _linalg.lift(jnp.asarray(value)[..., None], rank) if jnp.ndim(value) else value


def compensation(before: jax.Array, det: jax.Array, least: float) -> jax.Array:
    """sqrt(before / det), no smaller than `least`, where det = before + non-negative terms."""
    ratio = before / det
    above = ratio > least**2
    return jnp.where(above, jnp.sqrt(jnp.where(above, ratio, 1)), least)


def find_visible(
    screen: Screen, splats: Splats, camera: Camera, settings: Settings
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Which rows are drawn, and their radii in pixels (floating point)."""
    visible = splats.usable & camera.usable & screen.seen
    visible &= (screen.depth > settings.near) & (screen.depth < settings.far)
    # The square of anything larger overflows in the gradients.
    limit = float(jnp.finfo(screen.det.dtype).max) ** 0.5 / 4
    trace = screen.a + screen.c
    visible &= (trace < limit) & (screen.det * limit > 1) & (trace < limit * screen.det)
    for value in (*screen.point, screen.u, screen.v, screen.b):
        visible &= jnp.abs(value) < limit
    extent: Any = const.EXTENT
    if splats.opacity is not None:
        opacity = splats.opacity * screen.compensation if settings.antialiased else splats.opacity
        visible &= opacity >= settings.alpha_min
        extent = jnp.sqrt(2 * jnp.log(jnp.maximum(opacity / settings.alpha_min, 1)))
    # At least 1: a splat whose opacity is exactly alpha_min can still reach the pixel that it is centred on.
    sides = extent * jnp.sqrt(screen.a), extent * jnp.sqrt(screen.c)
    if settings.tile_sigmas:
        half = 0.5 * (screen.a + screen.c)
        longer = half + jnp.sqrt(jnp.maximum(half * half - screen.det, 0))
        sides = (settings.tile_sigmas * jnp.sqrt(longer),) * 2
    across, down = (jnp.clip(jnp.ceil(side), 1, RADIUS_LIMIT) for side in sides)
    visible &= (across > settings.radius_clip) | (down > settings.radius_clip)
    visible &= (screen.u + across > 0) & (screen.u - across < settings.width)
    visible &= (screen.v + down > 0) & (screen.v - down < settings.height)
    return visible, (across, down)


def stack(screen: Screen, visible: jax.Array, radii: tuple[jax.Array, jax.Array], shape: tuple[int, ...]) -> Projected:
    """The output, with zeros in the rows that are culled."""

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


def _columns(x: jax.Array, rank: int) -> tuple[jax.Array, ...]:
    return _linalg.components(_linalg.lift(x[..., None, :, :], rank + 1))
