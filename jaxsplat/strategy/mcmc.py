"""3D Gaussian splatting as Markov chain Monte Carlo (Kheradmand et al. 2024), with static shapes.

The first `count` rows of the arrays are in use, the others are invisible. Dead splats move to live ones, the number
grows up to the cap, and noise on the means explores. Pure functions of jax.random keys. How many splats a refinement
adds is known before it, so that rows are asked for ahead.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxsplat import _linalg
from jaxsplat._constants import NORM_FLOOR
from jaxsplat.strategy.base import Fixed
from jaxsplat.strategy.regularizers import Regularizers, regularize
from jaxsplat.strategy.rows import Refined, finite, in_use, roomy, select
from jaxsplat.types import Splats

_GATE_STEEPNESS = 100.0
_GATE_OPACITY = 0.005
"""Noise acts on splats of less opacity than this, in a soft step."""

_MAX_OPACITY = 1.0 - 1e-6
_QUADRATURE_LIMIT = 6.0
_QUADRATURE_STEPS = 48


@dataclasses.dataclass(frozen=True)
class MCMC(Fixed):
    """Settings of the strategy.

    Attributes:
      cap: most splats.
      refine_start: refinement begins after this fraction of the run.
      refine_stop: refinement ends after this fraction of the run.
      refine_every: steps between refinements.
      growth: new splats at a refinement, as a fraction of those in use.
      min_opacity: a splat at or below is dead.
      noise: strength of the noise, times the means' learning rate.
      opacity_reg: weight of the mean opacity in the loss.
      scale_reg: weight of the mean scale in the loss.
    """

    cap: int = 80_000
    refine_start: float = 500 / 30_000
    refine_stop: float = 25_000 / 30_000
    refine_every: int = 100
    growth: float = 0.05
    min_opacity: float = 0.005
    noise: float = 5e5
    opacity_reg: float = 0.01
    scale_reg: float = 0.01

    grows: ClassVar[bool] = True

    def init(self, rows: int) -> jax.Array:
        """Nothing asked for: the arrays begin with rows for the first refinement."""
        del rows
        return jnp.zeros((), jnp.int32)

    def wanted(self, state: jax.Array) -> jax.Array:
        """Rows that the next refinement will need."""
        return state

    def is_due(self, step: jax.Array, *, steps: int) -> jax.Array:
        """Whether to refine after this step (counted from 0) of a run of `steps`: [] bool."""
        start, stop = int(self.refine_start * steps), int(self.refine_stop * steps)
        return (step > 0) & (step % self.refine_every == 0) & (step >= start) & (step < stop)

    def capacity(self, points: int) -> int:
        """Half as many rows again as are needed, or more where `growth` is large."""
        return roomy(points, cap=self.cap, growth=self.growth)

    def refine(
        self, key: jax.Array, splats: Splats, count: jax.Array, state: jax.Array, *, step: jax.Array, steps: int
    ) -> tuple[Refined, jax.Array]:
        """Moves dead splats and adds new ones: `refine`. Asks for the rows of the next refinement, if there is one."""
        del state
        refined = refine(key, splats, count, settings=self)
        goes_on = self.is_due(step + self.refine_every, steps=steps)
        return refined, jnp.where(goes_on, _grown(refined.num_splats, self), 0)

    def perturb(self, key: jax.Array, splats: Splats, count: jax.Array, rate: jax.Array) -> Splats:
        """Moves nearly transparent splats: `add_noise`."""
        return add_noise(key, splats, count, rate, settings=self)

    def regularizers(self) -> Regularizers:
        """The two terms that make useless splats die."""
        return Regularizers(opacity=self.opacity_reg, scale=self.scale_reg)


def relocated_values(opacities: jax.Array, scales: jax.Array, copies: jax.Array) -> tuple[jax.Array, jax.Array]:
    r"""Opacity and scale of each of `copies` splats that together look like one (equation 9 of the paper).

    o' = 1 - (1 - o)^(1 / n), and the scale is multiplied by o divided by the sum over i = 1..n and k = 0..i-1 of
    C(i-1, k) (-1)^k o'^(k+1) / sqrt(k+1). That sum equals the integral of 1 - (1 - o' exp(-x^2 / 2))^n over x, divided
    by sqrt(2 pi). The integral is what is computed: no cancellation, and any n.

    Args:
      opacities: [N] opacities, 0..1.
      scales: [N, 3] standard deviations.
      copies: [N] integer, how many splats share the place; 1 changes nothing.

    Returns:
      Opacities [N] and scales [N, 3].

    Example:
      >>> relocated_values(jnp.array([0.75]), jnp.ones((1, 3)), jnp.array([2]))[0]
      Array([0.5], dtype=float32)
    """
    number = copies.astype(opacities.dtype)
    total = jnp.clip(opacities, 0.0, _MAX_OPACITY)
    log_rest = jnp.log1p(-total)
    shared = -jnp.expm1(log_rest / number)
    step = _QUADRATURE_LIMIT / _QUADRATURE_STEPS
    # The trapezoid rule converges exponentially for a bell-shaped integrand; both halves are equal.

    def add(i: jax.Array, integral: jax.Array) -> jax.Array:
        bell = jnp.exp(-0.5 * jnp.square(i.astype(opacities.dtype) * step))
        return integral - jnp.expm1(number * jnp.log1p(-shared * bell)) * step

    integral = jax.lax.fori_loop(1, _QUADRATURE_STEPS + 1, add, 0.5 * total * step)
    denominator = integral * (2.0 / math.sqrt(2.0 * math.pi))
    ratio = jnp.where(copies > 1, total / jnp.maximum(denominator, NORM_FLOOR), 1.0)
    return jnp.where(copies > 1, shared, opacities), scales * ratio[:, None]


def refine(key: jax.Array, splats: Splats, count: jax.Array, *, settings: MCMC) -> Refined:
    """Moves dead splats onto live ones, then adds new splats up to the cap; both drawn in proportion to opacity.

    Where the arrays have fewer rows than that, those that find no row are not made, but counted in `denied`.

    Args:
      key: random key.
      splats: N rows of capacity.
      count: [] int32, rows in use.
      settings: thresholds, growth and cap.

    Returns:
      The new splats, with the rows whose moments must be cleared.

    Example:
      >>> refined = refine(key, splats, count, settings=MCMC(cap=50_000))
      >>> opt_state = zero_moments(opt_state, refined.moved)
    """
    capacity = splats.means.shape[0]
    used = in_use(splats, count)
    alive = used & finite(splats) & (jax.nn.sigmoid(splats.logit_opacities) > settings.min_opacity)
    dead = used & ~alive
    relocate_key, grow_key = jax.random.split(key)
    splats, moved = _copy_onto(relocate_key, splats, targets=dead, sources=alive, settings=settings)

    live = alive.sum(dtype=jnp.int32)
    asked = jnp.where(live > 0, _grown(count, settings), count)
    new_count = jnp.minimum(asked, capacity)
    fresh = in_use(splats, new_count) & ~used
    sources = used & (alive | moved)
    splats, grown = _copy_onto(grow_key, splats, targets=fresh, sources=sources, settings=settings)
    return Refined(splats, new_count, moved | grown, dead.sum(dtype=jnp.int32), live, denied=asked - new_count)


def _grown(count: jax.Array, settings: MCMC) -> jax.Array:
    """How many splats there are after a refinement of so many: [] int32, never fewer."""
    added = jnp.ceil(count * settings.growth).astype(jnp.int32)
    return jnp.maximum(jnp.minimum(count + added, settings.cap), count)


def _copy_onto(
    key: jax.Array, splats: Splats, *, targets: jax.Array, sources: jax.Array, settings: MCMC
) -> tuple[Splats, jax.Array]:
    """Replaces the target rows by copies of drawn source rows, which share their opacity; says which rows changed."""
    opacities = jax.nn.sigmoid(splats.logit_opacities)
    weights = jnp.where(sources, opacities, 0.0)
    possible = weights.sum() > 0
    targets = targets & possible
    drawn = _draw(key, weights)
    copies = jnp.zeros_like(drawn).at[drawn].add(targets.astype(drawn.dtype))
    # Rows that are not split may hold anything, Inf and NaN too: they pass by `where`, untouched.
    split = copies > 0
    shared, scales = relocated_values(opacities, jnp.exp(splats.log_scales), copies + 1)
    shared = jnp.clip(shared, settings.min_opacity, _MAX_OPACITY)
    logits = jnp.where(split, jnp.log(shared) - jnp.log1p(-shared), splats.logit_opacities)
    log_scales = jnp.where(split[:, None], jnp.log(scales), splats.log_scales)
    shared_splats = splats._replace(logit_opacities=logits, log_scales=log_scales)
    copied = jax.tree.map(lambda leaf: select(targets, leaf[drawn], leaf), shared_splats)
    return copied, targets | split


def _draw(key: jax.Array, weights: jax.Array) -> jax.Array:
    """Draws a row for every row, with replacement, in proportion to the weights: [N] int32."""
    ends = jnp.cumsum(weights)
    points = jax.random.uniform(key, weights.shape, weights.dtype) * ends[-1]
    drawn = jnp.searchsorted(ends, points, side="right").astype(jnp.int32)
    # Rounding may carry a point past the end; the last row with a weight takes it.
    last = weights.shape[0] - 1 - jnp.argmax(weights[::-1] > 0).astype(jnp.int32)
    return jnp.minimum(drawn, last)


def regularizer(splats: Splats, count: jax.Array, *, settings: MCMC) -> jax.Array:
    """Mean opacity and mean scale of the splats in use, weighted: what makes useless splats die.

    Args:
      splats: N rows of capacity.
      count: [] int32, rows in use.
      settings: the two weights.

    Returns:
      [] a term of the loss.

    Example:
      >>> loss = loss + regularizer(splats, count, settings=MCMC())
    """
    return regularize(splats, count, weights=settings.regularizers())


def add_noise(key: jax.Array, splats: Splats, count: jax.Array, rate: jax.Array, *, settings: MCMC) -> Splats:
    """Moves the means of nearly transparent splats at random, along their own covariance (equation 8 of the paper).

    Args:
      key: random key.
      splats: N rows of capacity.
      count: [] int32, rows in use.
      rate: [] learning rate of the means at this step.
      settings: strength of the noise.

    Returns:
      The splats with moved means.

    Example:
      >>> splats = add_noise(key, splats, count, rate, settings=MCMC())
    """
    opacities = jax.nn.sigmoid(splats.logit_opacities)
    strength = settings.noise * jnp.asarray(rate, splats.means.dtype)
    gate = jax.nn.sigmoid(_GATE_STEEPNESS * (_GATE_OPACITY - opacities)) * strength
    gate = jnp.where(in_use(splats, count), gate, 0.0)
    # A key for each axis: what a row draws does not depend on how many rows there are.
    keys = jax.random.split(key, 3)
    noise = jax.vmap(lambda axis: jax.random.normal(axis, opacities.shape, splats.means.dtype))(keys)
    moves = [gate * move for move in _covariance_times(splats.quats, splats.log_scales, noise)]
    # A row that is not finite stays as it is: the renderer culls it and the next refinement replaces it.
    moves = [jnp.where(jnp.isfinite(move), move, 0.0) for move in moves]
    return splats._replace(means=splats.means + _linalg.interleave(*moves))


def _covariance_times(quats: jax.Array, log_scales: jax.Array, vectors: jax.Array) -> list[jax.Array]:
    """R S S^T R^T v for v [3, N], component by component: XLA fuses it into one loop."""
    rows = _linalg.rotation(*(quats[:, i] for i in range(4)))
    local = [sum((rows[i][j] * vectors[i] for i in range(1, 3)), rows[0][j] * vectors[0]) for j in range(3)]
    local = [jnp.exp(2.0 * log_scales[:, j]) * local[j] for j in range(3)]
    return [rows[i][0] * local[0] + rows[i][1] * local[1] + rows[i][2] * local[2] for i in range(3)]
