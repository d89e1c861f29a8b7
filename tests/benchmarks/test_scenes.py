"""The measured scenes have the sizes that the figures are quoted for."""

from __future__ import annotations

import numpy as np

from benchmarks import scenes
from benchmarks.baseline import Baseline
from tests.data import shared


def test_garden_is_the_scene_of_the_published_figures() -> None:
    scene = scenes.garden(shared("data/gsplat/test_garden.npz"))
    screen = scenes.project(scene)
    assert (len(scene.means), scene.width, scene.height) == (111_785, 648, 420)
    assert abs(int((screen.box_radii > 0).all(axis=1).sum()) - 71_000) < 1_000
    lists = Baseline(threads=1).intersect(screen.means2d, screen.box_radii, screen.depths, width=648, height=420)
    assert abs(len(lists.ids) - 502_578) < 10_000


def test_synthetic_scene_is_seen_and_repeats() -> None:
    one, two = scenes.synthetic(500, 64, 48), scenes.synthetic(500, 64, 48)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    screen = scenes.project(one)
    visible = (screen.radii > 0).all(axis=1)
    assert visible.mean() > 0.5
    # Boxes of 3.33 standard deviations are no smaller than those that the opacity allows.
    assert np.all(screen.box_radii[visible] >= screen.radii[visible])
    assert not screen.box_radii[~visible].any()
