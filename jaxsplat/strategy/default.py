"""Adaptive density control (Kerbl et al. 2023), as gsplat's default strategy has it, with static shapes.

Splats whose place on the screen the loss still pulls at are cloned if small, split if large; transparent and oversized
ones are removed; now and then all opacities are lowered, so that what is not needed can be found. Arrays have a fixed
number of rows, of which the first `count` are in use; a refinement that needs more rows waits until there are.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat import _linalg
from jaxsplat.strategy.base import Fixed
from jaxsplat.strategy.rows import Refined, finite, in_use, roomy, select, unused_rows
from jaxsplat.types import Splats

_SPLIT_SHRINK = 1.6
"""The two parts of a split splat are smaller by this factor, as in the paper."""

_RESET_FACTOR = 2.0
"""A reset lowers opacities to this many times `min_opacity`: still drawn (above 1/255), so that gradients remain."""


class Density(NamedTuple):
    """What the strategy remembers since the last refinement.

    Attributes:
      gradients: [N] sum over the views of the length of the gradient by the place on the screen, of a screen 2 wide.
      views: [N] int32, views that showed the splat.
      radii: [N] largest radius on a screen, as a fraction of its longer side.
      wanted: [] int32, rows that the last refinement needs; if the arrays have fewer, it waits.
    """

    gradients: jax.Array
    views: jax.Array
    radii: jax.Array
    wanted: jax.Array


@dataclasses.dataclass(frozen=True)
class Default(Fixed):
    """Settings of the strategy; gsplat's published ones, with phases as fractions of its 30,000 steps.

    What Adam has to do in between is counted in steps, however short the run is: to show where splats are missing
    before a refinement, to raise opacities again after a reset.

    Attributes:
      cap: most splats; what it denies is counted.
      refine_start: refinement begins after this fraction of the run.
      refine_stop: refinement and resets end after this fraction of the run.
      refine_every: steps between refinements.
      reset_every: fraction of the run between resets of the opacities. Oversized splats are removed once the first such
        period is over.
      reset_gap: least steps between resets, for short runs.
      recovery: steps that must be left after a reset, or else there is none.
      pause_after_reset: steps without refinement after a reset.
      min_opacity: a splat below is removed.
      grow_gradient: a splat whose mean gradient on the screen exceeds this is cloned or split.
      grow_scale: a splat longer than this fraction of the scene's size is split rather than cloned.
      grow_screen: a splat wider than this fraction of the screen is split, until `screen_stop`.
      prune_scale: a splat longer than this fraction of the scene's size is removed.
      prune_screen: a splat wider than this fraction of the screen is removed, until `screen_stop`.
      screen_stop: fraction of the run up to which the size on the screen counts.
      absgrad: sum absolute values of the gradient over the pixels (Ye et al. 2024); then grow_gradient=8e-4 is usual.
      revised_opacity: the two splats that one becomes, cloned or split, share its opacity (Bulò et al. 2024).
    """

    cap: int = 1_000_000
    refine_start: float = 500 / 30_000
    refine_stop: float = 15_000 / 30_000
    refine_every: int = 100
    reset_every: float = 3_000 / 30_000
    reset_gap: int = 400
    recovery: int = 1_000
    pause_after_reset: int = 0
    min_opacity: float = 0.005
    grow_gradient: float = 2e-4
    grow_scale: float = 0.01
    grow_screen: float = 0.05
    prune_scale: float = 0.1
    prune_screen: float = 0.15
    screen_stop: float = 0.0
    absgrad: bool = False
    revised_opacity: bool = False

    observes: ClassVar[bool] = True
    grows: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def capacity(self, points: int) -> int:
        """Half as many rows again as are needed."""
        return roomy(points, cap=self.cap)

    def init(self, rows: int) -> Density:
        """Nothing seen yet."""
        return Density(jnp.zeros(rows), jnp.zeros(rows, jnp.int32), jnp.zeros(rows), jnp.zeros((), jnp.int32))

    def wanted(self, state: Density) -> jax.Array:
        """Rows that the last refinement needs."""
        return state.wanted

    def is_due(self, step: jax.Array, *, steps: int) -> jax.Array:
        """Whether a refinement or a reset comes after this step (counted from 0) of a run of `steps`: [] bool."""
        return self._refines(step, steps) | self._resets(step, steps)

    def observe(self, state: Density, gradients: jax.Array, radii: jax.Array, *, width: int, height: int) -> Density:
        """Adds one step to the statistics: `observe`."""
        return observe(state, gradients, radii, width=width, height=height)

    def refine(
        self, key: jax.Array, splats: Splats, count: jax.Array, state: Density, *, step: jax.Array, steps: int
    ) -> tuple[Refined, Density]:
        """Clones, splits and removes if that is due, then lowers the opacities if that is."""
        period = self._period(steps)
        due = self._refines(step, steps) & (step % period >= self.pause_after_reset)
        keep = Refined(
            splats,
            count,
            jnp.zeros(splats.means.shape[0], bool),
            jnp.zeros((), jnp.int32),
            count,
            jnp.arange(splats.means.shape[0], dtype=jnp.int32),
            jnp.zeros((), jnp.int32),
        )
        refined, state = jax.lax.cond(
            due,
            lambda: refine(
                key,
                splats,
                count,
                state,
                settings=self,
                prune_large=step > period,
                use_screen=step < int(self.screen_stop * steps),
            ),
            lambda: (keep, state),
        )
        waits = state.wanted > splats.means.shape[0]
        return reset_opacities(refined, self._resets(step, steps) & ~waits, settings=self), state

    def _refines(self, step: jax.Array, steps: int) -> jax.Array:
        start, stop = int(self.refine_start * steps), int(self.refine_stop * steps)
        return (step > start) & (step % self.refine_every == 0) & (step < stop)

    def _period(self, steps: int) -> int:
        return max(round(self.reset_every * steps), self.reset_gap, 1)

    def _resets(self, step: jax.Array, steps: int) -> jax.Array:
        stop = min(int(self.refine_stop * steps), steps - self.recovery + 1)
        return (step > 0) & (step % self._period(steps) == 0) & (step < stop)


def observe(state: Density, gradients: jax.Array, radii: jax.Array, *, width: int, height: int) -> Density:
    """Adds the views of one step to the statistics.

    The gradient is taken by the place on a screen that reaches from -1 to 1, and of the loss of one view: so it depends
    neither on the size of the pictures nor on how many of them share a step.

    Args:
      state: statistics so far.
      gradients: [C, N, 2] of the mean loss over C views, by means2d in pixels.
      radii: [C, N, 2] int32 in pixels, zero where a splat is not seen.
      width: of the pictures.
      height: of the pictures.

    Returns:
      The new statistics.

    Example:
      >>> state = observe(state, v_probe.grad, output.info.projected.radii, width=640, height=480)
    """
    views = gradients.shape[0]
    x, y = gradients[..., 0] * (0.5 * width * views), gradients[..., 1] * (0.5 * height * views)
    seen = (radii > 0).all(-1)
    length = jnp.where(seen, jnp.sqrt(x * x + y * y), 0.0).astype(state.gradients.dtype)
    largest = jnp.where(seen, radii.max(-1), 0).max(0).astype(state.radii.dtype) / max(width, height)
    return Density(
        state.gradients + length.sum(0),
        state.views + seen.sum(0, dtype=jnp.int32),
        jnp.maximum(state.radii, largest),
        state.wanted,
    )


class _Plan(NamedTuple):
    """What becomes of each row: [N] masks."""

    kept: jax.Array
    doubled: jax.Array
    split: jax.Array
    denied: jax.Array


def refine(
    key: jax.Array,
    splats: Splats,
    count: jax.Array,
    state: Density,
    *,
    settings: Default,
    prune_large: jax.Array | bool = True,
    use_screen: jax.Array | bool = False,
) -> tuple[Refined, Density]:
    """Clones, splits and removes splats by what was observed since the last refinement.

    Where no splat would be left, nothing is done. Where the cap is too small for all, those with the largest gradients
    are chosen. Where the arrays are too small, nothing is done but to say so in `wanted`: give them more rows, and
    call again. (The counts of the outcome are then those of the refinement to come.)

    Args:
      key: random key.
      splats: N rows of capacity, in a scene whose size is about 1.
      count: [] int32, rows in use.
      state: statistics.
      settings: thresholds and cap.
      prune_large: whether oversized splats are removed.
      use_screen: whether the size on the screen counts.

    Returns:
      The new splats, in use first, with the rows that moments come from and those to clear; and the new statistics.

    Example:
      >>> refined, state = refine(key, splats, count, state, settings=Default())
      >>> opt_state = move_moments(opt_state, refined.sources, refined.moved)
    """
    rows = splats.means.shape[0]
    plan = _plan(splats, count, state, settings, prune_large, use_screen)
    survivors = plan.kept.sum(dtype=jnp.int32)
    new_count = survivors + plan.doubled.sum(dtype=jnp.int32)
    fits = new_count <= rows
    acts = fits & (survivors > 0)

    index = jnp.arange(rows, dtype=jnp.int32)
    first = jnp.where(plan.kept, jnp.cumsum(plan.kept, dtype=jnp.int32) - 1, rows)
    second = jnp.where(plan.doubled, survivors + jnp.cumsum(plan.doubled, dtype=jnp.int32) - 1, rows)
    sources = jnp.zeros(rows, jnp.int32).at[first].set(index, mode="drop").at[second].set(index, mode="drop")
    used = index < new_count
    parts = (plan.split & plan.doubled)[sources] & used
    placed = _place_parts(key, jax.tree.map(lambda leaf: leaf[sources], splats), parts)
    if settings.revised_opacity:
        logits = placed.logit_opacities
        placed = placed._replace(logit_opacities=jnp.where(plan.doubled[sources], _shared_logits(logits), logits))
    refined = unused_rows(placed, ~used)
    moved = (index >= survivors) | parts

    result = Refined(
        splats=jax.tree.map(lambda new, old: jnp.where(acts, new, old), refined, splats),
        num_splats=jnp.where(acts, new_count, count),
        moved=moved & acts,
        dead=(count - survivors).astype(jnp.int32),
        live=survivors,
        sources=jnp.where(acts, sources, index),
        denied=jnp.where(survivors > 0, plan.denied.sum(dtype=jnp.int32), 0),
    )
    cleared = settings.init(rows)._replace(wanted=new_count)
    return result, jax.tree.map(
        lambda new, old: jnp.where(fits, new, old).astype(old.dtype), cleared, state._replace(wanted=new_count)
    )


def _plan(
    splats: Splats,
    count: jax.Array,
    state: Density,
    settings: Default,
    prune_large: jax.Array | bool,
    use_screen: jax.Array | bool,
) -> _Plan:
    used = in_use(splats, count) & finite(splats)
    gradients = state.gradients / jnp.maximum(state.views, 1)
    logits, longest = splats.logit_opacities, jnp.exp(splats.log_scales.max(-1))
    pulled = gradients > settings.grow_gradient
    split = used & ((pulled & (longest > settings.grow_scale)) | (use_screen & (state.radii > settings.grow_screen)))
    grows = split | (used & pulled)
    # Judged as they will be: smaller where they are split, and perhaps fainter.
    longest = jnp.where(split, longest / _SPLIT_SHRINK, longest)
    if settings.revised_opacity:
        logits = jnp.where(grows, _shared_logits(logits), logits)
    large = (longest > settings.prune_scale) | (use_screen & (state.radii > settings.prune_screen))
    kept = used & (jax.nn.sigmoid(logits) >= settings.min_opacity) & ~(large & prune_large)
    asked = kept & grows
    room = settings.cap - kept.sum(dtype=jnp.int32)
    # Those with the largest gradients come first, ties by row.
    order = jnp.argsort(jnp.where(asked, -gradients, jnp.inf), stable=True)
    rank = jnp.zeros_like(order).at[order].set(jnp.arange(len(order), dtype=order.dtype))
    doubled = asked & (rank < room)
    return _Plan(kept, doubled, split, asked & ~doubled)


def _shared_logits(logits: jax.Array) -> jax.Array:
    """Of each of two splats that together are as opaque as one: 1 - sqrt(1 - opacity), also where that rounds to 1."""
    log_transmittance = -0.5 * jax.nn.softplus(logits)
    return jnp.log(-jnp.expm1(log_transmittance)) - log_transmittance


def _place_parts(key: jax.Array, splats: Splats, parts: jax.Array) -> Splats:
    """Draws the places of the marked rows from the splat that each was, and shrinks them."""
    scales = jnp.exp(splats.log_scales)
    local = [scales[:, k] * draw for k, draw in enumerate(_draws(key, scales))]
    turn = _linalg.rotation(*(splats.quats[:, k] for k in range(4)))
    moves = jnp.stack([row[0] * local[0] + row[1] * local[1] + row[2] * local[2] for row in turn], -1)
    return splats._replace(
        means=select(parts, splats.means + moves, splats.means),
        log_scales=select(parts, splats.log_scales - math.log(_SPLIT_SHRINK), splats.log_scales),
    )


def _draws(key: jax.Array, like: jax.Array) -> list[jax.Array]:
    """Three normal numbers a row, which do not depend on how many rows there are."""
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(len(like), dtype=jnp.uint32))
    draws = jax.vmap(lambda row_key: jax.random.normal(row_key, (3,), like.dtype))(keys)
    return [draws[:, k] for k in range(3)]


def reset_opacities(refined: Refined, now: jax.Array, *, settings: Default) -> Refined:
    """Lowers every opacity to twice `min_opacity` if asked to, and has the moments of the opacities cleared.

    Args:
      refined: outcome of the refinement of the same step.
      now: [] bool.
      settings: of the strategy.

    Returns:
      The outcome, with `moved` by group.

    Example:
      >>> refined = reset_opacities(refined, jnp.asarray(True), settings=Default())
    """
    opacity = _RESET_FACTOR * settings.min_opacity
    limit = math.log(opacity / (1.0 - opacity))
    logits = refined.splats.logit_opacities
    lowered = jnp.where(now & in_use(refined.splats, refined.num_splats), jnp.minimum(logits, limit), logits)
    moved = refined.moved
    moved = moved if isinstance(moved, Splats) else Splats(*[moved] * len(Splats._fields))
    return refined._replace(
        splats=refined.splats._replace(logit_opacities=lowered),
        moved=moved._replace(logit_opacities=moved.logit_opacities | now),
    )
