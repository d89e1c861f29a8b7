"""Tile intersection against a brute-force search, and at its limits."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import intersect_tiles
from tests.splats2d import random_splats

WIDTH, HEIGHT, CAPACITY = 75, 42, 4000


def intersect(splats, exact=True, **settings):
    settings = {"width": WIDTH, "height": HEIGHT, "capacity": CAPACITY, **settings}
    extents = {"conics": splats.conics, "opacities": splats.opacities} if exact else {}
    return intersect_tiles(splats.means2d, splats.radii, splats.depths, **extents, **settings)


def lists(tiles):
    ids, offsets = np.asarray(tiles.gaussian_ids), np.asarray(tiles.tile_offsets)
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]


def pixels_hit(splats, alpha_min=1 / 255):
    """[N, H, W] whether the alpha of a splat at a pixel centre reaches the cut-off, in float64."""
    m, q = np.asarray(splats.means2d, np.float64), np.asarray(splats.conics, np.float64)
    o = np.asarray(splats.opacities, np.float64)
    dx = np.arange(WIDTH) + 0.5 - m[:, None, None, 0]
    dy = (np.arange(HEIGHT) + 0.5)[:, None] - m[:, None, None, 1]
    q = q[:, None, None]
    sigma = 0.5 * (q[..., 0] * dx**2 + q[..., 2] * dy**2) + q[..., 1] * dx * dy
    return (o[:, None, None] * np.exp(-sigma) >= alpha_min) & (np.asarray(splats.radii) > 0).all(-1)[:, None, None]


def tiles_of_pixels(hit, size):
    padded = np.pad(hit, ((0, 0), (0, -HEIGHT % size), (0, -WIDTH % size)))
    n, h, w = padded.shape
    return padded.reshape(n, h // size, size, w // size, size).any((2, 4)).reshape(n, -1)


@pytest.mark.parametrize("tile_size", [4, 16, 32])
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_exact_lists_hold_every_tile_with_a_pixel_that_is_hit_and_few_others(tile_size, backend):
    splats = random_splats(200, width=WIDTH, height=HEIGHT)
    tiles = intersect(splats, tile_size=tile_size, backend=backend)
    wanted = tiles_of_pixels(pixels_hit(splats), tile_size)
    listed = np.zeros_like(wanted)
    for tile, ids in enumerate(lists(tiles)):
        listed[ids, tile] = True
    assert not (wanted & ~listed).any()
    # The ellipse may pass between pixel centres.
    assert listed.sum() <= (1.35 if tile_size == 4 else 1.12) * wanted.sum()
    np.testing.assert_array_equal(tiles.tiles_per_gaussian, listed.sum(1))
    assert int(tiles.count) == listed.sum()
    assert (np.asarray(tiles.gaussian_ids)[int(tiles.count) :] == -1).all()


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("per_axis", [False, True])
def test_boxes_hold_the_tiles_that_the_box_overlaps(per_axis, backend):
    splats = random_splats(200, width=WIDTH, height=HEIGHT)
    radii = np.array(splats.radii)
    radii[:, 1] = (radii[:, 1] + 1) // 2 if per_axis else radii[:, 0]
    given = jnp.asarray(radii if per_axis else radii[:, 0])
    tiles = intersect_tiles(
        splats.means2d, given, splats.depths, width=WIDTH, height=HEIGHT, capacity=CAPACITY, backend=backend
    )
    columns, rows = -(-WIDTH // 16), -(-HEIGHT // 16)
    low = np.floor((np.asarray(splats.means2d) - radii) / 16).astype(int)
    high = np.ceil((np.asarray(splats.means2d) + radii) / 16).astype(int)
    outside = (np.asarray(splats.means2d) - radii >= [WIDTH, HEIGHT]).any(-1)
    expected = [[] for _ in range(rows * columns)]
    for i in np.lexsort((np.arange(200), np.asarray(splats.depths))):
        if (radii[i] > 0).all() and not outside[i]:
            for y in range(max(low[i, 1], 0), min(high[i, 1], rows)):
                for x in range(max(low[i, 0], 0), min(high[i, 0], columns)):
                    expected[y * columns + x].append(int(i))
    assert lists(tiles) == expected


def test_native_and_reference_agree_entry_by_entry():
    splats = random_splats(300, width=WIDTH, height=HEIGHT, images=(2, 3))
    native, reference = (intersect(splats, backend=b) for b in ("native", "reference"))
    # Splats that graze a tile may differ in the last digit; there are few.
    assert np.abs(np.asarray(native.count) - np.asarray(reference.count)).max() <= 3
    np.testing.assert_array_equal(native.tile_offsets[..., 0], 0)
    assert np.mean(np.asarray(native.tiles_per_gaussian) != np.asarray(reference.tiles_per_gaussian)) < 0.01


def test_lists_are_ordered_by_depth_then_index_or_by_index_alone():
    splats = random_splats(300, width=WIDTH, height=HEIGHT)
    depths = np.asarray(splats.depths)
    for ids in lists(intersect(splats)):
        assert ids == sorted(ids, key=lambda i: (depths[i], i))
    sorted_by_index = lists(intersect(splats, sort=False))
    assert sorted_by_index == [sorted(ids) for ids in lists(intersect(splats))]


def test_lists_of_many_splats_are_ordered_by_depth_then_index():
    splats = random_splats(80_000, width=WIDTH, height=HEIGHT, largest=1.0)
    tiles = intersect(splats, capacity=400_000)
    depths, ids = np.asarray(splats.depths), np.asarray(tiles.gaussian_ids)
    assert 40_000 < int(tiles.count) <= 400_000
    for begin, end in itertools.pairwise(np.asarray(tiles.tile_offsets)):
        listed = ids[begin:end]
        np.testing.assert_array_equal(listed, listed[np.lexsort((listed, depths[listed]))])


def test_negative_depths_and_both_zeros_are_ordered():
    splats = random_splats(6, width=WIDTH, height=HEIGHT)._replace(
        depths=jnp.array([3.0, 0.0, -0.0, -2.0, 1e-38, -1e30]), radii=jnp.full((6, 2), 200, jnp.int32)
    )
    assert lists(intersect(splats, exact=False))[0] == [5, 3, 1, 2, 4, 0]


def test_capacity_cuts_the_lists_and_the_true_count_says_so():
    splats = random_splats(200, width=WIDTH, height=HEIGHT)
    whole, cut = intersect(splats), intersect(splats, capacity=50)
    assert int(cut.count) == int(whole.count) > 50
    np.testing.assert_array_equal(cut.gaussian_ids, whole.gaussian_ids[:50])
    np.testing.assert_array_equal(cut.tile_offsets, np.minimum(np.asarray(whole.tile_offsets), 50))


def test_opacity_below_the_cut_off_touches_no_tile():
    splats = random_splats(4, width=WIDTH, height=HEIGHT)._replace(
        opacities=jnp.array([0.001, 0.0, -1.0, 0.0039]), radii=jnp.full((4, 2), 20, jnp.int32)
    )
    np.testing.assert_array_equal(intersect(splats).tiles_per_gaussian, 0)


@pytest.mark.parametrize(("width", "height"), [(16384, 16), (16, 16384), (20000, 1)])
def test_very_long_pictures_have_as_many_tiles_as_they_need(width, height):
    means = jnp.array([[width - 2.0, height - 0.5], [1.0, 0.5]])
    tiles = intersect_tiles(
        means, jnp.full(2, 1, jnp.int32), jnp.ones(2), width=width, height=height, capacity=16, tile_size=4
    )
    count = -(-width // 4) * -(-height // 4)
    assert tiles.tile_offsets.shape == (count + 1,)
    assert lists(tiles)[0] == [1]
    assert lists(tiles)[-1] == [0]


def test_no_splats_and_nothing_visible_give_empty_lists():
    for splats in (random_splats(0, width=WIDTH, height=HEIGHT), random_splats(9, width=WIDTH, height=HEIGHT)):
        tiles = intersect(splats._replace(radii=jnp.zeros_like(splats.radii)))
        assert int(tiles.count) == 0
        np.testing.assert_array_equal(tiles.tile_offsets, 0)


def test_vmap_equals_the_loop_with_shared_operands():
    splats = random_splats(100, width=WIDTH, height=HEIGHT, images=(3,))
    shared = splats._replace(conics=splats.conics[0], opacities=splats.opacities[0])
    axes = type(splats)(0, None, 0, None, 0, 0)
    mapped = jax.jit(jax.vmap(intersect, in_axes=(axes,)))(shared)
    for i in range(3):
        one = intersect(
            jax.tree.map(lambda x, a, i=i: x if a is None else x[i], shared, axes, is_leaf=lambda x: x is None)
        )
        for a, b in zip(mapped, one, strict=True):
            np.testing.assert_array_equal(a[i], b)


def test_gradients_flow_around_the_integers():
    splats = random_splats(20, width=WIDTH, height=HEIGHT)

    def loss(means2d):
        tiles = intersect(splats._replace(means2d=means2d))
        return jnp.sum(means2d) + 0 * jnp.sum(tiles.tiles_per_gaussian)

    np.testing.assert_array_equal(jax.grad(loss)(splats.means2d), 1)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"capacity": 0}, ValueError, "capacity must be at least 1"),
        ({"conics": jnp.zeros((5, 3))}, ValueError, "give both or neither"),
        ({"radii": jnp.zeros((4, 2), jnp.int32)}, ValueError, r"radii must have shape \[..., N, 2\] with N = 5"),
        ({"depths": jnp.zeros((5,), jnp.int32)}, TypeError, "depths must hold floating-point numbers"),
    ],
)
def test_bad_arguments_are_named(changes, error, message):
    splats = random_splats(5, width=WIDTH, height=HEIGHT)
    arguments = {"means2d": splats.means2d, "radii": splats.radii, "depths": splats.depths, **changes}
    with pytest.raises(error, match=message):
        functools.partial(intersect_tiles, width=WIDTH, height=HEIGHT, **{"capacity": 10, **arguments})()
