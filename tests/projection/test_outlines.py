"""Bounds of splats along rays: they hold every pixel that a splat reaches, and little more."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import project_outlines, rasterize_gaussians_world
from jaxsplat.cameras import camera_rays
from tests.rays import anywhere

WIDTH, HEIGHT = 61, 47
SIZE = {"width": WIDTH, "height": HEIGHT}
K = jnp.array([[[40.0, 0, 30], [0, -44, 25], [0, 0, 1]]])


def near_splats(n=300, seed=0):
    """Splats all around a camera at the origin, most of them too near or too large for a linearisation."""
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(n, 3)) * np.exp(rng.uniform(-2, 1, (n, 1)))
    scales = np.exp(rng.uniform(-5, 0, (n, 3)))
    arrays = (means, rng.normal(size=(n, 4)), scales, rng.uniform(0, 1, n), rng.uniform(0, 1, (n, 3)))
    return [jnp.asarray(x, jnp.float32) for x in arrays]


@functools.cache
def renders(skewed):
    """Pictures with the bounds, and without any."""
    means, quats, scales, opacities, colors = near_splats()
    Ks, viewmats = K.at[:, 0, 1].set(3.0 if skewed else 0.0), jnp.eye(4)[None]
    bounds = jax.jit(functools.partial(project_outlines, **SIZE))(
        means, quats, scales, viewmats, Ks, opacities=opacities
    )
    rays = camera_rays(viewmats, Ks, **SIZE)
    splats = (means[None], quats[None], scales[None], opacities[None], colors[None], rays)
    everything = anywhere(means[None, :, 2])
    everything = everything._replace(radii=jnp.where(means[None, :, 2:] > 0.01, everything.radii, 0))
    return bounds, [rasterize_gaussians_world(*splats, extents=extents) for extents in (bounds, everything)]


@pytest.mark.parametrize("skewed", [False, True])
def test_no_pixel_that_a_splat_reaches_is_lost_however_near_it_is(skewed):
    bounds, (bounded, complete) = renders(skewed)
    # The lists are shorter, which is what bounds are for.
    assert (bounded.list_count < complete.list_count).all()
    same = bounded._replace(list_count=complete.list_count)
    for a, b in zip(jax.tree.leaves(same), jax.tree.leaves(complete), strict=True):
        np.testing.assert_array_equal(a, b)
    assert float(complete.alphas.mean()) > 0.5
    # Some cross the plane of the camera, and yet are not given the whole picture.
    areas = 4 * np.prod(np.minimum(np.asarray(bounds.radii[0], np.float64), WIDTH), -1)
    assert (skewed or np.mean(areas[areas > 0] >= 4 * WIDTH * HEIGHT) < 0.5) and (areas > 0).sum() > 80


def test_bounds_are_tight():
    mean, scale = jnp.array([[0.4, -0.2, 2.0]]), jnp.array([[0.2, 0.1, 0.3]])
    quat, opacity, viewmats = jnp.array([[1.0, 0.3, -0.2, 0.5]]), jnp.array([0.9]), jnp.eye(4)[None]
    big = {"width": 610, "height": 470}
    Ks = K * jnp.array([[[10.0], [10], [1]]])
    bounds = project_outlines(mean, quat, scale, viewmats, Ks, opacities=opacity, eps2d=0.0, **big)
    rays = camera_rays(viewmats, Ks, **big)
    arguments = (mean[None], quat[None], scale[None], opacity[None], jnp.ones((1, 1, 1)), rays)
    seen = rasterize_gaussians_world(*arguments, extents=anywhere(jnp.array([[2.0]]))).last_ids[0] >= 0
    a, b, c = (float(x) for x in bounds.conics[0, 0])
    x, y = (np.arange(size) + 0.5 - float(m) for size, m in zip((610, 470), bounds.means2d[0, 0], strict=True))
    form = a * x[None] ** 2 + 2 * b * x[None] * y[:, None] + c * y[:, None] ** 2
    inside = form <= 2 * np.log(0.9 * 255)
    assert 1000 < inside.sum() < 610 * 470 / 2
    assert np.mean(np.asarray(seen) != inside) < 1e-4
    # Half sizes of the box.
    columns = np.nonzero(inside)[1]
    assert columns.min() > 0 and columns.max() < 609
    assert abs(int(bounds.radii[0, 0, 0]) - (columns.max() - columns.min()) / 2) < 2


@pytest.mark.parametrize(
    ("change", "value"),
    [("means", jnp.nan), ("means", -1.0), ("quats", 0.0), ("quats", jnp.inf), ("scales", 0.0), ("opacities", 0.003), ("opacities", jnp.nan)],  # noqa: E501
)  # fmt: skip
def test_rows_that_cannot_be_drawn_are_culled(change, value):
    row = {
        "means": jnp.array([[0.1, 0.1, 1.0]]), "quats": jnp.ones((1, 4)), "scales": jnp.ones((1, 3)) * 0.1,
        "opacities": jnp.ones(1),
    }  # fmt: skip
    project = functools.partial(project_outlines, viewmats=jnp.eye(4)[None], Ks=K, **SIZE)
    assert int(project(**row).radii.min()) > 0
    broken = row[change].at[:].set(value) if change == "quats" else row[change].at[..., -1].set(value)
    out = project(**{**row, change: broken})
    for x in out:
        np.testing.assert_array_equal(x, 0)


def test_bounds_are_not_differentiated_and_planes_cull():
    means, quats, scales, opacities, _ = near_splats(20)

    def total(means, near):
        out = project_outlines(means, quats, scales, jnp.eye(4)[None], K, opacities=opacities, near_plane=near, **SIZE)
        return out.means2d.sum() + out.conics.sum() + out.depths.sum()

    np.testing.assert_array_equal(jax.grad(total)(means, 0.5), 0)
    out = project_outlines(
        means,
        quats,
        scales,
        jnp.eye(4)[None],
        K,
        opacities=opacities,
        near_plane=jnp.array([0.5]),
        far_plane=1.0,
        **SIZE,
    )
    depths = np.asarray(out.depths)
    assert ((depths == 0) | ((depths > 0.5) & (depths < 1))).all() and (depths > 0).any()
