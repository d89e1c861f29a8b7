"""Looking on while a training runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp

from jaxsplat.data.capture import Capture
from jaxsplat.data.normalize import Normalization
from jaxsplat.train.state import TrainState
from jaxsplat.types import Splats


class Watcher(Protocol):
    """Is told about a training, for example to show it; it cannot change the result."""

    def begin(self, capture: Capture, splats: Splats) -> None:
        """The training is about to start, of this capture, with these splats."""
        ...

    def update(self, splats: Splats, *, caption: str) -> None:
        """The splats have become these; the arrays may be kept."""
        ...

    def wait_while_paused(self, stopped: Callable[[], bool]) -> None:
        """Returns when the training may go on, or when `stopped()` is true."""
        ...


def shown_splats(state: TrainState, normal: Normalization) -> Splats:
    """All rows in the world of the capture, those not in use invisible: the number of rows never changes.

    They are copies, because the next step takes the buffers of the state.
    """
    return jax.tree.map(jnp.copy, normal.to_world(state.splats))
