"""Times of the rasterizers on a GPU: `python -m benchmarks.gpu [--scale 1] [--out FILE]` writes JSON, then a table.

Splats lie at random in front of the camera; the mesh is a hilly surface that fills the picture. The least of several
runs counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.meshes import landscape
from jaxsplat import losses, rasterize_gaussians_3d, rasterize_meshes


class Case(NamedTuple):
    """One scene: images of width x height, splats in each, channels."""

    name: str
    images: int
    splats: int
    width: int
    height: int
    channels: int


CASES = (
    *(Case(f"1M splats, {d} channels", 1, 1_000_000, 1920, 1080, d) for d in (3, 16, 64)),
    Case("5M splats", 1, 5_000_000, 1920, 1080, 3),
    Case("4096 views of 64x64", 4096, 1_000, 64, 64, 3),
)

MESH = 1_000_000, 1024
"""Faces, and the side of the picture."""

MESH_SLOTS = {1: 0.0, 8: 1.0}
"""Faces per pixel, and the squared blur radius."""


def operands(case: Case) -> tuple[tuple[jax.Array, ...], dict[str, jax.Array]]:
    """Differentiable operands of the rasterizer, and the order."""
    rng = np.random.default_rng(0)
    shape = (case.images, case.splats)
    means = rng.uniform((0, 0), (case.width, case.height), (*shape, 2))
    sizes = np.exp(rng.normal(np.log(0.02 * case.width / np.sqrt(case.splats) * 16), 0.5, (*shape, 1)))
    conics = np.concatenate([1 / sizes**2, 0 * sizes, 1 / sizes**2], -1)
    floats = (means, conics, rng.uniform(0, 1, (*shape, case.channels)), rng.uniform(0.05, 0.9, shape))
    order = {
        "depths": jnp.asarray(rng.uniform(1, 9, shape), jnp.float32),
        "radii": jnp.asarray(np.ceil(3.33 * sizes) * np.ones(2), jnp.int32),
    }
    return tuple(jnp.asarray(x, jnp.float32) for x in floats), order


def least_ms(function: Callable[..., Any], *arguments: Any, repeats: int = 10) -> float:
    """Least time of a compiled call, in milliseconds."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def measure(case: Case) -> dict[str, float]:
    """Forward pass, forward with backward, and a step of training, in milliseconds."""
    floats, order = operands(case)

    @jax.jit
    def forward(floats: tuple[jax.Array, ...]) -> jax.Array:
        return rasterize_gaussians_3d(*floats, **order, width=case.width, height=case.height).colors

    target = jnp.zeros_like(forward(floats))
    both = jax.jit(jax.grad(lambda floats: jnp.sum(forward(floats) ** 2)))

    @jax.jit
    def step(floats: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        gradients = jax.grad(lambda f: losses.photometric(forward(f), target).sum())(floats)
        return tuple(x - 1e-6 * g for x, g in zip(floats, gradients, strict=True))

    return {
        "forward": least_ms(forward, floats),
        "with backward": least_ms(both, floats),
        "step": least_ms(step, floats),
    }


def measure_mesh(faces: int, size: int, slots: int) -> dict[str, float]:
    """Forward pass of a mesh, and forward with backward, in milliseconds.

    Args:
      faces: about how many.
      size: side of the picture.
      slots: faces per pixel.
    """
    settings = {"width": size, "height": size, "faces_per_pixel": slots, "blur_radius": MESH_SLOTS[slots]}

    @jax.jit
    def forward(verts: jax.Array) -> Any:
        return rasterize_meshes(verts, None, clip_barycentric_coords=True, **settings)

    both = jax.jit(jax.grad(lambda verts: sum(jnp.sum(x * x) for x in forward(verts)[1:])))
    verts = jnp.asarray(landscape(faces, size, "landscape").face_verts)
    return {"forward": least_ms(forward, verts), "with backward": least_ms(both, verts)}


def main() -> None:
    """Measures every case."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--scale", type=float, default=1, help="factor of the number of splats and of images")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    arguments = parser.parse_args()
    found: dict[str, dict[str, float]] = {}

    def write(name: str, ms: dict[str, float]) -> None:
        found[name] = ms
        result = {"device": jax.devices()[0].device_kind, "scale": arguments.scale, "ms": found}
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")

    for case in CASES:
        images, splats = (max(1, round(n * arguments.scale)) for n in (case.images, case.splats))
        write(case.name, measure(case._replace(images=images, splats=splats)))
    for slots in MESH_SLOTS:
        faces = max(2, round(MESH[0] * arguments.scale))
        write(f"1M faces, {slots} a pixel", measure_mesh(faces, MESH[1], slots))
    print(f"{jax.devices()[0].device_kind}, ms\n{'':28}{'forward':>12}{'+ backward':>12}{'step':>12}")
    for name, ms in found.items():
        print(f"{name:28}" + "".join(f"{value:12.2f}" for value in ms.values()))


if __name__ == "__main__":
    main()
