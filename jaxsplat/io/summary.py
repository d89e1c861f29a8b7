"""What a scene consists of, in numbers and for a terminal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxsplat.io.arrays import drawable, to_rows
from jaxsplat.io.splats import sh_degree_of
from jaxsplat.types import Splats

_WIDEST_BAR = 40
_OPACITY_EDGES = np.linspace(0.0, 1.0, 11)
_PERCENTILES = (0, 1, 50, 99, 100)


class Histogram(NamedTuple):
    """How values are spread.

    Attributes:
      edges: [B + 1] ends of the bins.
      counts: [B] values in each bin; the last one includes its upper end.
    """

    edges: np.ndarray
    counts: np.ndarray


class Summary(NamedTuple):
    """A scene in numbers; only of the rows that can show something, `count` and `invalid` excepted.

    Attributes:
      count: splats.
      invalid: of them, not finite or without a rotation.
      sh_degree: 0 to 4.
      positions: [5, 3] lowest, 1%, median, 99% and highest coordinate of the centres; NaN for no splats.
      scales: of the largest axis of each splat, in world units; a bin a decade.
      opacities: in 0..1.
    """

    count: int
    invalid: int
    sh_degree: int
    positions: np.ndarray
    scales: Histogram
    opacities: Histogram


def summarize(splats: Splats) -> Summary:
    """Counts, bounds and histograms of a scene.

    Args:
      splats: N rows, no batch axes.

    Returns:
      The numbers.

    Raises:
      ValueError: where the shapes disagree.

    Example:
      >>> summarize(load_splats("scene.ply")).count
      80000
    """
    rows = to_rows("summarize", splats)
    valid = drawable(rows)
    means, log_scales, logits = rows.means[valid], rows.log_scales[valid], rows.logit_opacities[valid]
    positions = np.full((len(_PERCENTILES), 3), np.nan)
    if len(means):
        positions = np.percentile(means.astype(np.float64), _PERCENTILES, axis=0)
    decades = log_scales.max(1, initial=-np.inf).astype(np.float64) / np.log(10.0)
    ends = (np.floor(decades.min()), np.floor(decades.max()) + 1) if len(decades) else (0.0, 1.0)
    edges = np.arange(ends[0], ends[1] + 0.5)
    counts, _ = np.histogram(decades, edges)
    opacities, _ = np.histogram(1.0 / (1.0 + np.exp(-np.clip(logits.astype(np.float64), -50, 50))), _OPACITY_EDGES)
    return Summary(
        count=len(valid),
        invalid=int((~valid).sum()),
        sh_degree=sh_degree_of(splats),
        positions=positions,
        scales=Histogram(10.0**edges, counts),
        opacities=Histogram(_OPACITY_EDGES, opacities),
    )


def describe(summary: Summary) -> str:
    """The numbers as lines for a terminal."""
    lines = [f"splats     {summary.count:,}", f"SH degree  {summary.sh_degree}"]
    if summary.invalid:
        lines.append(f"invisible  {summary.invalid:,} not finite or without rotation; 'jaxsplat export' drops them")
    if summary.count > summary.invalid:
        lines.append("position   lowest       1%   median      99%  highest")
        for axis, name in enumerate("xyz"):
            lines.append(f"  {name}      " + " ".join(f"{v:8.4g}" for v in summary.positions[:, axis]))
        for title, histogram in (("largest scale", summary.scales), ("opacity", summary.opacities)):
            lines += ["", title, *_bars(histogram)]
    return "\n".join(lines)


def _bars(histogram: Histogram) -> list[str]:
    total = max(int(histogram.counts.sum()), 1)
    most = max(int(histogram.counts.max(initial=0)), 1)
    lines = []
    for low, high, count in zip(histogram.edges[:-1], histogram.edges[1:], histogram.counts, strict=True):
        bar = "#" * round(_WIDEST_BAR * count / most)
        lines.append(f"  {low:>7.4g} .. {high:<7.4g} {count:>10,} {100 * count / total:5.1f}% {bar}".rstrip())
    return lines
