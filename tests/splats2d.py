"""Random splats on the screen, for tests of the stages behind projection."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np


class Splats2d(NamedTuple):
    """Arguments of the rasterizer; see `jaxsplat.rasterize_gaussians_3d`."""

    means2d: jnp.ndarray
    conics: jnp.ndarray
    colors: jnp.ndarray
    opacities: jnp.ndarray
    depths: jnp.ndarray
    radii: jnp.ndarray


def random_splats(
    n: int,
    *,
    width: int,
    height: int,
    channels: int = 3,
    images: tuple[int, ...] = (),
    seed: int = 0,
    largest: float = 6.0,
) -> Splats2d:
    """Splats of many sizes, orientations and opacities, some beyond the border, some culled, some at equal depth."""
    rng = np.random.default_rng(seed)
    means = rng.uniform((-8, -8), (width + 8, height + 8), (*images, n, 2))
    angle = rng.uniform(0, np.pi, (*images, n))
    sizes = np.exp(rng.uniform(np.log(0.6), np.log(largest), (*images, n, 2)))
    c, s = np.cos(angle), np.sin(angle)
    inverse = 1 / sizes**2
    conics = np.stack(
        [
            c**2 * inverse[..., 0] + s**2 * inverse[..., 1],
            c * s * (inverse[..., 0] - inverse[..., 1]),
            s**2 * inverse[..., 0] + c**2 * inverse[..., 1],
        ],
        axis=-1,
    )
    opacities = np.clip(rng.uniform(-0.1, 1.1, (*images, n)), 0.001, 1.0)
    depths = np.round(rng.uniform(1, 9, (*images, n)) * 4) / 4
    radii = np.ceil(3.33 * sizes.max(-1, keepdims=True)).astype(np.int32) * np.ones(2, np.int32)
    radii[rng.random((*images, n)) < 0.1] = 0
    floats = (means, conics, rng.uniform(0, 1, (*images, n, channels)), opacities, depths)
    return Splats2d(*(jnp.asarray(x, jnp.float32) for x in floats), jnp.asarray(radii))
