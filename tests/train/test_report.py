"""The page about a run: whole, self-contained, and true."""

import base64
import dataclasses
import io
import re
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxsplat.data import load_capture
from jaxsplat.train.chart import histogram, line_chart
from jaxsplat.train.evaluate import Evaluation, ViewMetrics
from jaxsplat.train.history import Row
from jaxsplat.train.report import save_report
from tests.train.scenes import random_splats, write_capture

VOID = {"meta", "img", "br", "hr", "link", "input"}


class Page(HTMLParser):
    """Collects elements, and checks that they nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.text = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    capture = load_capture(write_capture(folder / "c", views=25))
    names = ("good <b>", "images/ü.png", "worst & last", "middle")
    psnrs = (30.0, 20.0, 10.0, 25.0)
    images = np.zeros((4, 20, 24, 3), np.uint8)
    images[2] = 255 - capture.images[16]
    views = tuple(ViewMetrics(n, p, p / 40) for n, p in zip(names, psnrs, strict=True))
    save_report(
        folder / "report.html",
        title="a <script>",
        evaluation=Evaluation(21.25, 0.5, views, images),
        capture=capture,
        splats=random_splats(500),
        rows=[Row(10 * k, 1 / (k + 1), 20.0 + k, 100 * k, k == 3, float(k)) for k in range(1, 5)],
        settings={"steps": 40, "name": "</pre><script>"},
        seconds=12.3,
        notes=("3 of 5 images are missing.",),
    )
    text = (folder / "report.html").read_text(encoding="utf-8")
    return text, Page(text), capture, images


def test_the_page_loads_nothing_and_runs_nothing(page):
    text, parsed, *_ = page
    tags = {tag for tag, _ in parsed.elements}
    assert not tags & {"script", "link", "iframe", "object", "embed"}
    sources = [
        value for _, attributes in parsed.elements for key, value in attributes.items() if key in ("src", "href")
    ]
    assert sources and all(source.startswith("data:image/") for source in sources)
    assert "url(" not in text and "@import" not in text


def test_names_and_settings_are_shown_as_text(page):
    _, parsed, *_ = page
    for shown in ("a <script>", "good <b>", "images/ü.png", "</pre><script>", "3 of 5 images are missing."):
        assert shown in parsed.text


def test_figures_are_those_of_the_run(page):
    _, parsed, *_ = page
    for shown in ("21.25 dB", "0.5000", "500", "12 s", "The cap denied 1 new splats."):
        assert shown in parsed.text


def test_the_three_worst_views_are_shown_worst_first(page):
    _, parsed, capture, images = page
    order = re.findall(r"(worst & last|images/ü.png|middle|good <b>): PSNR", parsed.text)
    assert order == ["worst & last", "images/ü.png", "middle"]
    pictures = []
    for tag, attributes in parsed.elements:
        if tag == "img":
            data = base64.b64decode(attributes["src"].split(",")[1])
            pictures.append(np.asarray(Image.open(io.BytesIO(data))).astype(float))
    assert len(pictures) == 9
    error = np.clip(np.abs(capture.images[16].astype(float) - images[2]).mean(-1) * 4, 0, 255)
    for got, want in zip(
        pictures[:3], (capture.images[16], images[2], np.repeat(error[..., None], 3, -1)), strict=True
    ):
        assert np.abs(got - want).mean() < 12  # JPEG


def points_of(svg):
    return np.array([[float(v) for v in pair.split(",")] for pair in re.search(r'points="([^"]*)"', svg)[1].split()])


def test_a_line_rises_where_its_values_do_and_stays_inside():
    places = points_of(line_chart([0, 10, 30], [1.0, 3.0, 2.0], title="x & y"))
    assert (np.diff(places[:, 0]) > 0).all() and places[1, 1] < places[2, 1] < places[0, 1]
    np.testing.assert_allclose((places[1, 0] - places[0, 0]) / (places[2, 0] - places[0, 0]), 1 / 3, atol=0.01)
    assert (places >= 0).all() and places[:, 0].max() <= 360 and places[:, 1].max() <= 220


def test_charts_of_nothing_one_value_and_broken_values_are_whole():
    for chart in (
        line_chart([], [], title="none"),
        line_chart([5], [1.0], title="one"),
        line_chart([1, 2, 3], [1.0, float("nan"), float("inf")], title="broken"),
        histogram(np.array([]), title="none"),
        histogram(np.full(9, 2.0), title="equal"),
        histogram(np.array([1.0, np.inf, np.nan]), title="broken"),
    ):
        Page(chart)
        assert "nan" not in chart and "inf" not in chart


def test_bars_are_as_high_as_their_counts():
    chart = histogram(np.array([0.1] * 30 + [0.9] * 10), title="x", bounds=(0.0, 1.0))
    heights = sorted(float(value) for value in re.findall(r'height="([\d.]+)" fill', chart))
    assert len(heights) == 40 and heights[-3] == 0 and heights[-1] == pytest.approx(3 * heights[-2], rel=0.01)


def test_a_scene_without_splats_and_a_run_without_rows_have_a_page_too(page, tmp_path):
    _, _, capture, images = page
    evaluation = Evaluation(1.0, 0.0, (ViewMetrics("a", 1.0, 0.0),), images[:1])
    alone = dataclasses.replace(capture, held_out=np.arange(25) == 3)
    empty = jax.tree.map(lambda x: x[:0], random_splats(1))
    save_report(
        tmp_path / "r.html", title="t", evaluation=evaluation, capture=alone, splats=empty, rows=(), settings={},
        seconds=0.0,
    )  # fmt: skip
    assert "No curves" in Page((tmp_path / "r.html").read_text()).text and jnp.isfinite(evaluation.psnr)
