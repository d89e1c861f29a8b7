"""Splats along rays: golden file, reference, finite differences, and what must hold by itself."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Blend, project_outlines, rasterize_gaussians_world
from jaxsplat.cameras import camera_rays
from jaxsplat.types import Projected, TileIntersections
from tests.data import double_precision, shared
from tests.differences import assert_gradients
from tests.scenes import HEIGHT, WIDTH, random_scene
from tests.tolerances import GRADIENT, GRADIENT_DOUBLE, PICTURE, PICTURE_DOUBLE

FLOATS = ("means", "quats", "scales", "opacities", "colors", "rays")


def anywhere(depths):
    """Bounds that leave nothing out: the splat may be seen at every pixel."""
    everywhere = lambda *row: jnp.broadcast_to(jnp.array(row, depths.dtype), (*depths.shape, len(row)))  # noqa: E731
    radii = jnp.ones((*depths.shape, 2), jnp.int32)
    return Projected(everywhere(0, 0), everywhere(1e-12, 0, 1e-12), depths, radii, jnp.ones_like(depths))


def scene(n=40, *, cameras=2, channels=3, seed=0, moving=False, dtype=np.float32):
    """Arguments of the rasterizer: splats that all cameras share, and the rays of each, from many points if moving."""
    base = random_scene(n, cameras=cameras, seed=seed, dtype=dtype)
    rng = np.random.default_rng(seed)
    rays = np.array(camera_rays(base.viewmats, base.Ks, width=WIDTH, height=HEIGHT))
    if moving:
        rays[..., :3] += rng.uniform(-0.05, 0.05, rays[..., :3].shape)
    depths = base.viewmats[:, 2, :3] @ base.means.T + base.viewmats[:, 2, 3:]
    arguments = {
        "means": base.means[None], "quats": base.quats[None], "scales": base.scales[None],
        "opacities": base.opacities[None], "colors": jnp.asarray(rng.uniform(0, 1, (1, n, channels)), dtype),
        "rays": jnp.asarray(rays, dtype),
    }  # fmt: skip
    return arguments, depths


def render(arguments, depths, backend="native", **settings):
    if "tiles" not in settings:
        settings = {"extents": anywhere(depths), **settings}
    call = lambda a: rasterize_gaussians_world(**a, backend=backend, **settings)  # noqa: E731
    return call(arguments) if backend == "native" else jax.jit(call)(arguments)


def loss_of(output, seed=5):
    rng = np.random.default_rng(seed)
    leaves = [x for x in jax.tree.leaves(output) if jnp.issubdtype(x.dtype, jnp.floating)]
    return sum(jnp.sum(x * jnp.asarray(rng.normal(size=x.shape), x.dtype)) for x in leaves)


def gradients(arguments, depths, backend="native", **settings):
    f = jax.grad(lambda a: loss_of(rasterize_gaussians_world(**a, backend=backend, **settings)))
    return jax.jit(f)(arguments)


def assert_same(arguments, depths, **settings):
    """The native kernels and the reference agree on pictures and on every gradient."""
    if "tiles" not in settings:
        settings = {"extents": anywhere(depths), **settings}
    got, want = (render(arguments, depths, backend, **settings) for backend in ("native", "reference"))
    for name, expected in want._asdict().items():
        if expected is None:
            assert getattr(got, name) is None
            continue
        error = np.abs(np.asarray(getattr(got, name)) - np.asarray(expected))
        assert np.mean(error <= PICTURE.usual) >= PICTURE.share, (name, np.mean(error > PICTURE.usual))
        if name != "last_ids":
            assert error.max() <= PICTURE.worst * max(np.abs(expected).max(), 1), (name, error.max())
    got, want = (gradients(arguments, depths, backend, **settings) for backend in ("native", "reference"))
    for name in FLOATS:
        g, w = (np.asarray(x[name], np.float64) for x in (got, want))
        assert np.isfinite(g).all(), name
        assert np.linalg.norm(g - w) <= GRADIENT * np.linalg.norm(w) + 1e-12, (name, np.linalg.norm(g - w), np.linalg.norm(w))


@pytest.mark.parametrize("moving", [False, True], ids=["one origin", "many origins"])
@pytest.mark.parametrize("hits", [False, True])
@pytest.mark.parametrize("channels", [3, 5])
def test_pictures_and_gradients_agree_with_the_reference(channels, hits, moving):
    assert_same(*scene(channels=channels, moving=moving, seed=channels), hits=hits)
