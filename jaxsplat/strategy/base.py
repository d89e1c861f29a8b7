"""What training asks of a strategy. The base answers "nothing": it is the strategy of a fixed set of splats."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from jaxsplat.strategy.regularizers import Regularizers
from jaxsplat.strategy.rows import Refined
from jaxsplat.types import Splats


@dataclasses.dataclass(frozen=True)
class Fixed:
    """Splats move and change, but none is born, moved to another, or dies. Other strategies replace what they need.

    Attributes:
      cap: most splats.
    """

    cap: int = 80_000

    observes: ClassVar[bool] = False
    """Whether `observe` wants the screen-space gradients of each step."""
    grows: ClassVar[bool] = False
    """Whether the arrays may have to grow during the run; `wanted` then says how far."""
    waits: ClassVar[bool] = False
    """Whether a refinement that lacks rows waits until the arrays have grown. Otherwise rows are asked for ahead."""

    def capacity(self, points: int) -> int:
        """Rows to begin with, for at most `cap` points."""
        return points

    def init(self, rows: int) -> Any:
        """State of the strategy for arrays of so many rows."""
        del rows
        return ()

    def wanted(self, state: Any) -> jax.Array | int:
        """Rows that the arrays need before the next step."""
        del state
        return 0

    def is_due(self, step: jax.Array, *, steps: int) -> jax.Array | None:
        """Whether to refine after this step (counted from 0) of a run of `steps`: [] bool; None for never."""
        del step, steps
        return None

    def observe(self, state: Any, gradients: jax.Array, radii: jax.Array, *, width: int, height: int) -> Any:
        """Takes note of one step: gradients [C, N, 2] of the loss by means2d, and radii [C, N, 2], in pixels."""
        del gradients, radii, width, height
        return state

    def refine(
        self, key: jax.Array, splats: Splats, count: jax.Array, state: Any, *, step: jax.Array, steps: int
    ) -> tuple[Refined, Any]:
        """Changes the set of splats after `step`; returns the outcome and the strategy's new state."""
        del key, step, steps
        nothing = jnp.zeros((), jnp.int32)
        return Refined(splats, count, jnp.zeros(splats.means.shape[0], bool), nothing, count), state

    def perturb(self, key: jax.Array, splats: Splats, count: jax.Array, rate: jax.Array) -> Splats:
        """Changes the splats at random after every step; `rate` is the learning rate of the means."""
        del key, count, rate
        return splats

    def regularizers(self) -> Regularizers:
        """Terms that the strategy adds to the loss."""
        return Regularizers()
