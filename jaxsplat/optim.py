"""Adam for splats: a learning rate for each group of parameters, and moments that follow the rows."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from jaxsplat.types import Splats

State = TypeVar("State")


@dataclasses.dataclass(frozen=True)
class LearningRates:
    """Step sizes of Adam, by group.

    Attributes:
      means: times the scene's scale; decays exponentially over the run.
      means_end: fraction of `means` that is left at the end of the run.
      quats: rotations.
      log_scales: logarithms of the standard deviations.
      logit_opacities: logits.
      sh_dc: degree-0 colour coefficient.
      sh_rest: coefficients of the higher degrees.
    """

    means: float = 1.6e-4
    means_end: float = 0.01
    quats: float = 1e-3
    log_scales: float = 5e-3
    logit_opacities: float = 5e-2
    sh_dc: float = 2.5e-3
    sh_rest: float = 2.5e-3 / 20.0


def means_rate(step: jax.Array, rates: LearningRates, *, steps: int, scene_scale: float = 1.0) -> jax.Array:
    """Learning rate of the means: exponential from `rates.means * scene_scale` down to `rates.means_end` of it.

    Args:
      step: [] integer, steps done so far.
      rates: learning rates.
      steps: length of the run.
      scene_scale: size of the scene in world units.

    Returns:
      [] the rate.

    Example:
      >>> means_rate(jnp.asarray(0), LearningRates(), steps=100)
      Array(0.00016, dtype=float32)
    """
    progress = jnp.minimum(step / max(steps, 1), 1.0)
    return rates.means * scene_scale * jnp.power(rates.means_end, progress)


def splat_adam(
    rates: LearningRates | None = None, *, steps: int, scene_scale: float = 1.0
) -> optax.GradientTransformation:
    """Adam (eps 1e-15) over `Splats`, each group with its own learning rate.

    Args:
      rates: learning rates; the field's when None.
      steps: length of the run, for the decay of the means' rate.
      scene_scale: size of the scene in world units, by which the means' rate is multiplied.

    Returns:
      A gradient transformation for a `Splats` pytree.

    Example:
      >>> optimizer = splat_adam(steps=1000)
      >>> state = optimizer.init(splats)
      >>> updates, state = optimizer.update(gradients, state)
    """
    chosen = LearningRates() if rates is None else rates

    # Optax types pytrees as unions of arrays, to which no NamedTuple fits: hence Any.
    def update(updates: Any, state: Any, params: Any = None) -> tuple[Splats, jax.Array]:
        del params
        means = means_rate(state, chosen, steps=steps, scene_scale=scene_scale).astype(updates.means.dtype)
        scaled = Splats(
            means=-means * updates.means,
            quats=-chosen.quats * updates.quats,
            log_scales=-chosen.log_scales * updates.log_scales,
            logit_opacities=-chosen.logit_opacities * updates.logit_opacities,
            sh_dc=-chosen.sh_dc * updates.sh_dc,
            sh_rest=-chosen.sh_rest * updates.sh_rest,
        )
        return scaled, state + 1

    # One Adam for all groups: its moments stay a `Splats` each, which `zero_moments` can find.
    scale_by_rates = optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update)
    return optax.chain(optax.scale_by_adam(eps=1e-15), scale_by_rates)


def zero_moments(state: State, rows: jax.Array) -> State:
    """Clears the optimiser's memory of splats that were moved, so that it does not push them along their old path.

    Args:
      state: state of an Optax optimiser over `Splats`; every `Splats` inside it is cleared.
      rows: [N] bool, the splats that were moved.

    Returns:
      The state with those rows zero.

    Example:
      >>> state = zero_moments(state, refined.moved)
    """

    def clear(leaf: jax.Array) -> jax.Array:
        mask = rows.reshape(rows.shape + (1,) * (leaf.ndim - rows.ndim))
        return jnp.where(mask, jnp.zeros_like(leaf), leaf)

    return jax.tree.map(
        lambda node: jax.tree.map(clear, node) if isinstance(node, Splats) else node,
        state,
        is_leaf=lambda node: isinstance(node, Splats),
    )
