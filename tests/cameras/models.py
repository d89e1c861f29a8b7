"""What holds for every camera model."""

from __future__ import annotations

from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import cameras
from tests.differences import assert_gradients

WIDTH, HEIGHT = 40, 30
SEED = 3


def intrinsics(skew: float = 0.0) -> cameras.Intrinsics:
    return cameras.Intrinsics(*(jnp.asarray(v) for v in (25.0, skew, 19.0, 0.0, 27.0, 16.0)))


def points(n: int = 9) -> list[jax.Array]:
    """Points inside the view, near and far from the axis."""
    xyz = np.random.default_rng(SEED).uniform((-0.5, -0.4, 0.8), (0.5, 0.4, 3), (n, 3))
    xyz[0, :2] = 1e-9
    return [jnp.asarray(part) for part in xyz.T]


def assert_jacobian_is_the_derivative(model: ModuleType) -> None:
    k = intrinsics()
    for x, y, z in zip(*points(), strict=True):
        expected = jax.jacfwd(lambda p: jnp.stack(model.project(*p, k)))(jnp.stack([x, y, z]))
        got = [[jnp.broadcast_to(part, ()) for part in row] for row in model.jacobian(x, y, z, k, WIDTH, HEIGHT)]
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


def assert_gradients_hold(model: ModuleType) -> None:
    def outputs(x, y, z, k):
        return model.project(x, y, z, k), model.jacobian(x, y, z, k, WIDTH, HEIGHT)

    flat = intrinsics(0.5)
    assert_gradients(lambda x, y, z, *k: outputs(x, y, z, cameras.Intrinsics(*k)), (*points(), *flat), step=1e-7)


def assert_ray_leads_back_to_the_pixel(model: ModuleType, skew: float = 0.0) -> None:
    k = intrinsics(skew)
    rng = np.random.default_rng(SEED)
    # Not every lens has a ray for the corners.
    u, v = (jnp.asarray(rng.uniform(0.1 * size, 0.9 * size, 20)) for size in (WIDTH, HEIGHT))
    origin, direction = model.ray(u, v, k)
    np.testing.assert_allclose(sum(part**2 for part in direction), 1, rtol=1e-12)
    for distance in (0.5, 7.0):
        point = [o + distance * d for o, d in zip(origin, direction, strict=True)]
        back = model.project(*point, k)
        np.testing.assert_allclose(back, (u, v), rtol=1e-9)
    assert_gradients(lambda u, v, *k: model.ray(u, v, cameras.Intrinsics(*k)), (u, v, *k))
