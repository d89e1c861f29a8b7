"""Many steps in one compiled program, over all views of a capture in a random order."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat.data.capture import Capture
from jaxsplat.data.initial import random_points
from jaxsplat.data.normalize import Normalization, normalization
from jaxsplat.data.pictures import Images
from jaxsplat.io.ply import PointCloud
from jaxsplat.train.config import TrainConfig
from jaxsplat.train.feed import Feed, as_arrays, view_of_step
from jaxsplat.train.state import TrainState, init_state
from jaxsplat.train.step import Batch, make_train_step
from jaxsplat.types import Splats

_SECONDS_A_CALL = 0.5
_MOST_STEPS_A_CALL = 1000


class Job(NamedTuple):
    """A capture made ready for training, in normalised coordinates.

    Attributes:
      state: before the first step.
      views: the training views; pictures that do not fit into memory are left in their files, as `Images`.
      normalization: from the world of the capture.
      notes: what the user should know.
    """

    state: TrainState
    views: Batch
    normalization: Normalization
    notes: tuple[str, ...]


class Summary(NamedTuple):
    """Means over the steps of one call.

    Attributes:
      loss: everything that is minimised.
      psnr: of the training views, in dB.
      dead: dead splats that refinements found.
      stuck: refinements that found no live splat.
    """

    loss: jax.Array
    psnr: jax.Array
    dead: jax.Array
    stuck: jax.Array


def prepare(capture: Capture, config: TrainConfig) -> Job:
    """Normalises a capture and makes the first splats.

    Args:
      capture: photographs.
      config: settings.

    Returns:
      What `train_steps` starts from.

    Example:
      >>> job = prepare(load_capture("captures/fox", downscale=2), TrainConfig())
    """
    points = None if capture.points is None else capture.points.points
    normal = normalization(capture.cameras.viewmats, points)
    training = ~capture.held_out
    viewmats = normal.viewmats(capture.cameras.viewmats[training])
    Ks = capture.cameras.Ks[training]
    images: Any = capture.images[training]
    masks: Any = None if capture.masks is None else capture.masks[training]
    notes = []
    if capture.points is not None:
        cloud = PointCloud(normal.points(capture.points.points), capture.points.colors)
    else:
        count = min(config.initial_points, config.strategy.cap)
        cloud = random_points(viewmats, Ks, images, count=count, masks=masks, seed=config.seed)
        notes.append(f"The capture has no points: {count:,} random ones are used.")
    views = Batch(images, jnp.asarray(viewmats), jnp.asarray(Ks), masks=masks)
    if isinstance(images, Images) and images.capacity < len(images):
        notes.append("The pictures do not fit into the memory for them: they are read again as they are needed.")
    else:
        views = as_arrays(views)
    return Job(init_state(config, cloud.points, cloud.colors), views, normal, tuple(notes))


class RunSteps(Protocol):
    """The compiled loop."""

    def __call__(
        self, state: TrainState, views: Batch, steps: int, *, rows: np.ndarray | None = None
    ) -> tuple[TrainState, Summary]:
        """Does some steps; `rows` [V] says which row of `views` holds each training view, if not all are there."""
        ...


def make_train_steps(config: TrainConfig) -> RunSteps:
    """Makes the compiled loop `run(state, views, steps) -> (state, summary)`; the state is donated.

    The view of each step follows from the key and the number of the step alone, so the result does not depend on how
    a run is cut into calls. The number of steps is a value: any number uses the same program.

    Args:
      config: settings.

    Returns:
      The loop.

    Example:
      >>> run = make_train_steps(config)
      >>> state, summary = run(job.state, job.views, 100)
    """
    step = make_train_step(config)

    def run(state: TrainState, views: Batch, rows: jax.Array, steps: jax.Array) -> tuple[TrainState, Summary]:
        def body(_: jax.Array, carry: tuple[TrainState, Summary]) -> tuple[TrainState, Summary]:
            state, total = carry
            row = rows[view_of_step(state.key, state.step, len(rows))]
            batch = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, row, 1), views)
            state, metrics = step(state, batch)
            stuck = metrics.stuck.astype(jnp.int32)
            now = Summary(metrics.loss, metrics.psnr, metrics.dead, stuck)
            return state, jax.tree.map(jnp.add, total, now)

        zero = jnp.zeros((), state.splats.means.dtype)
        none = jnp.zeros((), jnp.int32)
        state, total = jax.lax.fori_loop(0, steps, body, (state, Summary(zero, zero, none, none)))
        return state, total._replace(loss=total.loss / steps, psnr=total.psnr / steps)

    compiled = jax.jit(run, donate_argnums=0)

    def call(
        state: TrainState, views: Batch, steps: int, *, rows: np.ndarray | None = None
    ) -> tuple[TrainState, Summary]:
        all_rows = np.arange(len(views.viewmats), dtype=np.int32)
        return compiled(state, views, all_rows if rows is None else rows, np.int32(steps))

    return call


def train_steps(
    state: TrainState,
    views: Batch,
    config: TrainConfig,
    *,
    report: Callable[[TrainState, Summary], bool] | None = None,
    pause_every: int = 0,
) -> TrainState:
    """Trains to the end of the run, and reports about twice a second.

    Args:
      state: where to begin; its buffers are taken.
      views: training views.
      config: settings.
      report: is called with the state and the means since the last call; returns whether to go on. It must not keep
        the state, which the next call takes.
      pause_every: a report falls on every multiple of this step; 0 for none.

    Returns:
      The state at the end, or where `report` stopped it.

    Example:
      >>> state = train_steps(job.state, job.views, config)
    """
    run = make_train_steps(config)
    feed = Feed(views, state.key)
    done = int(state.step)
    size = 1
    while done < config.steps:
        size = min(size, config.steps - done, _MOST_STEPS_A_CALL)
        if pause_every:
            size = min(size, pause_every - done % pause_every)
        began = time.monotonic()
        loaded = feed.at(done)
        size = min(size, loaded.end - done)
        state, summary = run(state, loaded.views, size, rows=loaded.rows)
        jax.block_until_ready(state)
        done += size
        if report is not None and not report(state, summary):
            break
        # Steps a call follow the machine's speed; the result does not depend on them. The first call compiles.
        speed = size / max(time.monotonic() - began, 1e-6)
        size = max(1, min(2 * size, int(speed * _SECONDS_A_CALL)))
    return state


def world_splats(state: TrainState, normal: Normalization) -> Splats:
    """The splats in use, in the world of the capture."""
    count = int(state.num_splats)
    return normal.to_world(jax.tree.map(lambda leaf: leaf[:count], state.splats))
