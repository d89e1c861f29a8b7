"""Traces of what pixels blend, against the pictures, their gradients and the reference."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import (
    Blend,
    intersect_tiles,
    rasterize_gaussians_3d,
    rasterize_gaussians_world,
    reference_blend,
    trace_contributors,
    trace_contributors_world,
)
from tests.rays import HEIGHT, WIDTH, anywhere, ray_scene
from tests.splats2d import random_splats
from tests.tolerances import GRADIENT, PICTURE, SINGLE

ALL = 45
"""More than any pixel of these scenes blends."""

FORMS = {
    "ellipses": (rasterize_gaussians_3d, trace_contributors),
    "rays": (rasterize_gaussians_world, trace_contributors_world),
}


@functools.cache
def scene(form, images=2):
    """Arguments of both functions of a form."""
    if form == "rays":
        arguments, depths = ray_scene(40, cameras=images)
        return {**arguments, "extents": anywhere(depths)}
    splats = random_splats(100, width=WIDTH, height=HEIGHT, images=(images,))
    return {**splats._asdict(), "width": WIDTH, "height": HEIGHT}


def weights(found):
    return np.asarray(found.alphas * found.transmittances)


def assert_same(value, truth, backend):
    """The same bits; floats of two programs of the reference may be rounded in two ways by XLA."""
    if backend == "native" or value.dtype == jnp.int32:
        np.testing.assert_array_equal(value, truth)
    else:
        np.testing.assert_allclose(value, truth, rtol=5 * SINGLE, atol=SINGLE)


def run(function, form, **settings):
    arguments = {**scene(form), **settings}
    static = {k: v for k, v in arguments.items() if isinstance(v, int | str | Blend)}
    arrays = {k: v for k, v in arguments.items() if k not in static}
    return compiled(function, tuple(static.items()))(arrays)


@functools.cache
def compiled(function, static):
    return jax.jit(lambda arrays: function(**arrays, **dict(static)))


RULES = {
    "usual": {},
    "blend last": {"blend": Blend(transmittance_min=0.3, blend_last=True)},
    "few": {"blend": Blend(max_contributors=2, alpha_max=0.9)},
    "bounded": {"max_intersections": 60},
    "masks": {"masks": jnp.array([[True, False], [False, True]])},
    "limit": {"depth_limit": jnp.full((HEIGHT, WIDTH), 4.0).at[:, :9].set(0).at[:7].set(jnp.inf)},
}


@pytest.mark.parametrize(("rule", "backend"), [*((rule, "native") for rule in RULES), ("limit", "reference")])
@pytest.mark.parametrize("form", FORMS)
def test_a_whole_trace_composites_to_the_picture(form, rule, backend):
    draw, trace = FORMS[form]
    settings = {**RULES[rule], "backend": backend}
    picture, found = run(draw, form, **settings), run(trace, form, max_hits=ALL, **settings)
    assert 2 <= found.counts.max() < ALL
    weight = weights(found)
    np.testing.assert_allclose(weight.sum(-1), picture.alphas[..., 0], atol=SINGLE)
    composited = np.einsum("...k,...kd->...d", weight, found.colors)
    np.testing.assert_allclose(composited, picture.colors, atol=2 * SINGLE)
    last = np.take_along_axis(np.asarray(found.ids), np.maximum(found.counts - 1, 0)[..., None], -1)[..., 0]
    np.testing.assert_array_equal(last, picture.last_ids)
    listed = np.arange(ALL) < np.asarray(found.counts)[..., None]
    np.testing.assert_array_equal(found.ids >= 0, listed)
    assert (np.asarray(found.alphas)[listed] > 0).all() and not np.asarray(found.transmittances)[~listed].any()


@pytest.mark.parametrize("order", ["depth", "weight"])
@pytest.mark.parametrize("form", FORMS)
def test_kernels_and_reference_list_the_same(form, order):
    trace = FORMS[form][1]
    got, want = (run(trace, form, max_hits=4, order=order, backend=b) for b in ("native", "reference"))
    assert (np.asarray(want.counts) > 4).any()
    for name, truth in want._asdict().items():
        value = np.asarray(getattr(got, name))
        error = np.abs(value - np.asarray(truth))
        assert value.dtype == truth.dtype and value.shape == truth.shape
        assert np.mean(error <= PICTURE.usual) >= PICTURE.share, name


@pytest.mark.parametrize("form", FORMS)
def test_the_weight_of_a_splat_is_the_gradient_of_the_picture_to_its_color(form):
    draw, trace = FORMS[form]
    found = run(trace, form, max_hits=0, backend="native")
    others = {k: v for k, v in scene(form).items() if k != "colors"}
    shape = found.splat_weights.shape

    def brightness(color):
        return draw(**others, colors=color[..., None], backend="native").colors.sum()

    truth = jax.jit(jax.grad(brightness))(jnp.zeros(shape, jnp.float32))
    np.testing.assert_allclose(found.splat_weights, truth, rtol=GRADIENT, atol=1e-5)
    whole = run(trace, form, max_hits=ALL, backend="native")
    ids = np.asarray(whole.ids)
    counts = [[np.sum(image == n) for n in range(shape[-1])] for image in ids]
    np.testing.assert_array_equal(found.splat_counts, counts)
    assert np.asarray(found.splat_counts).any() and found.ids.shape == (*whole.counts.shape, 0)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("form", FORMS)
def test_counts_are_true_where_lists_are_short_and_the_nearest_are_listed(form, backend):
    trace = FORMS[form][1]
    whole, short = (run(trace, form, max_hits=k, backend=backend) for k in (ALL, 2))
    for name in ("counts", "splat_weights", "splat_counts"):
        assert_same(getattr(short, name), getattr(whole, name), backend)
    for name in ("ids", "alphas", "transmittances"):
        assert_same(getattr(short, name), getattr(whole, name)[..., :2], backend)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("form", FORMS)
def test_order_by_weight_lists_the_heaviest_first(form, backend):
    trace = FORMS[form][1]
    whole = run(trace, form, max_hits=ALL, backend=backend)
    heaviest = run(trace, form, max_hits=3, order="weight", backend=backend)
    best = np.argsort(-weights(whole), axis=-1, kind="stable")[..., :3]
    for name in ("ids", "alphas", "transmittances"):
        truth = np.take_along_axis(np.asarray(getattr(whole, name)), best, -1)
        assert_same(getattr(heaviest, name), truth, backend)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_of_equal_weights_the_nearer_comes_first(backend):
    # At the pixel in the middle: weights 0.2, 0.8 * 0.25 = 0.2 and 0.6 * 0.5 = 0.3, by increasing depth.
    found = trace_contributors(
        jnp.full((3, 2), 2.5), jnp.tile(jnp.array([[1.0, 0, 1]]), (3, 1)), jnp.array([0.25, 0.5, 0.2]),
        depths=jnp.array([2.0, 3.0, 1.0]), radii=jnp.full((3, 2), 4), width=5, height=5, max_hits=3, order="weight",
        backend=backend,
    )  # fmt: skip
    assert weights(found)[2, 2, 1] == weights(found)[2, 2, 2]
    np.testing.assert_array_equal(found.ids[2, 2], [1, 2, 0])


@pytest.mark.parametrize("form", FORMS)
def test_vmap_gives_what_leading_axes_give(form):
    trace = FORMS[form][1]
    want = run(trace, form, max_hits=3)
    arrays = {k: v for k, v in scene(form).items() if not isinstance(v, int)}
    static = {k: v for k, v in scene(form).items() if k not in arrays}
    shared = {k: a for k, a in arrays.items() if isinstance(a, jax.Array) and len(a) == 1}
    mapped = {k: a for k, a in arrays.items() if k not in shared}
    each = jax.vmap(lambda one: trace(**one, **{k: a[0] for k, a in shared.items()}, **static, max_hits=3))
    for got, truth in zip(each(mapped), want, strict=True):
        np.testing.assert_array_equal(got, truth)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_lists_made_beforehand_give_the_same_and_incomplete_ones_are_not_quiet(backend):
    arguments = scene("ellipses")
    settings = {"width": WIDTH, "height": HEIGHT, "conics": arguments["conics"], "opacities": arguments["opacities"]}
    order = {"depths": None, "radii": None}

    def traced(capacity):
        splats = (arguments[name] for name in ("means2d", "radii", "depths"))
        tiles = intersect_tiles(*splats, capacity=capacity, **settings)
        return run(trace_contributors, "ellipses", tiles=tiles, max_hits=3, backend=backend, **order)

    for got, truth in zip(traced(400), run(trace_contributors, "ellipses", max_hits=3, backend=backend), strict=True):
        np.testing.assert_allclose(got, truth, atol=1e-5)
    if backend == "native":
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="exceed the capacity"):
            jax.block_until_ready(traced(10))
    else:
        assert np.isnan(traced(10).splat_weights).all()


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_drawn_is_not_listed(form, backend):
    seen = run(FORMS[form][1], form, max_hits=2, backend=backend).splat_counts
    n = int(np.argmax(np.asarray(seen).sum(0)))
    colors = scene(form)["colors"].at[..., n, 0].set(jnp.nan)
    found = run(FORMS[form][1], form, colors=colors, max_hits=2, backend=backend)
    assert not np.asarray(found.splat_counts)[..., n].any() and not (np.asarray(found.ids) == n).any()
    assert np.isfinite(found.colors).all()


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_no_splats_at_all(backend):
    size = {"width": 5, "height": 3, "max_hits": 2}
    empty = {"depths": jnp.zeros(0), "radii": jnp.zeros((0, 2), jnp.int32), "colors": jnp.zeros((0, 3))}
    found = trace_contributors(jnp.zeros((0, 2)), jnp.zeros((0, 3)), jnp.zeros(0), **empty, **size, backend=backend)
    assert (np.asarray(found.ids) == -1).all() and not np.asarray(found.counts).any()
    assert found.splat_weights.shape == (0,) and found.colors is not None and found.colors.shape == (3, 5, 2, 3)


def test_the_memory_bound_of_the_reference_changes_nothing(monkeypatch):
    arguments = {**scene("ellipses", 1), "max_hits": 3, "backend": "reference"}
    want = trace_contributors(**arguments)
    monkeypatch.setattr(reference_blend, "PAIRS_AT_ONCE", 100 * 29)  # of 414 pixels
    for got, truth in zip(trace_contributors(**arguments), want, strict=True):
        np.testing.assert_allclose(got, truth, rtol=1e-5)


def test_a_trace_has_no_gradient():
    arguments = scene("ellipses")
    others = {k: v for k, v in arguments.items() if k != "opacities"}

    def total(opacities):
        found = trace_contributors(opacities=opacities, **others, max_hits=2)
        return found.splat_weights.sum() + found.alphas.sum()

    assert not np.asarray(jax.grad(total)(arguments["opacities"])).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_hits": -1}, "trace_contributors: max_hits must be at least 1, got -1"),
        ({"max_hits": 2, "order": "size"}, "trace_contributors: order must be one of 'depth', 'weight', got 'size'"),
        ({"max_hits": 2, "depths": None}, "trace_contributors: give depths and radii, or tiles"),
        ({"max_hits": 2, "colors": jnp.zeros((7, 3))}, r"trace_contributors: colors must have shape \[..., N, D\]"),
    ],
)
def test_bad_arguments_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        trace_contributors(**{**scene("ellipses"), **settings})
    with pytest.raises(ValueError, match="trace_contributors_world: give either extents or tiles, got neither"):
        trace_contributors_world(**{**scene("rays"), "extents": None}, max_hits=1)
