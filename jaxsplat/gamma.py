"""Colors as they are displayed and colors in linear light, by a pure power."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxsplat._constants import GAMMA


def linearize_gamma(colors: jax.Array) -> jax.Array:
    """Turns colors as they are displayed into linear light: max(0, x)^2.2."""
    return _power(colors, GAMMA)


def encode_gamma(colors: jax.Array) -> jax.Array:
    """Turns linear light into colors as they are displayed: max(0, x)^(1 / 2.2). No gradient where x <= 0."""
    return _power(colors, 1.0 / GAMMA)


def _power(x: jax.Array, exponent: float) -> jax.Array:
    # Chosen before the power too: its slope at 0 is infinite, and 0 * inf would be the gradient.
    positive = x > 0
    return jnp.where(positive, jnp.where(positive, x, 1.0) ** exponent, jnp.zeros_like(x))
