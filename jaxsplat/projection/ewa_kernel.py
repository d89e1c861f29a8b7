"""Projection of 3D Gaussians by pinhole cameras, as one pass over the splats.

The same mathematics as in `ewa.py`, which XLA turns into several passes with many temporary arrays.
"""

from __future__ import annotations

import functools
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

    def attributes(self) -> dict[str, Any]:
        """The settings and the constants that the kernel takes."""
        return {
            "width": self.width,
            "height": self.height,
            "antialiased": bool(self.antialiased),
            "alpha_min": float(self.alpha_min),
            "extent": const.EXTENT,
            "compensation_min": const.COMPENSATION_MIN,
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
) -> Projected:
    """Projects by the kernel; arguments and results as of `project_gaussians`, all in float32.

    Args:
      splats: means, quats and scales.
      opacities: [..., N] or None.
      viewmats: [..., C, 4, 4].
      Ks: [..., C, 3, 3].
      limits: near plane and far plane, scalars or [..., C]; eps2d and radius_clip, scalars.
      settings: what is static.

    Returns:
      The splats on the screen.
    """
    cameras = viewmats.shape[-3]
    columns = [jnp.asarray(limit, jnp.float32) for limit in limits]
    shape = np.broadcast_shapes((cameras,), *(column.shape for column in columns))
    table = jnp.stack([jnp.broadcast_to(column, shape) for column in columns], axis=-1)
    operands = [*splats, jnp.zeros((0,), jnp.float32) if opacities is None else opacities, viewmats, Ks, table]
    results: Any = _call(settings, tuple(_ffi.vary_alike(operands)))
    means2d, conics, depths, radii, compensations = results
    return Projected(means2d=means2d, conics=conics, depths=depths, radii=radii, compensations=compensations)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _call(settings: Settings, operands: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    rows = (operands[4].shape[-3], operands[0].shape[-2])
    results = [((*rows, 2), jnp.float32), ((*rows, 3), jnp.float32), (rows, jnp.float32)]
    results += [((*rows, 2), jnp.int32), (rows, jnp.float32)]
    return tuple(_ffi.call("project_gaussians", operands, _RANKS, results, **settings.attributes()))


def _call_fwd(settings: Settings, operands: tuple[jax.Array, ...]) -> tuple[tuple[jax.Array, ...], Any]:
    results: Any = _call(settings, operands)
    return results, (operands, results[3])


def _call_bwd(settings: Settings, saved: Any, v: tuple[Any, ...]) -> tuple[tuple[Any, ...]]:
    operands, radii = saved
    means, quats, scales, opacities, viewmats, Ks, limits = operands
    v_means2d, v_conics, v_depths, _, v_compensations = v
    own = [x.shape[-2:] for x in (means, quats, scales)] + [x.shape[-3:] for x in (viewmats, Ks)]
    results = [(shape, jnp.float32) for shape in (*own, viewmats.shape[-3:-2])]
    *gradients, v_eps2d = _ffi.call(
        "project_gaussians_gradient",
        (*operands, radii, v_means2d, v_conics, v_depths, v_compensations),
        (*_RANKS, 3, 3, 3, 2, 2),
        results,
        **settings.attributes(),
    )
    v_means, v_quats, v_scales, v_viewmats, v_Ks = (
        sum_to(g, x.shape) for g, x in zip(gradients, (means, quats, scales, viewmats, Ks), strict=True)
    )
    # Culling is not differentiated, so the other limits and the opacities have none.
    v_limits = jnp.zeros((*v_eps2d.shape, 4), jnp.float32).at[..., 2].set(v_eps2d)
    return ((v_means, v_quats, v_scales, jnp.zeros_like(opacities), v_viewmats, v_Ks, sum_to(v_limits, limits.shape)),)


_call.defvjp(_call_fwd, _call_bwd)
