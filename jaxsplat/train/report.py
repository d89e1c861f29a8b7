"""report.html: what a run came to, in one file that opens anywhere."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jaxsplat.data.capture import Capture
from jaxsplat.io.files import atomic_write
from jaxsplat.train.chart import histogram, line_chart
from jaxsplat.train.evaluate import Evaluation, error_map, held_out_views
from jaxsplat.train.history import Row
from jaxsplat.types import Splats

_WORST = 3
"""Views that are shown, worst first."""

_JPEG_QUALITY = 88
_WIDEST = 640
"""Pixels; larger pictures are shrunk for the page. The folder of pictures has them in full."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2530; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #d8dee6; }
table { border-collapse: collapse; } td, th { padding: .2rem .9rem .2rem 0; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
.big td { font-size: 1.5rem; padding-right: 2.5rem; } .big th { font-weight: normal; color: #5b6877; }
.row { display: flex; gap: .6rem; flex-wrap: wrap; } figure { margin: 0 0 1rem; flex: 1 1 15rem; }
img, svg { max-width: 100%; height: auto; display: block; } figcaption { color: #5b6877; font-size: .85rem; }
pre { background: #f4f6f9; padding: 1rem; overflow: auto; font-size: .85rem; }
"""


def save_report(
    path: Path | str,
    *,
    title: str,
    evaluation: Evaluation,
    capture: Capture,
    splats: Splats,
    rows: Sequence[Row],
    settings: dict[str, Any],
    seconds: float,
    notes: Sequence[str] = (),
) -> None:
    """Writes the page: figures, curves, the worst held-out views, statistics of the splats, settings.

    Args:
      path: file to write.
      title: of the page.
      evaluation: of the held-out views.
      capture: photographs.
      splats: of the finished scene.
      rows: of the run's history.
      settings: JSON values.
      seconds: of training.
      notes: what the user should know, a sentence each.

    Raises:
      OSError: where the file cannot be written.

    Example:
      >>> save_report("report.html", title="fox", evaluation=evaluation, capture=capture, splats=splats,
      ...             rows=history.rows, settings={}, seconds=120.0)
    """
    parts = [
        f"<h1>{_text(title)}</h1>",
        _headline(evaluation, len(splats.means), seconds),
        "".join(f"<p>{_text(note)}</p>" for note in notes),
        _section("Training", _curves(rows)),
        _section("Worst held-out views: photograph, render, error (four times enlarged)", _worst(evaluation, capture)),
        _section("Held-out views", _views(evaluation)),
        _section("Splats", _statistics(splats)),
        _section("Settings", f"<pre>{_text(json.dumps(settings, indent=2, ensure_ascii=False))}</pre>"),
    ]
    page = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )
    with atomic_write(path) as file:
        file.write(page.encode())


def _text(value: object) -> str:
    return html.escape(str(value))


def _section(title: str, body: str) -> str:
    return f"<h2>{_text(title)}</h2>\n{body}"


def _table(head: Sequence[str], lines: Sequence[Sequence[object]], *, name: str = "") -> str:
    """The first column holds names, the others numbers."""
    cells = [
        "".join(f"<td{' class=n' if k else ''}>{_text(cell)}</td>" for k, cell in enumerate(line)) for line in lines
    ]
    top = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    return f'<table class="{name}"><tr>{top}</tr>' + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def _headline(evaluation: Evaluation, count: int, seconds: float) -> str:
    values = (
        f"{evaluation.psnr:.2f} dB", f"{evaluation.ssim:.4f}", f"{count:,}", f"{seconds:.0f} s", len(evaluation.views)
    )  # fmt: skip
    return _table(("PSNR", "SSIM", "splats", "training", "views"), [values], name="big")


def _curves(rows: Sequence[Row]) -> str:
    if not rows:
        return "<p>No curves: the run was finished before it was resumed.</p>"
    steps = [row.step for row in rows]
    charts = [
        ("loss", [row.loss for row in rows]),
        ("PSNR of training views, dB", [row.psnr for row in rows]),
        ("splats", [float(row.splats) for row in rows]),
    ]
    figures = "".join(f"<figure>{line_chart(steps, values, title=title)}</figure>" for title, values in charts)
    denied = sum(row.denied for row in rows)
    note = f"<p>The cap denied {denied:,} new splats.</p>" if denied else ""
    return f'<div class="row">{figures}</div>{note}<p>The same figures are in curves.csv.</p>'


def _worst(evaluation: Evaluation, capture: Capture) -> str:
    order = np.argsort([view.psnr for view in evaluation.views], kind="stable")[:_WORST]
    indices = held_out_views(capture)
    blocks = []
    for rank in order:
        view, image, index = evaluation.views[rank], evaluation.images[rank], int(indices[rank])
        pictures = (capture.images[index], image, error_map(capture, index, image))
        figures = "".join(
            f'<figure><img src="{_inline(picture)}" alt="{name}"></figure>'
            for name, picture in zip(("photograph", "render", "error"), pictures, strict=True)
        )
        caption = f"{view.name}: PSNR {view.psnr:.2f} dB, SSIM {view.ssim:.4f}"
        blocks.append(f'<figcaption>{_text(caption)}</figcaption><div class="row">{figures}</div>')
    return "".join(blocks)


def _inline(picture: np.ndarray) -> str:
    image = Image.fromarray(picture)
    image.thumbnail((_WIDEST, _WIDEST))
    data = io.BytesIO()
    image.save(data, format="JPEG", quality=_JPEG_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(data.getvalue()).decode()


def _views(evaluation: Evaluation) -> str:
    views = sorted(evaluation.views, key=lambda view: view.psnr)
    return _table(("view", "PSNR, dB", "SSIM"), [(v.name, f"{v.psnr:.2f}", f"{v.ssim:.4f}") for v in views])


def _statistics(splats: Splats) -> str:
    means, log_scales = np.asarray(splats.means), np.asarray(splats.log_scales)
    if not len(means):
        return "<p>None.</p>"
    opacities = 1.0 / (1.0 + np.exp(-np.clip(np.asarray(splats.logit_opacities, np.float64), -60, 60)))
    longest = log_scales.max(-1) / np.log(10)
    flatness = (log_scales.max(-1) - log_scales.min(-1)) / np.log(10)
    charts = (
        histogram(opacities, title="opacity", bounds=(0.0, 1.0)),
        histogram(longest, title="longest axis, log10 of world units"),
        histogram(flatness, title="longest over shortest axis, log10"),
    )
    figures = "".join(f"<figure>{chart}</figure>" for chart in charts)
    lines = [
        (axis, *(f"{value:.3f}" for value in np.percentile(means[:, k], (0, 5, 50, 95, 100))))
        for k, axis in enumerate("xyz")
    ]
    table = _table(("place", "least", "5%", "median", "95%", "most"), lines)
    return f'<div class="row">{figures}</div>{table}'
