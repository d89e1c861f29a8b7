"""Meshes that reach every part of their CUDA kernels, in as few images and faces as do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import rasterize_meshes, rasterize_silhouettes
from tests.meshes import soup

WIDTH, HEIGHT = 45, 33
BATCH = 64
"""Faces that a block of threads looks at together."""


class MeshScene(NamedTuple):
    """Corners of the faces, and the settings of the rasterizer: that of silhouettes where there is a `sigma`."""

    verts: jax.Array
    settings: dict[str, Any]


def mesh_scenes(small: bool) -> Iterator[tuple[str, MeshScene]]:
    """Sparse ones, and dense ones whose tiles have at least three batches, the last one partial.

    Args:
      small: only what the race detector needs, which is slow.
    """
    size = {"width": WIDTH, "height": HEIGHT}
    tiny = {"width": 21, "height": 13}
    soft = {"blur_radius": 4.0, "clip_barycentric_coords": True}
    sparse = jnp.asarray(soup(40, **size, size=6), jnp.float32)
    dense = jnp.asarray(soup(150, **tiny, size=9), jnp.float32)
    dense = jnp.concatenate([dense, dense[:40]])  # some are equally deep
    yield "mesh", MeshScene(sparse, {**size, **soft, "faces_per_pixel": 3})
    yield "dense mesh", MeshScene(dense, {**tiny, "faces_per_pixel": 20})
    small_faces = jnp.asarray(soup(90, **tiny, size=1.0), jnp.float32)
    yield "silhouettes", MeshScene(small_faces, {**tiny, "blur_radius": 9.0, "sigma": 1.5})
    if small:
        return
    packed = {"first_faces": jnp.array([0, 12, 12]), "face_counts": jnp.array([12, 0, 28])}
    for count in (1, 8):
        yield f"packed meshes, {count}", MeshScene(sparse, {**size, **packed, "faces_per_pixel": count, "bin_size": 20})
    pairs = jnp.arange(40) ^ 1
    halves = {"clipped_faces_neighbor_idx": pairs, "near_plane": 2.5, "far_plane": 5.0, "cull_backfaces": True}
    yield "halves", MeshScene(sparse, {**size, **soft, **halves, "faces_per_pixel": 5, "perspective_correct": False})
    planes = jnp.array([2.5, 3.0])
    yield (
        "silhouettes of halves",
        MeshScene(sparse, {**size, "blur_radius": 9.0, "sigma": jnp.array([0.5, 2.0]), "bin_size": 32,
                           "near_plane": planes, "clipped_faces_neighbor_idx": pairs}),
    )  # fmt: skip
    large = sparse * jnp.array([9.0, 9.0, 1.0]) - jnp.array([180.0, 130.0, 0.0])
    images = jnp.stack([sparse, large])
    yield "images", MeshScene(images, {**size, "faces_per_pixel": 2, "bin_size": 4, "convention": "opencv"})


def mesh_results(scene: MeshScene) -> dict[str, jax.Array]:
    """Fragments, or the silhouettes, and the gradient of the corners."""

    def loss(verts: jax.Array) -> tuple[jax.Array, Any]:
        rng = np.random.default_rng(3)
        if "sigma" in scene.settings:
            output: Any = {"silhouettes": rasterize_silhouettes(verts, None, **scene.settings)}
        else:
            output = rasterize_meshes(verts, None, **scene.settings)._asdict()
        floats = [x for x in output.values() if x.dtype == jnp.float32]
        return sum(jnp.sum(x * jnp.asarray(rng.normal(size=x.shape), jnp.float32)) for x in floats), output

    gradient, output = jax.grad(loss, has_aux=True)(scene.verts)
    return {**output, "gradient to verts": gradient}
