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
from jaxsplat.io.files import InputError
from jaxsplat.io.ply import PointCloud
from jaxsplat.train.config import TrainConfig
from jaxsplat.train.depth import known_depths, sparse_depths
from jaxsplat.train.feed import Feed, as_arrays, view_of_step
from jaxsplat.train.objective import Batch
from jaxsplat.train.state import TrainState, init_state
from jaxsplat.train.step import lacks_room, make_room, make_train_step
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
    """Means and counts over the steps of one call.

    Attributes:
      loss: everything that is minimised.
      psnr: of the training views, in dB.
      dead: dead splats that refinements found.
      stuck: refinements that found no live splat.
      denied: splats that refinements did not make because of the cap.
    """

    loss: jax.Array
    psnr: jax.Array
    dead: jax.Array
    stuck: jax.Array
    denied: jax.Array


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
    alphas: Any = None if capture.alphas is None else capture.alphas[training]
    lens = jax.tree.map(lambda leaf: leaf[training], capture.cameras.lens)
    notes = []
    if capture.points is not None:
        cloud = PointCloud(normal.points(capture.points.points), capture.points.colors)
        if len(cloud.points) > (cap := config.strategy.cap):
            notes.append(
                f"Of the capture's {len(cloud.points):,} points {cap:,} random ones are used; --cap raises it."
            )
    else:
        count = min(config.initial_points, config.strategy.cap)
        cloud = random_points(viewmats, Ks, images, lens=lens, count=count, masks=masks, seed=config.seed)
        notes.append(f"The capture has no points: {count:,} random ones are used.")
    views = Batch(images, jnp.asarray(viewmats), jnp.asarray(Ks), masks=masks, lens=jax.tree.map(jnp.asarray, lens))
    if config.random_background:
        views = views._replace(alphas=alphas)
    if config.views_per_step > len(viewmats):
        raise InputError(f"views_per_step is {config.views_per_step}, but there are {len(viewmats)} training views")
    if config.depth_weight:
        if capture.points is None and capture.depths is None:
            raise InputError("depth_weight needs a capture with sparse points or maps of depths, and this one has none")
        height, width = images.shape[1:3]
        if capture.depths is None:
            depths = sparse_depths(cloud.points, viewmats, Ks, width=width, height=height, lens=lens)
        else:
            depths = known_depths([capture.depths[int(i)] for i in np.flatnonzero(training)], scale=normal.scale)
        views = views._replace(depths=depths)
    state = init_state(config, cloud.points, cloud.colors, views=len(viewmats))
    if state.extras is not None:
        views = views._replace(index=jnp.arange(len(viewmats), dtype=jnp.int32))
    if isinstance(images, Images) and images.capacity < len(images):
        notes.append("The pictures do not fit into the memory for them: they are read again as they are needed.")
    else:
        views = as_arrays(views)
    return Job(state, views, normal, tuple(notes))


class RunSteps(Protocol):
    """The compiled loop."""

    def __call__(
        self, state: TrainState, views: Batch, steps: int, *, rows: np.ndarray | None = None
    ) -> tuple[TrainState, Summary]:
        """Does some steps; `rows` [V] says which row of `views` holds each training view, if not all are there."""
        ...


def make_train_steps(config: TrainConfig) -> RunSteps:
    """Makes the compiled loop `run(state, views, steps) -> (state, summary)`; the state is donated.

    The views of each step follow from the key and the number of the step alone, so the result does not depend on how
    a run is cut into calls. The number of steps is a value: any number uses the same program. With a strategy that
    grows, the loop ends early where the state needs `make_room`: `state.step` says how far it came.

    Args:
      config: settings.

    Returns:
      The loop.

    Example:
      >>> run = make_train_steps(config)
      >>> state, summary = run(job.state, job.views, 100)
    """
    step = make_train_step(config)

    def body(views: Batch, rows: jax.Array, carry: tuple[TrainState, Summary]) -> tuple[TrainState, Summary]:
        state, total = carry
        state, metrics = step(state, batch_of_step(state, views, rows, config.views_per_step))
        stuck = metrics.stuck.astype(jnp.int32)
        now = Summary(metrics.loss, metrics.psnr, metrics.dead, stuck, metrics.denied)
        return state, jax.tree.map(jnp.add, total, now)

    def run(state: TrainState, views: Batch, rows: jax.Array, steps: jax.Array) -> tuple[TrainState, Summary]:
        zero = jnp.zeros((), state.splats.means.dtype)
        none = jnp.zeros((), jnp.int32)
        carry = (state, Summary(zero, zero, none, none, none))
        first = state.step
        if config.strategy.grows:

            def goes_on(carry: tuple[TrainState, Summary]) -> jax.Array:
                return (carry[0].step < first + steps) & ~lacks_room(carry[0], config.strategy)

            state, total = jax.lax.while_loop(goes_on, lambda carry: body(views, rows, carry), carry)
            steps = jnp.maximum(state.step - first, 1)
        else:
            state, total = jax.lax.fori_loop(0, steps, lambda _, carry: body(views, rows, carry), carry)
        return state, total._replace(loss=total.loss / steps, psnr=total.psnr / steps)

    compiled = jax.jit(run, donate_argnums=0)

    def call(
        state: TrainState, views: Batch, steps: int, *, rows: np.ndarray | None = None
    ) -> tuple[TrainState, Summary]:
        all_rows = np.arange(len(views.viewmats), dtype=np.int32)
        return compiled(state, views, all_rows if rows is None else rows, np.int32(steps))

    return call


def batch_of_step(state: TrainState, views: Batch, rows: jax.Array, size: int) -> Batch:
    """The pictures that the next step learns from; `rows` [V] says where in `views` each training view is."""
    count = len(rows)
    if size == 1:
        row = rows[view_of_step(state.key, state.step, count)]
        return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, row, 1), views)
    places = state.step * size + jnp.arange(size)
    chosen = rows[jax.vmap(lambda place: view_of_step(state.key, place, count))(places)]
    return jax.tree.map(lambda leaf: leaf[chosen], views)


def train_steps(
    state: TrainState,
    views: Batch,
    config: TrainConfig,
    *,
    report: Callable[[TrainState, Summary], bool] | None = None,
    pause_every: tuple[int, ...] = (),
) -> TrainState:
    """Trains to the end of the run, and reports about twice a second.

    Args:
      state: where to begin; its buffers are taken.
      views: training views.
      config: settings.
      report: is called with the state and the means since the last call; returns whether to go on. It must not keep
        the state, which the next call takes.
      pause_every: a report falls on every multiple of these steps.

    Returns:
      The state at the end, or where `report` stopped it.

    Example:
      >>> state = train_steps(job.state, job.views, config)
    """
    run = make_train_steps(config)
    feed = Feed(views, state.key, views_per_step=config.views_per_step)
    done = int(state.step)
    size = 1
    while done < config.steps:
        size = min(size, config.steps - done, _MOST_STEPS_A_CALL)
        size = min([size, *(every - done % every for every in pause_every)])
        began = time.monotonic()
        loaded = feed.at(done)
        size = min(size, loaded.end - done)
        state, summary = run(state, loaded.views, size, rows=loaded.rows)
        size, done = int(state.step) - done, int(state.step)
        state = make_room(state, config)
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
