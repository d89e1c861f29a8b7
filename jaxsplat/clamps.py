"""Bounds of the steps of an optimiser, and of the shape of splats."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from jaxsplat.types import Splats

Tree = TypeVar("Tree")


@dataclasses.dataclass(frozen=True)
class Clamp:
    """Bounds of one step of a group of parameters; those that are infinite do nothing.

    Attributes:
      gradient: each value of the gradient is clipped to plus or minus this.
      update: each value moves by no more than this.
      low: no value is below this after a step.
      high: no value is above this after a step.
    """

    gradient: float = math.inf
    update: float = math.inf
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not (self.gradient > 0 and self.update > 0 and self.low < self.high):
            raise ValueError(f"Clamp: gradient and update must be above 0, and low below high, got {self}.")

    def clean(self, gradient: jax.Array) -> jax.Array:
        """The gradient that the optimiser gets: clipped, and 0 where it is not finite."""
        return jnp.clip(jnp.where(jnp.isfinite(gradient), gradient, 0), -self.gradient, self.gradient)

    def bound(self, value: jax.Array, moved: jax.Array) -> jax.Array:
        """Where the step from a value ends."""
        if math.isfinite(self.update):
            moved = value + jnp.clip(moved - value, -self.update, self.update)
        return jnp.clip(moved, self.low, self.high) if self.bounds_values else moved

    def cut(self, value: jax.Array, update: jax.Array) -> jax.Array:
        """What is left of an update."""
        update = jnp.clip(update, -self.update, self.update)
        return jnp.clip(value + update, self.low, self.high) - value if self.bounds_values else update

    @property
    def bounds_values(self) -> bool:
        """Whether the values have bounds."""
        return math.isfinite(self.low) or math.isfinite(self.high)


@dataclasses.dataclass(frozen=True)
class Clamps:
    """Bounds of one step of splats, by group.

    Attributes:
      means: in world units.
      quats: rotations.
      log_scales: logarithms of the standard deviations.
      logit_opacities: logits.
      sh_dc: degree-0 colour coefficient.
      sh_rest: coefficients of the higher degrees.
    """

    means: Clamp = Clamp()
    quats: Clamp = Clamp()
    log_scales: Clamp = Clamp()
    logit_opacities: Clamp = Clamp()
    sh_dc: Clamp = Clamp()
    sh_rest: Clamp = Clamp()

    def by_group(self) -> Any:
        """A `Splats` of them."""
        groups: Any = [getattr(self, name) for name in Splats._fields]
        return Splats(*groups)


def clamped(optimizer: optax.GradientTransformation, clamps: Clamp | Clamps | Any) -> optax.GradientTransformation:
    """Keeps the steps of an optimiser within bounds, group by group.

    Gradients that are not finite count as 0, and are then clipped; what the optimiser makes of them is cut to the
    largest update, and to what the bounds of the values leave (to the rounding of `optax.apply_updates`). With
    infinite bounds and finite gradients it is the optimiser itself.

    Args:
      optimizer: for example `optax.adam(1e-3)` or `splat_adam(...)`.
      clamps: one for all parameters; or `Clamps`, for those of splats; or a tree of them, of which each holds for the
        subtree at its place.

    Returns:
      A gradient transformation, whose update takes the parameters.

    Raises:
      ValueError: when updated without the parameters that a clamp needs.

    Example:
      >>> optimizer = clamped(optax.adam(1e-2), {"opacity": Clamp(low=0.0, high=1.0), "mean": Clamp(update=0.1)})
    """
    if isinstance(clamps, Clamps):
        clamps = clamps.by_group()

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        updates, state = optimizer.update(clean(clamps, updates), state, params)
        if params is None:
            if any(clamp.bounds_values for clamp in jax.tree.leaves(clamps)):
                raise ValueError("clamped: update must be given params where a clamp bounds the values, got None.")
            params = jax.tree.map(jnp.zeros_like, updates)
        return _each(Clamp.cut, clamps, params, updates), state

    return optax.GradientTransformation(optimizer.init, update)


def clean(clamps: Any, gradients: Tree) -> Tree:
    """The gradients that the optimiser gets."""
    return _each(Clamp.clean, clamps, gradients)


def bound(clamps: Any, values: Tree, moved: Tree) -> Tree:
    """Where steps from values end."""
    return _each(Clamp.bound, clamps, values, moved)


def _each(function: Callable[..., jax.Array], clamps: Any, *trees: Any) -> Any:
    """Calls the function with a clamp and the leaves that it holds for."""
    return jax.tree.map(lambda clamp, *parts: jax.tree.map(functools.partial(function, clamp), *parts), clamps, *trees)


def limit_anisotropy(splats: Splats, *, max_ratio: jax.Array | float) -> Splats:
    """Makes no splat longer than a multiple of its shortest axis, by raising short axes.

    Before rendering it is a part of the model, with its gradient: a raised axis moves with the longest one. After a
    step it is a projection.

    Args:
      splats: N rows.
      max_ratio: largest ratio of two axes, at least 1; `inf` for no limit.

    Returns:
      The splats with their log scales raised.

    Raises:
      ValueError: for a number below 1.

    Example:
      >>> jnp.exp(limit_anisotropy(splats, max_ratio=10.0).log_scales)
    """
    if isinstance(max_ratio, int | float) and not max_ratio >= 1:
        raise ValueError(f"limit_anisotropy: max_ratio must be at least 1, got {max_ratio}.")
    longest = splats.log_scales.max(-1, keepdims=True)
    return splats._replace(log_scales=jnp.maximum(splats.log_scales, longest - jnp.log(max_ratio)))
