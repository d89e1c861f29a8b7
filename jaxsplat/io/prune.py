"""Fewer splats: those that show nothing, or that the user does not want."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from jaxsplat.io.arrays import Rows, drawable, to_rows, to_splats
from jaxsplat.io.files import InputError
from jaxsplat.types import Splats


@dataclasses.dataclass(frozen=True)
class Prune:
    """Which splats to drop, beside those that can never be seen (not finite, or without a rotation).

    Attributes:
      min_opacity: drop splats of a smaller opacity, in 0..1.
      min_scale: drop splats whose largest axis is smaller, in world units.
      max_scale: drop splats whose largest axis is larger, in world units.
      box: keep only splats whose centre is inside: x, y, z of the lowest corner, then of the highest, in world units.
      count: keep at most so many: those of the largest opacity times cross-section.
    """

    min_opacity: float | None = None
    min_scale: float | None = None
    max_scale: float | None = None
    box: tuple[float, float, float, float, float, float] | None = None
    count: int | None = None


class Dropped(NamedTuple):
    """Why some splats were dropped, and how many.

    Attributes:
      reason: for people.
      count: of the splats that no earlier reason had dropped.
    """

    reason: str
    count: int


class Pruned(NamedTuple):
    """What is left.

    Attributes:
      splats: those that were kept, in their order.
      dropped: an entry for each reason that was asked for, in the order in which they were applied.
    """

    splats: Splats
    dropped: tuple[Dropped, ...]


def prune(splats: Splats, rule: Prune) -> Pruned:
    """Drops splats.

    Args:
      splats: N rows, no batch axes.
      rule: which to drop.

    Returns:
      The others, and the counts.

    Raises:
      InputError: where the rule makes no sense.
      ValueError: where the shapes disagree.

    Example:
      >>> prune(splats, Prune(min_opacity=0.005)).dropped[1].count
      1234
    """
    _check_rule(rule)
    rows = to_rows("prune", splats)
    keep = drawable(rows)
    dropped = [Dropped("not finite or without rotation", int((~keep).sum()))]
    with np.errstate(over="ignore", invalid="ignore"):  # rows that are already dropped
        opacity = 1.0 / (1.0 + np.exp(-rows.logit_opacities.astype(np.float64)))
        scales = np.exp(rows.log_scales.astype(np.float64))
    largest = scales.max(1, initial=0.0)
    low, high = np.reshape(rule.box if rule.box is not None else [-np.inf] * 3 + [np.inf] * 3, (2, 3))
    tests = [
        ("opacity below", rule.min_opacity, lambda limit: opacity >= limit),
        ("largest scale below", rule.min_scale, lambda limit: largest >= limit),
        ("largest scale above", rule.max_scale, lambda limit: largest <= limit),
        ("outside the box", rule.box, lambda _: ((rows.means >= low) & (rows.means <= high)).all(1)),
        ("beyond the count of", rule.count, lambda count: _foremost(opacity * _cross_section(scales), keep, count)),
    ]
    for words, limit, passes in tests:
        if limit is not None:
            kept = keep & passes(limit)
            shown = " ".join(f"{v:g}" for v in np.atleast_1d(limit))
            dropped.append(Dropped(f"{words} {shown}", int(keep.sum() - kept.sum())))
            keep = kept
    return Pruned(to_splats(Rows(*(leaf[keep] for leaf in rows))), tuple(dropped))


def _cross_section(scales: np.ndarray) -> np.ndarray:
    """[N] product of the two larger scales: the area that a splat can cover."""
    return np.sort(scales, 1)[:, 1:].prod(1)


def _foremost(weights: np.ndarray, keep: np.ndarray, count: int) -> np.ndarray:
    """[N] the `count` rows of the largest weights among those kept; the first of equal ones."""
    order = np.argsort(np.where(keep, -weights, np.inf), kind="stable")
    chosen = np.zeros(len(keep), bool)
    chosen[order[:count]] = True
    return chosen


def _check_rule(rule: Prune) -> None:
    if rule.min_opacity is not None and not 0.0 <= rule.min_opacity <= 1.0:
        raise InputError(f"min_opacity must lie in 0..1, got {rule.min_opacity:g}")
    for name in ("min_scale", "max_scale"):
        value = getattr(rule, name)
        if value is not None and not value >= 0.0:
            raise InputError(f"{name} must be at least 0, got {value:g}")
    if rule.count is not None and rule.count < 0:
        raise InputError(f"count must be at least 0, got {rule.count}")
    if rule.box is not None and not all(a <= b for a, b in zip(rule.box[:3], rule.box[3:], strict=True)):
        raise InputError(f"box must be the lowest corner, then the highest, got {' '.join(f'{v:g}' for v in rule.box)}")
