"""The benchmark's yardstick against a dense blend in numpy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.baseline import Baseline, Lists, Splats

WIDTH, HEIGHT, N = 37, 21, 40
BACKGROUND = np.array([0.2, 0.5, 0.8], np.float32)


@pytest.fixture(scope="module", params=[1, 2])
def baseline(request: pytest.FixtureRequest) -> Baseline:
    return Baseline(threads=request.param)


def _scene() -> tuple[Splats, np.ndarray, np.ndarray]:
    """Splats, depths (two of them equal) and radii."""
    rng = np.random.default_rng(5)
    means2d = rng.uniform((-4, -4), (WIDTH + 4, HEIGHT + 4), (N, 2))
    root = rng.uniform(-3, 3, (N, 2, 2))
    covariances = root @ root.transpose(0, 2, 1) + 0.5 * np.eye(2)
    inverse = np.linalg.inv(covariances)
    conics = np.stack([inverse[:, 0, 0], inverse[:, 0, 1], inverse[:, 1, 1]], axis=1)
    opacities = rng.uniform(0.05, 1.0, N)
    opacities[:4] = (1.0, 1.0, 0.002, 0.995)
    depths = rng.uniform(1, 9, N).astype(np.float32)
    depths[7] = depths[3]
    radii = np.ceil(3.33 * np.sqrt(np.stack([covariances[:, 0, 0], covariances[:, 1, 1]], axis=1))).astype(np.int32)
    radii[10] = 0
    splats = Splats(*(x.astype(np.float32) for x in (means2d, conics, rng.uniform(0, 1, (N, 3)), opacities)))
    return splats, depths, radii


def _dense(splats: Splats, order: np.ndarray, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Blend all splats at all pixels in float64: colors [P, 3], transmittances [P]."""
    colors, t, open_ = np.zeros((len(pixels), 3)), np.ones(len(pixels)), np.ones(len(pixels), bool)
    for i in order:
        dx, dy = (splats.means2d[i].astype(np.float64) - pixels).T
        a, b, c = splats.conics[i].astype(np.float64)
        alpha = np.minimum(0.99, splats.opacities[i] * np.exp(-(0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy)))
        counts = open_ & (alpha >= 1 / 255)
        open_ &= ~(counts & (t * (1 - alpha) <= 1e-4))
        alpha = np.where(counts & open_, alpha, 0.0)
        colors += (alpha * t)[:, None] * splats.colors[i]
        t = t * (1 - alpha)
    return colors + t[:, None] * BACKGROUND, t


def _pixels() -> np.ndarray:
    y, x = np.divmod(np.arange(WIDTH * HEIGHT), WIDTH)
    return np.stack([x + 0.5, y + 0.5], axis=1)


def _lists(baseline: Baseline) -> tuple[Splats, np.ndarray, Lists]:
    splats, depths, radii = _scene()
    order = np.argsort(depths, kind="stable")
    lists = baseline.intersect(splats.means2d, radii, depths, width=WIDTH, height=HEIGHT)
    return splats, order[radii[order, 0] > 0], lists


def test_lists_hold_the_splats_whose_box_meets_the_tile_nearest_first(baseline: Baseline) -> None:
    splats, order, lists = _lists(baseline)
    _, _, radii = _scene()
    for tile in range(6):
        x0, y0 = 16 * (tile % 3), 16 * (tile // 3)
        low, high = splats.means2d - radii, splats.means2d + radii
        meets = np.all(low < (x0 + 16, y0 + 16), axis=1) & np.all(high > (x0, y0), axis=1)
        expected = [i for i in order if meets[i]]
        assert lists.ids[lists.tile_offsets[tile] : lists.tile_offsets[tile + 1]].tolist() == expected
    assert lists.tile_offsets[-1] == len(lists.ids) > 0


def test_picture_equals_the_dense_blend(baseline: Baseline) -> None:
    splats, order, lists = _lists(baseline)
    picture = baseline.forward(splats, lists, BACKGROUND, width=WIDTH, height=HEIGHT)
    colors, transmittances = _dense(splats, order, _pixels())
    np.testing.assert_allclose(picture.colors.reshape(-1, 3), colors, atol=2e-6)
    np.testing.assert_allclose(picture.transmittances.ravel(), transmittances, atol=2e-6)


def test_gradients_equal_finite_differences(baseline: Baseline) -> None:
    splats, order, lists = _lists(baseline)
    picture = baseline.forward(splats, lists, BACKGROUND, width=WIDTH, height=HEIGHT)
    rng = np.random.default_rng(6)
    # The loss leaves out pixels near a cut-off, where the picture jumps.
    smooth = _smooth_pixels(splats, order)
    v_colors = (rng.normal(size=(HEIGHT * WIDTH, 3)) * smooth[:, None]).astype(np.float32)
    v_alphas = (rng.normal(size=HEIGHT * WIDTH) * smooth).astype(np.float32)
    shape = (HEIGHT, WIDTH)
    gradients = baseline.backward(
        splats, lists, BACKGROUND, picture, v_colors.reshape(*shape, 3), v_alphas.reshape(shape)
    )

    def loss(moved: Splats) -> float:
        colors, t = _dense(moved, order, _pixels())
        return float(np.sum(colors * v_colors) + np.sum((1 - t) * v_alphas))

    step = 1e-6
    for field in Splats._fields:
        base = getattr(splats, field).astype(np.float64)
        for _ in range(4):
            direction = rng.normal(size=base.shape)
            up, down = (loss(splats._replace(**{field: base + s * step * direction})) for s in (1, -1))
            expected, got = (up - down) / (2 * step), np.sum(getattr(gradients, field) * direction)
            scale = np.linalg.norm(getattr(gradients, field))
            assert abs(got - expected) < 1e-3 * scale, field


def _smooth_pixels(splats: Splats, order: np.ndarray) -> np.ndarray:
    """Find the pixels whose colours change little when every opacity changes a little, either way."""
    colors = [
        _dense(splats._replace(opacities=splats.opacities * np.float64(factor)), order, _pixels())[0]
        for factor in (1 - 1e-4, 1, 1 + 1e-4)
    ]
    return np.abs(np.diff(colors, n=2, axis=0)).max(axis=(0, 2)) < 1e-6


def test_arrays_of_another_type_are_refused(baseline: Baseline) -> None:
    splats, depths, radii = _scene()
    with pytest.raises(TypeError, match="got float64"):
        baseline.intersect(splats.means2d.astype(np.float64), radii, depths, width=WIDTH, height=HEIGHT)  # pyright: ignore
