"""What training carries from step to step, and how it begins."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import _check
from jaxsplat.initialization import splats_from_points
from jaxsplat.optim import map_moments, splat_adam
from jaxsplat.strategy.rows import with_capacity
from jaxsplat.train.config import TrainConfig
from jaxsplat.train.extras import ExtrasState, init_extras
from jaxsplat.types import Splats


class TrainState(NamedTuple):
    """All that a training step reads and writes.

    Attributes:
      step: [] int32, steps done.
      splats: rows up to the capacity.
      num_splats: [] int32, rows in use; the others are invisible.
      opt_state: the optimiser's.
      key: random key of the run; each step folds its number in.
      strategy: what the strategy remembers.
      extras: what is learned beside the splats, or None.
    """

    step: jax.Array
    splats: Splats
    num_splats: jax.Array
    opt_state: Any
    key: jax.Array
    strategy: Any = ()
    extras: ExtrasState | None = None


def init_state(
    config: TrainConfig, points: jax.Array | np.ndarray, colors: jax.Array | np.ndarray, *, views: int = 0
) -> TrainState:
    """Puts a round splat at each point and makes the room that the strategy wants.

    Args:
      config: settings.
      points: [P, 3] in a scene whose size is about 1. If there are more than the cap, a random part of them is used.
      colors: [P, 3] in 0..1.
      views: number of training views; needed only to learn their cameras or colours.

    Returns:
      The state before the first step.

    Raises:
      ValueError: where there are no points, the shapes disagree, or `views` is needed and missing.

    Example:
      >>> state = init_state(TrainConfig(), cloud.points, cloud.colors)
    """
    sizes = _check.shapes("init_state", points=(points, "P 3"), colors=(colors, "P 3"))
    _check.positive_int("init_state", P=sizes["P"], cap=config.strategy.cap)
    points, colors = np.asarray(points), np.asarray(colors)
    if len(points) > config.strategy.cap:
        kept = np.sort(np.random.default_rng(config.seed).choice(len(points), config.strategy.cap, replace=False))
        points, colors = points[kept], colors[kept]
    splats = splats_from_points(
        jnp.asarray(points),
        jnp.asarray(colors),
        sh_degree=config.sh_degree,
        opacity=config.initial_opacity,
        scale=config.initial_scale,
    )
    rows = config.strategy.capacity(len(points))
    splats = with_capacity(splats, rows)
    return TrainState(
        step=jnp.zeros((), jnp.int32),
        splats=splats,
        num_splats=jnp.asarray(len(points), jnp.int32),
        opt_state=splat_adam(config.rates, steps=config.steps).init(splats),
        key=jax.random.key(config.seed),
        strategy=config.strategy.init(rows),
        extras=init_extras(config, views),
    )


def with_rows(state: TrainState, rows: int, config: TrainConfig) -> TrainState:
    """Adds rows that are not in use to all that a state holds row by row.

    Args:
      state: of a run.
      rows: how many there are to be. With the strategy's cap, nothing will ever have to grow.
      config: settings of the run.

    Returns:
      The state with as many splats as before.

    Raises:
      ValueError: where there are more rows already.

    Example:
      >>> state = with_rows(job.state, config.strategy.cap, config)
    """
    fresh = rows - state.splats.means.shape[0]
    if fresh < 0:
        raise ValueError(
            f"with_rows: rows must be at least {state.splats.means.shape[0]}, which there are, got {rows}."
        )

    def extended(leaf: jax.Array, value: jax.Array) -> jax.Array:
        return leaf if leaf.ndim == 0 else jnp.concatenate([leaf, value[len(value) - fresh :]])

    return state._replace(
        splats=with_capacity(state.splats, rows),
        opt_state=map_moments(
            lambda moments: jax.tree.map(lambda x: jnp.pad(x, [(0, fresh)] + [(0, 0)] * (x.ndim - 1)), moments),
            state.opt_state,
        ),
        strategy=jax.tree.map(extended, state.strategy, config.strategy.init(rows)),
    )
