"""Adam for splats: a learning rate for each group of parameters, and moments that follow the rows."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from jaxsplat import _ffi
from jaxsplat.types import Splats

State = TypeVar("State")

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-15
"""Of Adam. An epsilon this small, as everywhere in the field, because gradients of splats are small."""


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

    # Optax types pytrees as unions of arrays, to which no NamedTuple fits: hence Any.
    def update(updates: Any, state: Any, params: Any = None) -> tuple[Splats, jax.Array]:
        del params
        by_group = _rates(state, rates, updates, steps, scene_scale)
        return jax.tree.map(lambda rate, update: -rate * update, by_group, updates), state + 1

    # One Adam for all groups: its moments stay a `Splats` each, which `zero_moments` can find.
    scale_by_rates = optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update)
    return optax.chain(optax.scale_by_adam(BETA1, BETA2, EPSILON), scale_by_rates)


def _rates(step: jax.Array, rates: LearningRates | None, splats: Splats, steps: int, scene_scale: float) -> Splats:
    """The learning rate of each group, in its precision."""
    chosen = LearningRates() if rates is None else rates
    means = means_rate(step, chosen, steps=steps, scene_scale=scene_scale)
    return Splats(*(
        jnp.asarray(means if name == "means" else getattr(chosen, name), leaf.dtype)
        for name, leaf in zip(splats._fields, splats, strict=True)
    ))  # fmt: skip


def apply_splat_adam(
    splats: Splats,
    gradients: Splats,
    state: Any,
    rates: LearningRates | None = None,
    *,
    steps: int,
    scene_scale: float = 1.0,
) -> tuple[Splats, Any]:
    """Updates splats and state as `splat_adam` and `optax.apply_updates` do, to rounding, in one pass over the memory.

    A third of the time on a CPU, where XLA reads each array several times, and vectorises only a long last axis.

    Args:
      splats: N rows.
      gradients: of the loss, N rows.
      state: that of `splat_adam`.
      rates: as in `splat_adam`.
      steps: as in `splat_adam`.
      scene_scale: as in `splat_adam`.

    Returns:
      The new splats and the new state. Donate the old ones.

    Example:
      >>> state = splat_adam(steps=1000).init(splats)
      >>> splats, state = apply_splat_adam(splats, gradients, state, steps=1000)
    """
    if not _ffi.takes(*splats):
        updates, state = splat_adam(rates, steps=steps, scene_scale=scene_scale).update(gradients, state)
        return jax.tree.map(jnp.add, splats, updates), state
    moments, step = state
    count: Any = optax.safe_increment(moments.count)
    corrections = [1 - jnp.power(beta, count.astype(jnp.float32)) for beta in (BETA1, BETA2)]
    by_group = _rates(step, rates, splats, steps, scene_scale)
    groups = [
        _ffi.adam(p, m, v, g, jnp.stack([rate, *corrections]), beta1=BETA1, beta2=BETA2, epsilon=EPSILON)
        for p, m, v, g, rate in zip(splats, moments.mu, moments.nu, gradients, by_group, strict=True)
    ]
    splats, mu, nu = (Splats(*leaves) for leaves in zip(*groups, strict=True))
    return splats, (moments._replace(count=count, mu=mu, nu=nu), step + 1)


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
