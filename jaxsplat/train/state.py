"""What training carries from step to step, and how it begins."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import KDTree

from jaxsplat import _check
from jaxsplat.optim import map_moments, splat_adam
from jaxsplat.sh import num_sh_coeffs, rgb_to_sh
from jaxsplat.strategy.rows import UNUSED_LOGIT
from jaxsplat.train.config import TrainConfig
from jaxsplat.train.extras import ExtrasState, init_extras
from jaxsplat.types import Splats

_NEIGHBORS = 3


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


def splats_from_points(
    points: jax.Array, colors: jax.Array, *, sh_degree: int, opacity: float = 0.5, scale: float = 1.0
) -> Splats:
    """Makes a round splat of each point, as wide as `scale` times the distance to its three nearest neighbours.

    Args:
      points: [P, 3] in world units.
      colors: [P, 3] in 0..1.
      sh_degree: degree for which coefficients are made; all but the first are zero.
      opacity: of every splat.
      scale: factor on the distance.

    Returns:
      P rows.

    Example:
      >>> splats_from_points(points, colors, sh_degree=3).sh_rest.shape
      (1000, 15, 3)
    """
    _check.shapes("splats_from_points", points=(points, "P 3"), colors=(colors, "P 3"))
    count, dtype = len(points), points.dtype
    width = jnp.asarray(scale * _spacing(np.asarray(points)), dtype)
    rest = num_sh_coeffs(sh_degree) - 1
    return Splats(
        means=points,
        quats=jnp.tile(jnp.asarray([[1.0, 0.0, 0.0, 0.0]], dtype), (count, 1)),
        log_scales=jnp.tile(jnp.log(width)[:, None], (1, 3)),
        logit_opacities=jnp.full((count,), math.log(opacity / (1.0 - opacity)), dtype),
        sh_dc=rgb_to_sh(colors)[:, None, :].astype(dtype),
        sh_rest=jnp.zeros((count, rest, 3), dtype),
    )


def with_capacity(splats: Splats, capacity: int) -> Splats:
    """Adds invisible rows up to a capacity."""
    count = splats.means.shape[0]

    def extended(leaf: jax.Array, value: float) -> jax.Array:
        pads = [(0, capacity - count)] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, pads, constant_values=value)

    padded = jax.tree.map(lambda leaf: extended(leaf, 0.0), splats)
    return padded._replace(
        logit_opacities=extended(splats.logit_opacities, UNUSED_LOGIT),
        quats=padded.quats.at[count:, 0].set(1.0),
    )


def with_rows(state: TrainState, rows: int, config: TrainConfig) -> TrainState:
    """Adds rows that are not in use to all that a state holds row by row."""
    fresh = rows - state.splats.means.shape[0]

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


def _spacing(points: np.ndarray) -> np.ndarray:
    """Root mean square distance to the nearest neighbours [P]; 1 for a lone point, and never zero."""
    count = min(_NEIGHBORS, len(points) - 1)
    if count == 0:
        return np.ones(len(points))
    distances, _ = KDTree(points).query(points, k=count + 1)  # the nearest is the point itself
    spacing = np.sqrt((distances[:, 1:] ** 2).mean(-1))
    return np.maximum(spacing, max(1e-3 * float(np.median(spacing)), 1e-7))
