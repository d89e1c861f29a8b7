"""Gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.tolerances import DIFFERENCES


def assert_gradients(function: Callable[..., Any], arguments: Sequence[jax.Array], *, step: float = 1e-6) -> None:
    """Compares the gradient of every argument, along a random direction, with a central difference in float64.

    The function may return any tree of arrays; integers are left out. The scene must be kept off the cut-offs.
    """
    rng = np.random.default_rng(7)
    outputs = jax.tree.leaves(jax.eval_shape(function, *arguments))
    weights = [rng.normal(size=x.shape) if jnp.issubdtype(x.dtype, jnp.floating) else None for x in outputs]

    def loss(*arguments: jax.Array) -> jax.Array:
        leaves = jax.tree.leaves(function(*arguments))
        terms = [jnp.sum(leaf * w) for leaf, w in zip(leaves, weights, strict=True) if w is not None]
        return jnp.sum(jnp.stack(terms))

    # One program for the moved values too: compiling takes longer than any of these.
    compiled = jax.jit(jax.value_and_grad(loss, tuple(range(len(arguments)))))
    gradients = compiled(*arguments)[1]
    for k, (argument, gradient) in enumerate(zip(arguments, gradients, strict=True)):
        assert argument.dtype == jnp.float64
        assert np.isfinite(gradient).all(), f"argument {k}"
        direction = rng.normal(size=argument.shape)
        steps = [argument + sign * step * direction for sign in (1, -1)]
        moved = [compiled(*arguments[:k], there, *arguments[k + 1 :])[0] for there in steps]
        expected = (moved[0] - moved[1]) / (2 * step)
        got = np.sum(np.asarray(gradient) * direction)
        scale = np.sqrt(np.sum(np.square(gradient)) * np.sum(direction**2)) + 1
        assert abs(got - expected) <= DIFFERENCES * scale, f"argument {k}: {got} by gradient, {expected} by difference"
