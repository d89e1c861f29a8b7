"""Terms of the loss that keep splats in shape, whatever the pictures say."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxsplat.strategy.rows import in_use
from jaxsplat.types import Splats


@dataclasses.dataclass(frozen=True)
class Regularizers:
    """Weights of the terms; one of weight zero costs nothing.

    Attributes:
      opacity: of the mean opacity.
      scale: of the mean scale, in units of the scene's size.
      anisotropy: of the mean excess of the longest axis over `max_ratio` times the shortest (Xie et al. 2024).
      max_ratio: of the axes of a splat, up to which nothing is paid.
    """

    opacity: float = 0.0
    scale: float = 0.0
    anisotropy: float = 0.0
    max_ratio: float = 10.0


def regularize(splats: Splats, count: jax.Array, *, weights: Regularizers) -> jax.Array:
    """Weighted means over the splats in use of opacity, scale and needle shape.

    Args:
      splats: N rows of capacity.
      count: [] int32, rows in use.
      weights: of the terms.

    Returns:
      [] a term of the loss.

    Example:
      >>> loss = loss + regularize(splats, count, weights=Regularizers(opacity=0.01))
    """
    used = in_use(splats, count)
    number = jnp.maximum(count, 1).astype(splats.means.dtype)
    total = jnp.zeros((), splats.means.dtype)
    if weights.opacity:
        total += weights.opacity * jnp.where(used, jax.nn.sigmoid(splats.logit_opacities), 0.0).sum() / number
    if weights.scale:
        total += weights.scale * jnp.where(used[:, None], jnp.exp(splats.log_scales), 0.0).sum() / (3.0 * number)
    if weights.anisotropy:
        # A row that is not in use or not finite passes by `where` before the exponential: no NaN in the gradient.
        sound = used & jnp.isfinite(splats.log_scales).all(-1)
        log_scales = jnp.where(sound[:, None], splats.log_scales, 0.0)
        ratio = jnp.exp(jnp.minimum(log_scales.max(-1) - log_scales.min(-1), _MOST_LOG_RATIO))
        total += weights.anisotropy * jnp.where(sound, jnp.maximum(ratio - weights.max_ratio, 0.0), 0.0).sum() / number
    return total


_MOST_LOG_RATIO = 20.0
"""The exponential of more would swamp the loss; the gradient is then zero."""
