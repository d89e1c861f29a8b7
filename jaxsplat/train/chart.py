"""Small charts as SVG text: enough for a page that must not load anything."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

_WIDTH, _HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 28, 24
_BINS = 40
_COLOR = "#2463eb"


def line_chart(x: Sequence[float], y: Sequence[float], *, title: str) -> str:
    """Draws a line; values that are not finite are left out.

    Args:
      x: rising.
      y: as many.
      title: above the chart.

    Returns:
      An `<svg>` element.

    Example:
      >>> line_chart([0, 1], [2.0, 3.0], title="loss")
    """
    points = np.array([x, y], np.float64).T
    points = points[np.isfinite(points).all(1)]
    if not len(points):
        return _frame(title, "", (0.0, 1.0), (0.0, 1.0))
    across, up = _range(points[:, 0]), _range(points[:, 1])
    places = " ".join(f"{_x(a, across):.1f},{_y(b, up):.1f}" for a, b in points)
    line = f'<polyline points="{places}" fill="none" stroke="{_COLOR}" stroke-width="1.5"/>'
    return _frame(title, line, across, up)


def histogram(values: np.ndarray, *, title: str, bounds: tuple[float, float] | None = None) -> str:
    """Draws how many values fall into each of 40 bins; those that are not finite are left out.

    Args:
      values: of any shape.
      title: above the chart.
      bounds: of the bins; those of the values when None.

    Returns:
      An `<svg>` element.

    Example:
      >>> histogram(np.array([0.1, 0.9]), title="opacity", bounds=(0.0, 1.0))
    """
    values = np.asarray(values, np.float64).ravel()
    values = values[np.isfinite(values)]
    across = bounds or (_range(values) if len(values) else (0.0, 1.0))
    counts, edges = np.histogram(values, _BINS, across)
    up = (0.0, float(max(counts.max(), 1)))
    width = (_WIDTH - _LEFT - _RIGHT) / _BINS - 0.5
    bars = "".join(
        f'<rect x="{_x(left, across):.1f}" y="{_y(count, up):.1f}" width="{width:.1f}" '
        f'height="{_y(0, up) - _y(count, up):.1f}" fill="{_COLOR}"/>'
        for count, left in zip(counts.tolist(), edges[:-1], strict=True)
    )
    return _frame(title, bars, across, up)


def _range(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _x(value: float, bounds: tuple[float, float]) -> float:
    return _LEFT + (value - bounds[0]) / (bounds[1] - bounds[0]) * (_WIDTH - _LEFT - _RIGHT)


def _y(value: float, bounds: tuple[float, float]) -> float:
    return _HEIGHT - _BOTTOM - (value - bounds[0]) / (bounds[1] - bounds[0]) * (_HEIGHT - _TOP - _BOTTOM)


def _frame(title: str, content: str, across: tuple[float, float], up: tuple[float, float]) -> str:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    labels = [
        (_LEFT - 6, _y(up[0], up), "end", up[0]),
        (_LEFT - 6, _y(up[1], up) + 8, "end", up[1]),
        (_LEFT, _HEIGHT - 8, "start", across[0]),
        (right, _HEIGHT - 8, "end", across[1]),
    ]
    texts = "".join(
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="#5b6877">{value:.4g}</text>'
        for x, y, anchor, value in labels
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="11" '
        f'font-family="system-ui, sans-serif" role="img">'
        f'<text x="{_LEFT}" y="16" fill="#1c2530">{html.escape(title)}</text>'
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#9aa6b5"/>{content}{texts}</svg>'
    )
