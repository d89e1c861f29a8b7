"""One training step as a pure function: loss and gradients, Adam, refinement, noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat.optim import apply_splat_adam, map_moments, means_rate, zero_moments
from jaxsplat.strategy import Strategy
from jaxsplat.train.config import TrainConfig
from jaxsplat.train.extras import update_extras
from jaxsplat.train.objective import Batch, Learned, objective
from jaxsplat.train.state import TrainState, with_rows
from jaxsplat.types import ScreenProbe, Splats


class Metrics(NamedTuple):
    """What a step tells.

    Attributes:
      loss: [] everything that is minimised.
      psnr: [] of the rendered pictures, mean over the batch, in dB.
      num_splats: [] int32, splats in use.
      dead: [] int32, dead splats found by a refinement in this step.
      stuck: [] bool, whether a refinement found no live splat, and so did nothing.
      denied: [] int32, splats that a refinement in this step did not make because of the cap or for lack of rows.
    """

    loss: jax.Array
    psnr: jax.Array
    num_splats: jax.Array
    dead: jax.Array
    stuck: jax.Array
    denied: jax.Array


def make_train_step(config: TrainConfig) -> Callable[[TrainState, Batch], tuple[TrainState, Metrics]]:
    """Makes the step of a run; jit it, and donate the state.

    With a strategy that grows, call `make_room` after each step.

    Args:
      config: settings, fixed for the run.

    Returns:
      `step(state, batch) -> (state, metrics)`, pure.

    Example:
      >>> step = jax.jit(make_train_step(config), donate_argnums=0)
      >>> state, metrics = step(state, Batch(images, viewmats, Ks))
    """
    strategy = config.strategy

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        extras = None if state.extras is None else state.extras.values
        learned = Learned(state.splats, extras, _probe(strategy, state.splats, len(batch.viewmats)))
        differentiated = jax.value_and_grad(objective, has_aux=True)
        (loss, seen), gradients = differentiated(learned, state, batch, config)
        splats, opt_state = apply_splat_adam(
            state.splats,
            gradients.splats,
            state.opt_state,
            config.rates,
            steps=config.steps,
            visible=(seen.radii > 0).all(-1).any(0) if config.visible_adam else None,
        )
        if state.extras is not None:
            state = state._replace(extras=update_extras(state.extras, gradients.extras, config, state.step))
        if gradients.probe is not None:
            height, width = batch.images.shape[-3:-1]
            pull = gradients.probe.grad if gradients.probe.absgrad is None else gradients.probe.absgrad
            noted = strategy.observe(state.strategy, pull, seen.radii, width=width, height=height)
            state = state._replace(strategy=noted)
        refine_key, noise_key = jax.random.split(_step_key(state.key, state.step))
        rate = means_rate(state.step, config.rates, steps=config.steps)
        state = state._replace(step=state.step + 1, splats=splats, opt_state=opt_state)
        state, (dead, stuck, denied) = _refine_if_due(refine_key, state, config)
        state = state._replace(splats=strategy.perturb(noise_key, state.splats, state.num_splats, rate))
        return state, Metrics(loss, seen.psnr, state.num_splats, dead, stuck, denied)

    return step


def make_room(state: TrainState, config: TrainConfig) -> TrainState:
    """Gives the state the rows that its strategy asks for, and does the refinement that waited for them, if one did.

    A state that lacks nothing comes back as it is. What the refinement does is in the metrics of the step. The
    arrays then have a new size, for which everything is compiled anew. What comes out does not depend on how the run
    was cut into calls. For a loop of one size, give the first state all rows: `with_rows(state, cap, config)`.

    Args:
      state: after a step.
      config: settings.

    Returns:
      The state that a step with enough room would have left.

    Example:
      >>> state, metrics = step(state, batch)
      >>> state = make_room(state, config)
    """
    wanted = int(config.strategy.wanted(state.strategy)) if config.strategy.grows else 0
    if wanted <= state.splats.means.shape[0]:
        return state
    state = with_rows(state, config.strategy.capacity(wanted), config)
    if not config.strategy.waits:
        return state
    refine_key, _ = jax.random.split(_step_key(state.key, state.step - 1))
    return jax.jit(lambda state: _refine_if_due(refine_key, state, config)[0])(state)


def lacks_room(state: TrainState, strategy: Strategy) -> jax.Array:
    """Whether `make_room` must be called before the next step: [] bool."""
    return jnp.asarray(strategy.wanted(state.strategy)) > state.splats.means.shape[0]


def _step_key(key: jax.Array, step: jax.Array) -> jax.Array:
    return jax.random.fold_in(key, step)


def _probe(strategy: Strategy, splats: Splats, views: int) -> ScreenProbe | None:
    if not strategy.observes:
        return None
    zeros = jnp.zeros((views, splats.means.shape[0], 2), splats.means.dtype)
    return ScreenProbe(zeros, zeros if getattr(strategy, "absgrad", False) else None)


_Events = tuple[jax.Array, jax.Array, jax.Array]


def _refine_if_due(key: jax.Array, state: TrainState, config: TrainConfig) -> tuple[TrainState, _Events]:
    """The refinement after `state.step` steps, and how many were dead, whether all were, how many were denied."""
    due = config.strategy.is_due(state.step, steps=config.steps)
    none = jnp.zeros((), jnp.int32)
    nothing = (none, jnp.zeros((), bool), none)
    if due is None:
        return state, nothing

    def refined(splats: Splats, count: jax.Array, opt_state: Any, memory: Any) -> tuple[Any, ...]:
        result, memory = config.strategy.refine(key, splats, count, memory, step=state.step, steps=config.steps)
        sources = result.sources
        if sources is not None:
            opt_state = map_moments(lambda moments: jax.tree.map(lambda x: x[sources], moments), opt_state)
        events = (result.dead, (result.dead > 0) & (result.live == 0), jnp.asarray(result.denied, jnp.int32))
        return result.splats, result.num_splats, zero_moments(opt_state, result.moved), memory, events

    def unchanged(*parts: Any) -> tuple[Any, ...]:
        return *parts, nothing

    parts = (state.splats, state.num_splats, state.opt_state, state.strategy)
    splats, count, opt_state, memory, events = jax.lax.cond(due, refined, unchanged, *parts)
    return state._replace(splats=splats, num_splats=count, opt_state=opt_state, strategy=memory), events
