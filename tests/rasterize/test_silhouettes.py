"""The streaming silhouettes against those from all faces of each pixel."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import rasterize_meshes, rasterize_silhouettes, soft_silhouette
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.meshes import soup
from tests.rasterize.test_gaussians_3d import KERNEL_ERROR
from tests.tolerances import GRADIENT, SINGLE

SIZE = {"width": 37, "height": 26}


def kept(verts, sigma, **settings):
    """By way of `rasterize_meshes`, which keeps every face."""
    out = rasterize_meshes(verts, None, faces_per_pixel=len(verts), clip_barycentric_coords=True, **SIZE, **settings)
    return soft_silhouette(out, sigma=sigma)


@pytest.mark.parametrize("settings", [{}, {"cull_backfaces": True, "near_plane": 3.0, "far_plane": 5.0}])
def test_values_and_gradients_are_those_of_all_faces(settings):
    verts = jnp.asarray(soup(30, **SIZE, seed=4), jnp.float32)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(26, 37)), jnp.float32)
    results = []
    for silhouette in (kept, functools.partial(rasterize_silhouettes, faces=None, **SIZE)):

        def loss(verts, silhouette=silhouette):
            alphas = silhouette(verts, sigma=1.5, blur_radius=9.0, **settings)
            return jnp.vdot(alphas, weights), alphas

        gradient, alphas = jax.jit(jax.grad(loss, has_aux=True))(verts)
        results.append((alphas, gradient))
    np.testing.assert_allclose(results[1][0], results[0][0], atol=4 * SINGLE)
    assert np.linalg.norm(results[1][1] - results[0][1]) <= GRADIENT * np.linalg.norm(results[0][1])


def test_reference_agrees_and_its_gradient_is_that_of_finite_differences():
    size = {"width": 12, "height": 9}
    with double_precision():
        verts = jnp.asarray(soup(5, **size, seed=4, size=4))
        render = functools.partial(
            rasterize_silhouettes, faces=None, sigma=2.0, blur_radius=40.0, backend="reference", **size
        )
        assert_gradients(render, [verts])
        expected = render(verts)
    got = rasterize_silhouettes(jnp.asarray(verts, jnp.float32), None, sigma=2.0, blur_radius=40.0, **size)
    np.testing.assert_allclose(got, expected, atol=4 * SINGLE)


def test_batches_and_packed_lists_equal_single_calls():
    verts = jnp.asarray(soup(20, **SIZE), jnp.float32)
    render = functools.partial(rasterize_silhouettes, faces=None, sigma=1.0, blur_radius=4.0, **SIZE)
    first, counts = jnp.array([0, 8]), jnp.array([8, 12])

    def loss(v, **lists):
        return jnp.square(render(v, **lists)).sum()

    packed, v_packed = jax.value_and_grad(lambda v: loss(v, first_faces=first, face_counts=counts))(verts)
    halves = [jax.value_and_grad(loss)(part) for part in (verts[:8], verts[8:])]
    np.testing.assert_allclose(packed, halves[0][0] + halves[1][0], rtol=1e-6)
    np.testing.assert_allclose(v_packed, jnp.concatenate([halves[0][1], halves[1][1]]), atol=1e-5)
    pair = jnp.stack([verts, verts + 1])
    mapped = jax.vmap(jax.grad(loss))(pair)
    np.testing.assert_allclose(jax.grad(loss)(pair), mapped, atol=1e-6)


def test_opaque_and_empty_pixels_have_finite_gradients():
    face = jnp.array([[[-900.0, -900, 1], [900, -900, 1], [0, 1800, 1]]])
    render = functools.partial(rasterize_silhouettes, faces=None, sigma=1e-4, blur_radius=1e-3, **SIZE)
    gradient = jax.grad(lambda v: render(v).sum())(jnp.tile(face, (50, 1, 1)))
    assert (np.asarray(render(face)) == 1).all() and np.isfinite(gradient).all()
    assert not np.any(render(face + 5000)) and not np.any(render(jnp.zeros((0, 3, 3))))
    with pytest.raises(KERNEL_ERROR, match="sigma must be above 0, got 0"):
        jax.block_until_ready(render(face, sigma=0.0))
