"""The numbers of a scene."""

import itertools

import jax.numpy as jnp
import numpy as np

from jaxsplat.io.summary import describe, summarize
from tests.train.scenes import random_splats


def test_counts_bounds_and_histograms_are_those_of_the_rows():
    splats = random_splats(300, rest=8)
    summary = summarize(splats)
    assert (summary.count, summary.invalid, summary.sh_degree) == (300, 0, 2)
    means = np.asarray(splats.means, np.float64)
    np.testing.assert_allclose(summary.positions[[0, -1]], [means.min(0), means.max(0)], rtol=1e-6)
    assert ((means < summary.positions[1]).sum(0) == 3).all()
    np.testing.assert_allclose(summary.positions[2], np.median(means, 0), rtol=1e-6)
    largest = np.exp(np.asarray(splats.log_scales)).max(1)
    assert summary.scales.edges[0] <= largest.min() and largest.max() <= summary.scales.edges[-1]
    within = [((largest >= a) & (largest < b)).sum() for a, b in itertools.pairwise(summary.scales.edges)]
    assert summary.scales.counts.tolist() == within and sum(within) == 300
    opacity = 1 / (1 + np.exp(-np.asarray(splats.logit_opacities)))
    assert summary.opacities.counts[2] == ((opacity >= 0.2) & (opacity < 0.3)).sum()


def test_opacities_of_0_and_1_are_in_the_outer_bins():
    splats = random_splats(3)._replace(logit_opacities=jnp.array([-jnp.inf, jnp.inf, jnp.inf]))
    assert summarize(splats).opacities.counts.tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 2]


def test_rows_that_show_nothing_are_counted_apart_and_spoil_nothing():
    splats = random_splats(20)
    broken = splats._replace(means=splats.means.at[3].set(jnp.nan), log_scales=splats.log_scales.at[5].set(-jnp.inf))
    summary = summarize(broken)
    assert summary.invalid == 2 and np.isfinite(summary.positions).all() and summary.scales.counts.sum() == 18
    assert "2 not finite or without rotation" in describe(summary)


def test_no_splats_have_a_summary_too():
    text = describe(summarize(random_splats(0)))
    assert text.splitlines()[0].split() == ["splats", "0"] and "nan" not in text


def test_the_longest_bar_is_the_largest_bin():
    lines = describe(summarize(random_splats(300))).splitlines()
    bars = {line: line.count("#") for line in lines if " .. " in line}
    opacities = list(bars.items())[-10:]
    counts = [int(line.split()[3]) for line, _ in opacities]
    assert counts.index(max(counts)) == [bar for _, bar in opacities].index(40)
