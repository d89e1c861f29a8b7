"""Pictures for the compiled loop: all of them where they fit into memory, otherwise those of the next steps."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat.data.pictures import Images
from jaxsplat.train.objective import Batch

_ORDER_STREAM = 0x0DDE2
_FOR_EVER = 1 << 31


class Loaded(NamedTuple):
    """Views that a compiled loop can read.

    Attributes:
      views: arrays, a row a view.
      rows: [V] int32, the row of each training view; of those that are not loaded, any.
      end: the first step that may need other views.
    """

    views: Batch
    rows: np.ndarray
    end: int


class Feed:
    """Loads training views step after step, and begins to read the next ones while the loop is busy.

    What a step learns from follows from the key and its number alone, so the result depends neither on how much fits
    into memory nor on where a run begins.
    """

    def __init__(self, views: Batch, key: jax.Array, *, views_per_step: int = 1) -> None:
        self._views, self._views_per_step = views, views_per_step
        self._key = jax.random.wrap_key_data(jnp.array(jax.random.key_data(key)))  # a copy: the loop takes the state
        self._count = len(views.viewmats)
        self._loaded: Loaded | None = None
        self._begin = 0

    def at(self, step: int) -> Loaded:
        """The views of a step, and of as many steps after it as fit."""
        if self._loaded is None or not self._begin <= step < self._loaded.end:
            self._loaded, self._begin = self._load(step), step
        return self._loaded

    def _load(self, step: int) -> Loaded:
        images: Any = self._views.images
        rows = np.arange(self._count, dtype=np.int32)
        if not isinstance(images, Images):
            return Loaded(self._views, rows, _FOR_EVER)
        steps = max(1, images.capacity // self._views_per_step)
        chosen = self._views_of(step, steps)
        rows[chosen] = np.arange(len(chosen))
        # Always as many rows: another number would compile anew.
        padded = np.resize(chosen, steps * self._views_per_step)
        self._loaded = None  # its memory is needed
        views = as_arrays(jax.tree.map(lambda leaf: leaf[padded], self._views))
        images.prefetch(self._views_of(step + steps, steps))
        return Loaded(views, rows, step + steps)

    def _views_of(self, step: int, steps: int) -> np.ndarray:
        """The views that so many steps learn from, each once."""
        places = np.arange(step * self._views_per_step, (step + steps) * self._views_per_step, dtype=np.int32)
        return np.unique(np.asarray(_views_of_places(self._key, places, self._count)))


def as_arrays(views: Batch) -> Batch:
    """All pictures read."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), views)


def view_of_step(key: jax.Array, step: jax.Array, views: int) -> jax.Array:
    """Which view a step learns from: every view once an epoch, in an order that is new each epoch."""
    epoch_key = jax.random.fold_in(jax.random.fold_in(key, _ORDER_STREAM), step // views)
    return jax.random.permutation(epoch_key, views)[step % views]


@functools.partial(jax.jit, static_argnums=2)
def _views_of_places(key: jax.Array, places: jax.Array, views: int) -> jax.Array:
    return jax.vmap(lambda place: view_of_step(key, place, views))(places)
