"""Projection of 3D Gaussians by pinhole cameras, as one pass over the splats.

The same mathematics as in `ewa.py`, which XLA turns into several passes with many temporary arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import _constants as const
from jaxsplat import _ffi
from jaxsplat._index import sum_to
from jaxsplat.types import Projected


class Settings(NamedTuple):
    """What is static."""

    width: int
    height: int
    antialiased: bool
    alpha_min: float
    compensation_min: float

    def attributes(self) -> dict[str, Any]:
        """The settings and the constants that the kernel takes."""
        return {
            "width": self.width,
            "height": self.height,
            "antialiased": bool(self.antialiased),
            "alpha_min": float(self.alpha_min),
            "extent": const.EXTENT,
            "compensation_min": float(self.compensation_min),
            "clamp_margin": const.CLAMP_MARGIN,
            "norm_floor": const.NORM_FLOOR,
        }


# Number of own axes: means, quats, scales, opacities, viewmats, Ks, limits.
_RANKS = (2, 2, 2, 1, 3, 3, 2)


def project(
    splats: tuple[jax.Array, jax.Array, jax.Array],
    opacities: jax.Array | None,
    viewmats: jax.Array,
    Ks: jax.Array,
    limits: tuple[Any, Any, Any, Any],
    settings: Settings,
    plain: Callable[..., Projected],
) -> Projected:
    """Projects by the kernel; arguments and results as of `project_gaussians`, all in float32.

    Args:
      splats: means, quats and scales.
      opacities: [..., N] or None.
      viewmats: [..., C, 4, 4].
      Ks: [..., C, 3, 3].
      limits: near plane and far plane, scalars or [..., C]; eps2d and radius_clip, scalars.
      settings: what is static.
      plain: settings and operands -> the same in plain JAX, for platforms that have no kernel.

    Returns:
      The splats on the screen.
    """
    cameras = viewmats.shape[-3]
    columns = [jnp.asarray(limit, jnp.float32) for limit in limits]
    shape = np.broadcast_shapes((cameras,), *(column.shape for column in columns))
    table = jnp.stack([jnp.broadcast_to(column, shape) for column in columns], axis=-1)
    operands = [*splats, jnp.zeros((0,), jnp.float32) if opacities is None else opacities, viewmats, Ks, table]
    return _call(settings, plain, tuple(_ffi.vary_alike(operands)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _call(settings: Settings, plain: Callable[..., Projected], operands: tuple[jax.Array, ...]) -> Projected:
    def native(*operands: jax.Array) -> Projected:
        rows = (operands[4].shape[-3], operands[0].shape[-2])
        results = [((*rows, 2), jnp.float32), ((*rows, 3), jnp.float32), (rows, jnp.float32)]
        results += [((*rows, 2), jnp.int32), (rows, jnp.float32)]
        outputs = _ffi.call("project_gaussians", operands, _RANKS, results, **settings.attributes())
        means2d, conics, depths, radii, compensations = outputs
        return Projected(means2d=means2d, conics=conics, depths=depths, radii=radii, compensations=compensations)

    return _ffi.by_platform(native, functools.partial(plain, settings), *operands)


def _call_fwd(settings: Settings, plain: Any, operands: tuple[jax.Array, ...]) -> tuple[Projected, Any]:
    projected: Any = _call(settings, plain, operands)
    return projected, (operands, projected.radii)


def _call_bwd(settings: Settings, plain: Any, saved: Any, v: Projected) -> tuple[tuple[Any, ...]]:
    operands, radii = saved
    cotangents = v.means2d, v.conics, v.depths, v.compensations
    v_operands = _ffi.by_platform(
        functools.partial(_native_gradient, settings),
        functools.partial(_plain_gradient, settings, plain),
        *_ffi.vary_alike([*cotangents, radii, *operands]),
    )
    return (tuple(v_operands),)


def _native_gradient(settings: Settings, *arguments: jax.Array) -> list[jax.Array]:
    cotangents, radii, operands = arguments[:4], arguments[4], arguments[5:]
    means, quats, scales, opacities, viewmats, Ks, _ = operands
    own = [x.shape[-2:] for x in (means, quats, scales)] + [x.shape[-3:] for x in (viewmats, Ks)]
    results = [(shape, jnp.float32) for shape in (*own, viewmats.shape[-3:-2])]
    v_means, v_quats, v_scales, v_viewmats, v_Ks, v_eps2d = _ffi.call(
        "project_gaussians_gradient",
        (*operands, radii, *cotangents),
        (*_RANKS, 3, 3, 3, 2, 2),
        results,
        **settings.attributes(),
    )
    # Culling is not differentiated, so the other limits and the opacities have none.
    v_limits = jnp.zeros((*v_eps2d.shape, 4), jnp.float32).at[..., 2].set(v_eps2d)
    gradients = v_means, v_quats, v_scales, jnp.zeros_like(opacities), v_viewmats, v_Ks, v_limits
    return [sum_to(g, x.shape) for g, x in zip(gradients, operands, strict=True)]


def _plain_gradient(settings: Settings, plain: Any, *arguments: jax.Array) -> list[jax.Array]:
    def floats(*operands: jax.Array) -> tuple[jax.Array, ...]:
        projected = plain(settings, *operands)
        return projected.means2d, projected.conics, projected.depths, projected.compensations

    return list(jax.vjp(floats, *arguments[5:])[1](tuple(arguments[:4])))


_call.defvjp(_call_fwd, _call_bwd)
