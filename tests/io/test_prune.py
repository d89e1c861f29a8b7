"""Splats are dropped for the reasons asked for, and every one is counted."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.io.files import InputError
from jaxsplat.io.prune import Prune, prune
from tests.io.compare import taken
from tests.train.scenes import random_splats, trees_equal

SPLATS = random_splats(40)
OPACITY = 1 / (1 + np.exp(-np.asarray(SPLATS.logit_opacities, np.float64)))
SCALES = np.exp(np.asarray(SPLATS.log_scales, np.float64))


def check(rule, expected, *counts):
    """The rows that are left, and how many each reason dropped."""
    result = prune(SPLATS, rule)
    assert trees_equal(result.splats, taken(SPLATS, np.flatnonzero(expected)))
    assert [d.count for d in result.dropped] == [0, *counts]


def test_nothing_is_dropped_without_a_reason():
    check(Prune(), np.ones(40, bool))


def test_by_opacity():
    keep = OPACITY >= 0.3
    assert 5 < keep.sum() < 35
    check(Prune(min_opacity=0.3), keep, 40 - keep.sum())


def test_by_the_largest_scale():
    largest = SCALES.max(1)
    keep = (largest >= 0.13) & (largest <= 0.2)
    assert 5 < keep.sum() < 35
    check(Prune(min_scale=0.13, max_scale=0.2), keep, (largest < 0.13).sum(), (largest > 0.2).sum())


def test_by_a_box():
    means = np.asarray(SPLATS.means)
    keep = (means[:, 0] > -0.5) & (means[:, 1] < 0.3) & (means[:, 2] < 1.0)
    assert 5 < keep.sum() < 35
    check(Prune(box=(-0.5, -9, -9, 9, 0.3, 1.0)), keep, 40 - keep.sum())


def test_by_count_the_foremost_stay_in_their_order():
    weights = OPACITY * np.sort(SCALES, 1)[:, 1:].prod(1)
    keep = weights >= np.sort(weights)[-7]
    check(Prune(count=7), keep, 33)
    check(Prune(count=100), np.ones(40, bool), 0)
    check(Prune(count=0), np.zeros(40, bool), 40)


def test_each_splat_is_counted_once():
    result = prune(SPLATS, Prune(min_opacity=0.3, max_scale=0.15, count=3))
    assert len(result.splats.means) == 3
    assert sum(d.count for d in result.dropped) == 37
    assert [d.reason for d in result.dropped[1:]] == [
        "opacity below 0.3",
        "largest scale above 0.15",
        "beyond the count of 3",
    ]


def test_rows_that_show_nothing_are_always_dropped():
    splats = SPLATS._replace(
        means=SPLATS.means.at[0].set(jnp.nan),
        quats=SPLATS.quats.at[1].set(0.0),
        log_scales=SPLATS.log_scales.at[2].set(jnp.inf),
        logit_opacities=SPLATS.logit_opacities.at[3].set(jnp.nan).at[4].set(jnp.inf),
    )
    result = prune(splats, Prune(count=40))
    assert [d.count for d in result.dropped] == [4, 0]
    assert trees_equal(result.splats, taken(splats, np.arange(4, 40)))


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Prune(min_opacity=1.5), "min_opacity must lie in 0..1, got 1.5"),
        (Prune(max_scale=float("nan")), "max_scale must be at least 0, got nan"),
        (Prune(count=-1), "count must be at least 0, got -1"),
        (Prune(box=(0, 0, 0, 1, 1, -1)), "box must be the lowest corner, then the highest, got 0 0 0 1 1 -1"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rule, message):
    with pytest.raises(InputError, match=message):
        prune(SPLATS, rule)
