"""What happens to gradients on their way back."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxsplat import _check
from jaxsplat.types import Blend


def clip_cotangent(x: jax.Array, *, limit: jax.Array | float) -> jax.Array:
    """Returns x as it is, and clips every value of its gradient to [-limit, limit] in the backward pass.

    What is computed then is no longer the gradient of any loss, but a step that no single value dominates. A NaN
    stays one. Reverse mode only.

    Args:
      x: any shape.
      limit: largest magnitude, traced; `inf` for none.

    Returns:
      x.

    Raises:
      TypeError: if x does not hold floating-point numbers.

    Example:
      >>> jax.grad(lambda x: jnp.sum(7.0 * clip_cotangent(x, limit=2.0)))(jnp.ones(2))
      Array([2., 2.], dtype=float32)
    """
    _check.floating("clip_cotangent", x=x)
    return _clip(x, jnp.asarray(limit, x.dtype))


def clip_alphas(alpha: jax.Array, blend: Blend) -> jax.Array:
    """Opacities whose gradients are clipped, if the rule says so."""
    if math.isinf(blend.alpha_gradient_max):
        return alpha
    return clip_cotangent(alpha, limit=blend.alpha_gradient_max)


@jax.custom_vjp
def _clip(x: jax.Array, limit: jax.Array) -> jax.Array:
    del limit
    return x


def _clip_fwd(x: jax.Array, limit: jax.Array) -> tuple[jax.Array, jax.Array]:
    return x, limit


def _clip_bwd(limit: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    return jnp.clip(v, -limit, limit), jnp.zeros_like(limit)


_clip.defvjp(_clip_fwd, _clip_bwd)
