"""How tile lists are found, and how many of their splats are tried: what it does to pictures, and what is counted."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import (
    TileIntersections,
    intersect_tiles,
    project_outlines,
    rasterization,
    rasterize_gaussians_3d,
    rasterize_gaussians_world,
    trace_contributors,
)
from jaxsplat.cameras import camera_rays
from tests.scenes import HEIGHT, WIDTH, random_scene
from tests.splats2d import random_splats
from tests.tolerances import GRADIENT, SINGLE

SIZE = {"width": WIDTH, "height": HEIGHT}
FLOATS = {"ellipses": ("means2d", "conics", "colors", "opacities"), "rays": ("means", "quats", "scales", "opacities")}


@functools.cache
def scene(form):
    """Differentiated arguments, the others, and means2d, radii, depths, conics and opacities that lists are found from.

    The boxes hold the ellipses, as those of a projection do.
    """
    if form == "ellipses":
        s = random_splats(90, **SIZE, images=(2,))
        order = {"depths": s.depths, "radii": s.radii}
        return dict(zip(FLOATS[form], s[:4], strict=True)), {**order, **SIZE}, (s[0], s[5], s[4], s[1], s[3])
    s = random_scene(40)
    p = project_outlines(s.means, s.quats, s.scales, s.viewmats, s.Ks, opacities=s.opacities, **SIZE)
    colors = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (40, 3)), jnp.float32)
    rays = camera_rays(s.viewmats, s.Ks, **SIZE)
    bounds = (p.means2d, p.radii, p.depths, p.conics, jnp.broadcast_to(s.opacities, p.depths.shape))
    return (
        {k: x[None] for k, x in zip(FLOATS[form], s, strict=False)},
        {"extents": p, "colors": colors, "rays": rays},
        bounds,
    )


@functools.cache
def compiled(form, backend, settings):
    draw = {"ellipses": rasterize_gaussians_3d, "rays": rasterize_gaussians_world}[form]

    def loss(floats, others):
        output = draw(**floats, **others, **dict(settings), backend=backend)
        weight = jnp.asarray(np.random.default_rng(5).normal(size=output.colors.shape), jnp.float32)
        return jnp.sum(output.colors * weight) + jnp.sum(output.alphas), output

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


def run(form, backend="native", tiles=None, **settings):
    floats, others, _ = scene(form)
    settings |= {k: v for k, v in others.items() if isinstance(v, int)}
    others = {k: v for k, v in others.items() if k not in settings}
    if tiles is not None:
        others = {k: v for k, v in others.items() if k not in ("depths", "radii", "extents")} | {"tiles": tiles}
    (_, output), gradients = compiled(form, backend, tuple(settings.items()))(floats, others)
    return output, gradients


def assert_same(got, want):
    for name in ("colors", "alphas"):
        np.testing.assert_allclose(getattr(got[0], name), getattr(want[0], name), atol=10 * SINGLE)
    for name, gradient in got[1].items():
        error = np.linalg.norm(gradient - want[1][name])
        assert error <= GRADIENT * np.linalg.norm(want[1][name]), name


@pytest.mark.parametrize(("form", "backend"), [("ellipses", "native"), ("rays", "native"), ("ellipses", "reference")])
def test_boxes_give_longer_lists_and_the_same_picture_and_gradients(form, backend):
    box, ellipse = (run(form, backend, tile_assignment=how) for how in ("box", "ellipse"))
    assert_same(box, ellipse)
    truth = intersect_tiles(*scene(form)[2][:3], capacity=1, **SIZE).count
    np.testing.assert_array_equal(box[0].list_count, truth)
    assert (np.asarray(box[0].list_count) > np.asarray(ellipse[0].list_count)).all()
    assert not np.asarray(box[0].left_out).any()


def bounded(form, most):
    """Lists with so many entries at most, the count of what they would hold, and of what they leave out."""
    means2d, radii, depths, conics, opacities = scene(form)[2]
    lists = intersect_tiles(means2d, radii, depths, conics=conics, opacities=opacities, capacity=900, **SIZE)
    ids, offsets, left_out = np.full((2, 900), -1, np.int32), np.zeros(lists.tile_offsets.shape, np.int32), [0, 0]
    for image in range(2):
        given = np.asarray(lists.tile_offsets[image])
        for tile, (begin, end) in enumerate(itertools.pairwise(given)):
            kept = np.asarray(lists.gaussian_ids[image, begin : min(end, begin + most)])
            offsets[image, tile + 1] = offsets[image, tile] + len(kept)
            ids[image, offsets[image, tile] : offsets[image, tile + 1]] = kept
            left_out[image] += end - begin - len(kept)
    cut = TileIntersections(
        jnp.asarray(ids), jnp.asarray(offsets), lists.tiles_per_gaussian, jnp.asarray(offsets[:, -1])
    )
    return cut, lists.count, left_out


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("form", FLOATS)
def test_a_bound_on_each_list_leaves_the_farther_splats_out_and_counts_them(form, backend):
    tiles, count, left_out = bounded(form, 4)
    assert min(left_out) > 10
    got = run(form, backend, max_list_entries=4)
    assert_same(got, run(form, "native", tiles=tiles))
    np.testing.assert_array_equal(got[0].list_count, count)
    np.testing.assert_array_equal(got[0].left_out, left_out)
    assert (np.asarray(got[0].alphas) < np.asarray(run(form)[0].alphas) - 0.01).any()


@pytest.mark.parametrize("form", FLOATS)
def test_a_bound_that_no_list_exceeds_changes_no_bit(form):
    for a, b in zip(jax.tree.leaves(run(form, max_list_entries=90)), jax.tree.leaves(run(form)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_trace_sees_what_the_bounded_picture_shows(backend):
    floats, others, _ = scene("ellipses")
    found = jax.jit(
        lambda arrays: trace_contributors(**arrays, **SIZE, max_hits=4, max_list_entries=4, backend=backend)
    )({**floats, **{k: others[k] for k in ("depths", "radii")}})
    picture = run("ellipses", max_list_entries=4)[0]
    np.testing.assert_allclose((found.alphas * found.transmittances).sum(-1), picture.alphas[..., 0], atol=10 * SINGLE)
    assert 1 < found.counts.max() <= 4


@pytest.mark.parametrize("evaluate", ["ellipse", "ray"])
def test_the_pipeline_reports_what_was_left_out(evaluate):
    s = random_scene(40)

    def render(**settings):
        return rasterization(*s[:4], s.means, s.viewmats, s.Ks, **SIZE, evaluate=evaluate, **settings)

    whole, cut = render(), render(max_list_entries=2, tile_assignment="box")
    assert (cut.info.left_out > 10).all() and not np.asarray(whole.info.left_out).any()
    assert (cut.info.list_count > whole.info.list_count).all()
    assert (np.asarray(cut.alphas) < np.asarray(whole.alphas) - 0.01).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_list_entries": 0}, "max_list_entries must be at least 1, got 0"),
        ({"tile_assignment": "circle"}, "tile_assignment must be one of 'ellipse', 'box', got 'circle'"),
    ],
)
@pytest.mark.parametrize("form", FLOATS)
def test_options_that_make_no_sense_are_named(form, settings, message):
    with pytest.raises(ValueError, match=message):
        run(form, **settings)
    option = next(iter(settings))
    with pytest.raises(ValueError, match=f"{option} is for lists that are found here, but tiles is given"):
        run(form, tiles=bounded(form, 4)[0], **{option: "box" if option == "tile_assignment" else 3})
    with pytest.raises(ValueError, match="max_list_entries needs info, which camera_chunk leaves out"):
        s = random_scene(5)
        rasterization(*s[:4], s.means, s.viewmats, s.Ks, **SIZE, max_list_entries=3, camera_chunk=1)
