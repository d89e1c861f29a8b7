"""Small random scenes of 3D Gaussians and cameras."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, HEIGHT = 48, 36


class Scene(NamedTuple):
    """Splats in front of `C` cameras."""

    means: jax.Array
    quats: jax.Array
    scales: jax.Array
    opacities: jax.Array
    viewmats: jax.Array
    Ks: jax.Array


def random_scene(n: int = 12, *, cameras: int = 2, seed: int = 0, dtype: type = np.float32) -> Scene:
    """Splats around the origin, cameras some four units away that look at it; nothing is near a cut-off."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(-0.8, 0.8, (n, 3))
    viewmats = np.stack([_viewmat(rng) for _ in range(cameras)])
    Ks = np.zeros((cameras, 3, 3))
    Ks[:, 0] = np.stack([rng.uniform(38, 44, cameras), rng.normal(size=cameras), np.full(cameras, WIDTH / 2)], -1)
    Ks[:, 1, 1:] = np.stack([rng.uniform(38, 44, cameras), np.full(cameras, HEIGHT / 2)], -1)
    Ks[:, 2, 2] = 1
    arrays = (
        means,
        rng.normal(size=(n, 4)),
        np.exp(rng.uniform(-3, -1, (n, 3))),
        rng.uniform(0.1, 0.9, n),
        viewmats,
        Ks,
    )
    return Scene(*(jnp.asarray(x, dtype) for x in arrays))


def _viewmat(rng: np.random.Generator) -> np.ndarray:
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    viewmat = np.eye(4)
    viewmat[:3, :3] = rotation * np.sign(np.linalg.det(rotation))
    viewmat[:3, 3] = rng.uniform(-0.2, 0.2), rng.uniform(-0.2, 0.2), 4
    return viewmat
