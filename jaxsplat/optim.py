"""Adam for splats: a learning rate for each group of parameters, and moments that follow the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
import optax

from jaxsplat import _ffi
from jaxsplat.clamps import Clamps, bound, clean
from jaxsplat.types import Splats

State = TypeVar("State")

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-15
"""Of Adam. An epsilon this small, as everywhere in the field, because gradients of splats are small."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How all learning rates rise and fall over the run; the means' own decay comes on top.

    Attributes:
      shape: of the fall after the warm-up: none, half a cosine, or exponential.
      warmup: fraction of the run over which the rates rise from zero, in a line.
      end: fraction of the rates that is left at the end of the run.
    """

    shape: Literal["constant", "cosine", "exponential"] = "constant"
    warmup: float = 0.0
    end: float = 0.1

    def factor(self, step: jax.Array, *, steps: int) -> jax.Array:
        """What the rates are multiplied by after `step` steps of a run of `steps`: [] in 0..1, by Optax."""
        rise = round(self.warmup * steps)
        rest = max(steps - rise, 1)
        fall = {
            "constant": optax.constant_schedule(1.0),
            "cosine": optax.cosine_decay_schedule(1.0, rest, alpha=self.end),
            "exponential": optax.exponential_decay(1.0, rest, self.end, end_value=self.end),
        }[self.shape]
        return jnp.asarray(optax.join_schedules([optax.linear_schedule(0.0, 1.0, max(rise, 1)), fall], [rise])(step))


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
      schedule: by which all of them are multiplied.
    """

    means: float = 1.6e-4
    means_end: float = 0.01
    quats: float = 1e-3
    log_scales: float = 5e-3
    logit_opacities: float = 5e-2
    sh_dc: float = 2.5e-3
    sh_rest: float = 2.5e-3 / 20.0
    schedule: Schedule = dataclasses.field(default_factory=Schedule)


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
    return _scheduled(rates.means * scene_scale * jnp.power(rates.means_end, progress), step, rates, steps)


def _scheduled(rate: Any, step: jax.Array, rates: LearningRates, steps: int) -> Any:
    return rate if rates.schedule == Schedule() else rate * rates.schedule.factor(step, steps=steps)


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
        jnp.asarray(means if name == "means" else _scheduled(getattr(chosen, name), step, chosen, steps), leaf.dtype)
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
    visible: jax.Array | None = None,
    clamps: Clamps | None = None,
) -> tuple[Splats, Any]:
    """Updates splats and state as `splat_adam` and `optax.apply_updates` do, to rounding, in one pass over the memory.

    With `visible`, splats that no view of the step shows stay as they are, and their moments too: plain Adam moves
    them on, by what it remembers (Mallick et al. 2024).

    A third of the time on a CPU, where XLA reads each array several times, and vectorises only a long last axis.

    Args:
      splats: N rows.
      gradients: of the loss, N rows.
      state: that of `splat_adam`.
      rates: as in `splat_adam`.
      steps: as in `splat_adam`.
      scene_scale: as in `splat_adam`.
      visible: [N] bool, the rows to update; None for all.
      clamps: bounds of the step, as in `clamps.clamped`; None for none, and gradients as they are.

    Returns:
      The new splats and the new state. Donate the old ones.

    Example:
      >>> state = splat_adam(steps=1000).init(splats)
      >>> splats, state = apply_splat_adam(splats, gradients, state, steps=1000)
    """

    def plain(splats: Splats, gradients: Splats, state: Any, visible: jax.Array | None) -> tuple[Splats, Any]:
        updates, updated = splat_adam(rates, steps=steps, scene_scale=scene_scale).update(gradients, state)
        moved = jax.tree.map(jnp.add, splats, updates)
        return (moved, updated) if visible is None else _where_rows(visible, (moved, updated), (splats, state))

    def native(splats: Splats, gradients: Splats, state: Any, visible: jax.Array | None) -> tuple[Splats, Any]:
        moments, step = state
        count: Any = optax.safe_increment(moments.count)
        corrections = [1 - jnp.power(beta, count.astype(jnp.float32)) for beta in (BETA1, BETA2)]
        by_group = _rates(step, rates, splats, steps, scene_scale)
        groups = [
            _ffi.adam(p, m, v, g, jnp.stack([rate, *corrections]), visible, beta1=BETA1, beta2=BETA2, epsilon=EPSILON)
            for p, m, v, g, rate in zip(splats, moments.mu, moments.nu, gradients, by_group, strict=True)
        ]
        splats, mu, nu = (Splats(*leaves) for leaves in zip(*groups, strict=True))
        return splats, (moments._replace(count=count, mu=mu, nu=nu), step + 1)

    if clamps is not None:
        gradients = clean(clamps.by_group(), gradients)
    if _ffi.takes(*splats):
        moved, state = _ffi.by_platform(native, plain, splats, gradients, state, visible)
    else:
        moved, state = plain(splats, gradients, state, visible)
    if clamps is not None:
        bounded = bound(clamps.by_group(), splats, moved)
        moved = bounded if visible is None else _where_rows(visible, bounded, splats)
    return moved, state


def zero_moments(state: State, rows: jax.Array | Splats) -> State:
    """Clears the optimiser's memory of splats that were moved, so that it does not push them along their old path.

    Args:
      state: state of an Optax optimiser over `Splats`; every `Splats` inside it is cleared.
      rows: [N] bool, the splats that were moved; or a `Splats` of such masks, one for each group.

    Returns:
      The state with those rows zero.

    Example:
      >>> state = zero_moments(state, refined.moved)
    """
    masks = rows if isinstance(rows, Splats) else Splats(*[rows] * len(Splats._fields))
    return map_moments(lambda node: jax.tree.map(lambda m, x: _select(m, jnp.zeros_like(x), x), masks, node), state)


def map_moments(function: Callable[[Splats], Splats], state: State) -> State:
    """Applies a function to every `Splats` inside the state of an Optax optimiser: what follows the rows.

    Args:
      function: of moments, each [N, ...].
      state: of an optimiser over `Splats`.

    Returns:
      The state with its moments replaced.

    Example:
      >>> state = map_moments(lambda moments: jax.tree.map(lambda x: x[sources], moments), state)
    """
    return jax.tree.map(
        lambda node: function(node) if isinstance(node, Splats) else node,
        state,
        is_leaf=lambda node: isinstance(node, Splats),
    )


def _select(rows: jax.Array, chosen: jax.Array, others: jax.Array) -> jax.Array:
    return jnp.where(rows.reshape(rows.shape + (1,) * (others.ndim - rows.ndim)), chosen, others)


def _where_rows(rows: jax.Array, new: State, old: State) -> State:
    """The new arrays in the marked rows, the old ones elsewhere; counters are new."""
    return jax.tree.map(lambda x, y: x if x.ndim == 0 else _select(rows, x, y), new, old)
