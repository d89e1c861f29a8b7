"""What is learned beside the splats: corrections of cameras and of colours, with an optimiser of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from jaxsplat.optim import BETA1, BETA2, EPSILON
from jaxsplat.train.appearance import no_correction, roughness
from jaxsplat.train.config import TrainConfig
from jaxsplat.train.poses import CameraDeltas, no_deltas

_RATE_END = 0.01
"""Fraction of the learning rates that is left at the end of the run."""


class Extras(NamedTuple):
    """Parameters beside the splats; None where nothing is learned.

    Attributes:
      cameras: corrections of poses and intrinsics.
      colors: corrections of colours, as `appearance.no_correction` makes them.
    """

    cameras: CameraDeltas | None = None
    colors: jax.Array | None = None


class ExtrasState(NamedTuple):
    """What training carries of them.

    Attributes:
      values: the parameters.
      opt_state: of their optimiser.
    """

    values: Extras
    opt_state: Any


def init_extras(config: TrainConfig, views: int) -> ExtrasState | None:
    """Parameters that change nothing, for so many training views; None where the settings learn nothing."""
    values: Any = Extras(
        no_deltas(views) if config.cameras.on() else None,
        no_correction(config.appearance, views),
    )
    if values.cameras is None and values.colors is None:
        return None
    if views < 1:
        raise ValueError(
            f"init_state: views must be the number of training views to learn their cameras or colours, got {views}."
        )
    return ExtrasState(values, _optimizer().init(values))


# Optax types pytrees as unions of arrays, to which no NamedTuple fits: hence Any.
def update_extras(state: ExtrasState, gradients: Any, config: TrainConfig, step: jax.Array) -> ExtrasState:
    """One step of Adam, each group with its own rate."""
    updates, opt_state = _optimizer().update(gradients, state.opt_state)
    fall = optax.exponential_decay(1.0, max(config.steps, 1), _RATE_END)(step)
    pose, intrinsics = config.cameras.pose_rate, config.cameras.intrinsics_rate
    rates = Extras(
        None if state.values.cameras is None else CameraDeltas(*map(jnp.asarray, (pose, pose, intrinsics, intrinsics))),
        None if state.values.colors is None else jnp.asarray(config.appearance.rate),
    )
    values = jax.tree.map(lambda x, update, rate: x - rate * fall * update, state.values, updates, rates)
    return ExtrasState(values, opt_state)


def extras_penalty(values: Extras, config: TrainConfig) -> jax.Array | float:
    """Terms of the loss that keep the corrections small and smooth."""
    total: jax.Array | float = 0.0
    if values.cameras is not None:
        total += config.cameras.decay * sum(jnp.square(leaf).sum() for leaf in values.cameras)
    if values.colors is not None:
        total += config.appearance.smoothness * roughness(values.colors)
    return total


def _optimizer() -> optax.GradientTransformation:
    return optax.scale_by_adam(BETA1, BETA2, EPSILON)
