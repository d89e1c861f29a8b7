"""The reference renderer against loops in numpy, the golden files and finite differences."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Blend, project_gaussians, reference, reference_blend, reference_tiles, spherical_harmonics
from tests import golden
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.splats2d import random_splats

WIDTH, HEIGHT, TILE = 21, 14, 8
TILES = 6


def intersect(splats, *, exact=False, **settings):
    extents = {"conics": splats.conics, "opacities": splats.opacities} if exact else {}
    settings = {"width": WIDTH, "height": HEIGHT, "tile_size": TILE, "capacity": 900, **extents, **settings}
    return reference_tiles.intersect_tiles(splats.means2d, splats.radii, splats.depths, **settings)


@functools.partial(jax.jit, static_argnames=("width", "height", "tile_size", "blend"))
def rasterize(splats, *, width=WIDTH, height=HEIGHT, tile_size=TILE, tiles=None, blend=Blend(), **settings):  # noqa: B008
    """With the depths and radii of the splats, or with tiles."""
    if tiles is None:
        settings |= {"depths": splats.depths, "radii": splats.radii}
    return reference.rasterize_gaussians_3d(
        *splats[:4], width=width, height=height, tile_size=tile_size, tiles=tiles, blend=blend, **settings
    )


def few(n=15, **settings):
    return random_splats(n, width=WIDTH, height=HEIGHT, **settings)


def single(opacity=0.5, mean=(10.5, 7.5), conic=(0.5, 0.1, 0.4), n=1):
    """The same splat n times, at one depth."""
    splats = few(n)
    return splats._replace(
        means2d=jnp.tile(jnp.array([mean]), (n, 1)),
        conics=jnp.tile(jnp.array([conic]), (n, 1)),
        opacities=jnp.full(n, opacity),
        depths=jnp.ones(n),
        radii=jnp.full((n, 2), 9),
    )


def loops(splats, blend, background=None):
    """The blend rule, splat by splat, in Python numbers."""
    means, conics, colors, opacities, depths, radii = (np.asarray(x, np.float64) for x in splats)
    picture, transmittance = np.zeros((HEIGHT, WIDTH, colors.shape[1])), np.ones((HEIGHT, WIDTH))
    last = np.full((HEIGHT, WIDTH), -1)
    order = sorted((n for n in range(len(means)) if radii[n].all()), key=lambda n: (depths[n], n))
    for y in range(HEIGHT):
        for x in range(WIDTH):
            used = 0
            for n in order:
                dx, dy = means[n] - (x + 0.5, y + 0.5)
                a, b, c = conics[n]
                sigma = 0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy
                alpha = min(blend.alpha_max, opacities[n] * math.exp(-sigma))
                if sigma < 0 or alpha < blend.alpha_min:
                    continue
                if blend.max_contributors and used == blend.max_contributors:
                    break
                ends = transmittance[y, x] * (1 - alpha) <= blend.transmittance_min
                if ends and not blend.blend_last:
                    break
                picture[y, x] += colors[n] * alpha * transmittance[y, x]
                transmittance[y, x] *= 1 - alpha
                last[y, x], used = n, used + 1
                if ends:
                    break
    if background is not None:
        picture += transmittance[..., None] * background
    return picture, transmittance, last


@pytest.mark.parametrize(
    "blend",
    [
        Blend(),
        Blend(alpha_max=0.999, transmittance_min=0.01),
        Blend(alpha_max=1.0, blend_last=True),
        Blend(alpha_min=0.05, transmittance_min=0.2),
        Blend(transmittance_min=0.2, blend_last=True),
        Blend(max_contributors=3),
        Blend(max_contributors=2, blend_last=True, transmittance_min=0.1),
    ],
)
def test_every_blend_rule_equals_loops(blend):
    splats = few(60, largest=12.0)
    splats = splats._replace(opacities=splats.opacities.at[:9].set(1.0))
    got = rasterize(splats, blend=blend, backgrounds=jnp.array([0.2, 0.5, 0.7]))
    picture, transmittance, last = loops(splats, blend, [0.2, 0.5, 0.7])
    np.testing.assert_allclose(got[0], picture, atol=1e-5)
    np.testing.assert_allclose(got[1], transmittance, atol=1e-5)
    np.testing.assert_array_equal(got[2], last)


def compose(means, quats, scales, opacities, colors, viewmats, Ks, backgrounds, case):
    """The pipeline in terms of the reference: what `golden.check` compares."""
    projected = project_gaussians(
        means, quats, scales, viewmats, Ks, opacities=opacities, width=case.width, height=case.height,
        camera_model=case.camera_model, antialiased=case.antialiased,
    )  # fmt: skip
    opacities = opacities[None] * (projected.compensations if case.antialiased else 1)
    colors = colors[None]
    if case.sh_degree is not None:
        centres = jnp.linalg.inv(viewmats)[:, :3, 3]  # in full: only so do all entries get their gradient
        masks = jnp.all(projected.radii > 0, -1)
        dirs = means[None] - centres[:, None]
        colors = jnp.maximum(spherical_harmonics(case.sh_degree, dirs, colors, masks=masks) + 0.5, 0)
    colors = jnp.broadcast_to(colors, (len(viewmats), *colors.shape[1:]))
    colors = jnp.concatenate([colors, projected.depths[..., None]], -1)
    if backgrounds is not None:
        backgrounds = jnp.concatenate([backgrounds, jnp.zeros_like(backgrounds[:, :1])], -1)
    picture, transmittance, _ = reference.rasterize_gaussians_3d(
        projected.means2d, projected.conics, colors, opacities, depths=projected.depths, radii=projected.radii,
        backgrounds=backgrounds, width=case.width, height=case.height, tile_size=case.tile_size,
    )  # fmt: skip
    return picture[..., :-1], picture[..., -1:], 1 - transmittance[..., None]


@pytest.mark.parametrize("name", golden.NAMES)
@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
def test_golden_pictures_and_gradients_agree(name, double):
    golden.check(golden.load(name), compose, double=double)


@pytest.mark.parametrize("blend", [Blend(), Blend(alpha_max=1.0, blend_last=True, max_contributors=4)])
def test_gradients_are_those_of_finite_differences(blend):
    with double_precision():
        # No two depths are equal, and everything is visible everywhere: no cut-off is near.
        splats = jax.tree.map(lambda x: x.astype(jnp.float64), few(6))
        splats = splats._replace(
            means2d=splats.means2d % jnp.array([[WIDTH, HEIGHT]]),
            conics=splats.conics / 100,
            opacities=jnp.linspace(0.1, 0.7, 6),
            depths=jnp.arange(6.0)[::-1],
            radii=jnp.ones((6, 2)),
        )

        def outputs(means2d, conics, colors, opacities, backgrounds):
            moved = splats._replace(means2d=means2d, conics=conics, colors=colors, opacities=opacities)
            return rasterize(moved, blend=blend, backgrounds=backgrounds)[:2]

        assert_gradients(outputs, (*splats[:4], jnp.array([0.3, 0.6, 0.1])))


@pytest.mark.parametrize("alpha_max", [0.99, 1.0])
def test_opacity_one_on_a_pixel_centre_has_finite_gradients(alpha_max):
    splats = single(1.0, n=3)
    gradients = jax.grad(lambda s: jnp.sum(rasterize(s, blend=Blend(alpha_max=alpha_max, blend_last=True))[0]))(
        splats._replace(radii=splats.radii.astype(jnp.float32))
    )
    assert all(np.isfinite(g).all() for g in gradients)


def test_no_gradient_reaches_geometry_where_alpha_is_clamped():
    splats = single(1.0, conic=(1e-6, 0, 1e-6))

    def pixel(means2d, opacities, colors):
        moved = splats._replace(means2d=means2d, opacities=opacities, colors=colors)
        return rasterize(moved)[0][7, 10, 0]

    means2d, opacities, colors = jax.grad(pixel, (0, 1, 2))(splats.means2d, splats.opacities, splats.colors)
    np.testing.assert_array_equal(means2d, 0)
    np.testing.assert_array_equal(opacities, 0)
    np.testing.assert_allclose(colors, [[0.99, 0, 0]], rtol=1e-6)


def test_equal_depths_are_blended_by_index():
    _, _, last = rasterize(single(n=4))
    assert last[7, 10] == 3


@pytest.mark.parametrize(
    "spoil",
    [
        {"conics": (-1.0, 0, 1)},
        {"conics": (1.0, 2, 1)},
        {"conics": (0.0, 0, 0)},
        {"conics": (np.nan, 0, 1)},
        {"means2d": (np.inf, 3)},
        {"means2d": (1e30, 3)},
        {"means2d": (1e30, 1e30)},
        {"means2d": (1e30, -1e30)},
        {"opacities": np.nan},
        {"colors": (np.nan, 0, 0)},
    ],
)
def test_a_splat_that_cannot_be_drawn_changes_nothing(spoil):
    (name, value), splats = *spoil.items(), few()
    spoiled = splats._replace(**{name: getattr(splats, name).at[4].set(jnp.asarray(value))})
    without = splats._replace(radii=splats.radii.at[4].set(0))
    got, expected = rasterize(spoiled), rasterize(without)
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    gradients = jax.grad(lambda f: jnp.sum(rasterize(spoiled._replace(**f))[0]))(
        {k: getattr(spoiled, k) for k in ("means2d", "conics", "colors", "opacities")}
    )
    for gradient in gradients.values():
        assert np.isfinite(gradient).all()
        np.testing.assert_array_equal(gradient[4], 0)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("tile_size", [4, 8])
def test_pictures_from_tile_lists_are_the_same(exact, tile_size):
    splats = few(40)
    tiles = intersect(splats, exact=exact, tile_size=tile_size)
    assert tiles.count <= 900
    got, expected = rasterize(splats, tiles=tiles, tile_size=tile_size), rasterize(splats)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), got, expected)


def test_incomplete_lists_and_wrong_ids_are_not_quiet():
    splats = few(40)
    tiles = intersect(splats)
    short = intersect(splats, capacity=int(tiles.count) - 1)
    assert np.isnan(rasterize(splats, tiles=short)[0]).all()
    wrong = tiles._replace(gaussian_ids=tiles.gaussian_ids.at[3].set(40))
    assert np.isnan(rasterize(splats, tiles=wrong)[0]).all()


def hits(splats):
    """[T, N] whether a pixel of the tile sees alpha >= 1/255, by evaluating all of them in float64."""
    means, conics, _, opacities, _, radii = (np.asarray(x, np.float64) for x in splats)
    dx = means[:, None, None, 0] - np.arange(WIDTH) - 0.5
    dy = means[:, None, None, 1] - np.arange(HEIGHT)[:, None] - 0.5
    a, b, c = conics.T[:, :, None, None]
    alpha = opacities[:, None, None] * np.exp(-0.5 * (a * dx * dx + c * dy * dy) - b * dx * dy)
    hit = np.where(radii.all(-1)[:, None, None], alpha, 0) >= 1 / 255  # pyright: ignore[reportIndexIssue]
    return np.stack(
        [hit[:, y : y + TILE, x : x + TILE].any((1, 2)) for y in range(0, HEIGHT, TILE) for x in range(0, WIDTH, TILE)]
    )


def test_exact_lists_hold_every_splat_that_a_pixel_sees_and_few_others():
    splats = few(60)
    tiles = intersect(splats, exact=True)
    seen, lists = hits(splats), np.zeros((TILES, 60), bool)
    ids, offsets = np.asarray(tiles.gaussian_ids), np.asarray(tiles.tile_offsets)
    for t in range(TILES):
        lists[t, ids[offsets[t] : offsets[t + 1]]] = True
    assert np.all(lists | ~seen)
    assert lists.sum() <= 1.1 * seen.sum()  # an ellipse may pass between the pixel centres
    np.testing.assert_array_equal(tiles.tiles_per_gaussian, lists.sum(0))
    assert tiles.count == lists.sum() == offsets[-1]
    np.testing.assert_array_equal(ids[offsets[-1] :], -1)


@pytest.mark.parametrize("sort", [False, True])
def test_lists_are_in_the_order_asked_for(sort):
    splats = few(60)
    tiles = intersect(splats, sort=sort)
    ids, offsets, depths = (np.asarray(x) for x in (tiles.gaussian_ids, tiles.tile_offsets, splats.depths))
    for t in range(TILES):
        row = ids[offsets[t] : offsets[t + 1]].tolist()
        assert row == sorted(row, key=lambda n: (depths[n], n) if sort else n)


def test_boxes_touch_the_tiles_that_they_overlap():
    splat = few(1)._replace(means2d=jnp.array([[12.5, 4]]))
    for radii, tiles in (([[3, 3]], [1]), ([[5, 3]], [0, 1, 2]), ([[3, 5]], [1, 4]), ([[0, 5]], []), ([3], [1])):
        found = intersect(splat._replace(radii=jnp.array(radii)))
        assert np.flatnonzero(np.diff(found.tile_offsets)).tolist() == tiles


def test_splats_below_the_cut_off_touch_nothing():
    splats = single(0.001)
    assert intersect(splats, exact=True).count == 0


def test_masked_tiles_show_the_background_with_its_gradient():
    splats, background = few(), jnp.array([0.2, 0.5, 0.7])
    masks = jnp.ones((2, 3), bool).at[1, 2].set(False)  # the last tile is cut off by both borders

    def run(background):
        return rasterize(splats, masks=masks, backgrounds=background)

    picture, transmittance, last = run(background)
    off = np.s_[8:, 16:]
    np.testing.assert_allclose(picture[off], np.broadcast_to(background, (6, 5, 3)), rtol=1e-6)
    assert np.all(transmittance[off] == 1) and np.all(last[off] == -1)
    full = rasterize(splats, backgrounds=background)
    np.testing.assert_array_equal(picture[:8], full[0][:8])
    gradient = jax.grad(lambda b: jnp.sum(run(b)[0][off]))(background)
    np.testing.assert_allclose(gradient, 30, rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1])
def test_no_visible_splat_shows_the_background(n):
    splats = jax.tree.map(lambda x: x[:n], few())
    splats = splats._replace(radii=splats.radii * 0)

    def run(colors, background):
        return rasterize(splats._replace(colors=colors), backgrounds=background)

    picture, transmittance, last = run(splats.colors, jnp.array([1.0, 2, 3]))
    np.testing.assert_array_equal(picture, np.broadcast_to([1, 2, 3], picture.shape))
    assert np.all(transmittance == 1) and np.all(last == -1)
    gradient = jax.grad(lambda c: jnp.sum(run(c, jnp.ones(3))[0]))(splats.colors)
    np.testing.assert_array_equal(gradient, 0)
    assert intersect(splats).count == 0


@pytest.mark.parametrize("channels", [1, 4, 17, 40])
def test_every_channel_stays_in_its_slot(channels):
    splats = few(channels=channels)
    picture = rasterize(splats)[0]
    alone = rasterize(splats._replace(colors=splats.colors[:, -1:]))[0]
    np.testing.assert_allclose(picture[..., -1:], alone, atol=1e-6)


def test_leading_axes_broadcast_and_equal_the_loop():
    splats = few(images=(2, 3))
    colors = splats.colors[:, :1]
    backgrounds = jnp.arange(9.0).reshape(3, 3) / 9
    got = rasterize(splats._replace(colors=colors), backgrounds=backgrounds)
    assert got[0].shape == (2, 3, HEIGHT, WIDTH, 3)
    for i in range(2):
        for j in range(3):
            one = jax.tree.map(lambda x, i=i, j=j: x[i, j], splats)._replace(colors=colors[i, 0])
            expected = rasterize(one, backgrounds=backgrounds[j])
            jax.tree.map(lambda x, y, i=i, j=j: np.testing.assert_allclose(x[i, j], y, atol=1e-6), got, expected)
    mapped = jax.vmap(jax.vmap(lambda s: rasterize(s)))(splats)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), mapped, rasterize(splats))


def test_the_memory_bound_changes_nothing(monkeypatch):
    splats = few(30)

    def run():  # traced anew each time
        def loss(colors, means2d):
            moved = splats._replace(colors=colors, means2d=means2d)
            outputs = rasterize.__wrapped__(moved)  # pyright: ignore[reportAttributeAccessIssue]
            return jnp.sum(outputs[0] ** 2), outputs

        return jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(splats.colors, splats.means2d)

    expected = run()
    monkeypatch.setattr(reference_blend, "PAIRS_AT_ONCE", 30 * 13)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-4), run(), expected)


def test_absgrad_is_the_sum_over_pixels_of_absolute_gradients():
    splats = few(5)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(HEIGHT, WIDTH, 3)), jnp.float32)

    def loss(means2d, absgrad, weights):
        picture = rasterize(splats._replace(means2d=means2d), absgrad=absgrad)[0]
        return jnp.sum(picture * weights)

    zeros = jnp.zeros_like(splats.means2d)
    got = jax.grad(loss, 1)(splats.means2d, zeros, weights)
    pixels = jnp.eye(WIDTH * HEIGHT).reshape(-1, HEIGHT, WIDTH, 1) * weights[None]
    each = jax.jit(jax.vmap(lambda w: jax.grad(loss)(splats.means2d, zeros, w)))(pixels)
    np.testing.assert_allclose(got, jnp.sum(jnp.abs(each), 0), rtol=1e-3, atol=1e-5)


def test_a_wide_picture_equals_its_parts():
    splats = random_splats(30, width=2100, height=1)
    got = rasterize(splats, width=2100, height=1, tile_size=4)
    moved = splats._replace(means2d=splats.means2d - jnp.array([[2000.0, 0]]))
    part = rasterize(moved, width=100, height=1, tile_size=4)
    np.testing.assert_allclose(got[0][:, 2000:], part[0], atol=1e-4)
    tiles = intersect(splats, width=2100, height=1, tile_size=4, capacity=3000)
    np.testing.assert_allclose(rasterize(splats, width=2100, height=1, tile_size=4, tiles=tiles)[0], got[0], atol=1e-6)


def test_too_many_pairs_to_count_are_refused():
    with pytest.raises(ValueError, match="exceed the reference's int32"):
        intersect(few(3000), width=2**14, height=2**14)
