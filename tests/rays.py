"""Small scenes along rays, and their golden file."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import rasterize_gaussians_world
from jaxsplat.cameras import camera_rays
from jaxsplat.types import Projected
from tests.data import double_precision, shared
from tests.scenes import random_scene
from tests.tolerances import GRADIENT, GRADIENT_DOUBLE, PICTURE, PICTURE_DOUBLE

WIDTH, HEIGHT = 23, 18
FLOATS = ("means", "quats", "scales", "opacities", "colors", "rays")


def anywhere(depths: jax.Array) -> Projected:
    """Bounds that leave nothing out: each splat may be seen at every pixel."""

    def everywhere(*row: float) -> jax.Array:
        return jnp.broadcast_to(jnp.array(row, depths.dtype), (*depths.shape, len(row)))

    radii = jnp.ones((*depths.shape, 2), jnp.int32)
    return Projected(everywhere(0, 0), everywhere(1e-12, 0, 1e-12), depths, radii, jnp.ones_like(depths))


def ray_scene(
    n: int = 40, *, cameras: int = 2, channels: int = 3, seed: int = 0, moving: bool = False, dtype: type = np.float32
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Arguments of the rasterizer by name, and depths: shared splats, each camera's rays, from one point or many."""
    base = random_scene(n, cameras=cameras, seed=seed, dtype=dtype)
    rng = np.random.default_rng(seed)
    Ks = base.Ks * jnp.array([[[0.5], [0.5], [1]]], dtype)
    rays = np.array(camera_rays(base.viewmats, Ks, width=WIDTH, height=HEIGHT))
    if moving:
        rays[..., :3] += rng.uniform(-0.05, 0.05, rays[..., :3].shape)
    depths = base.viewmats[:, 2, :3] @ base.means.T + base.viewmats[:, 2, 3:]
    arguments = {
        "means": base.means[None], "quats": base.quats[None], "scales": base.scales[None],
        "opacities": base.opacities[None], "colors": jnp.asarray(rng.uniform(0, 1, (1, n, channels)), dtype),
        "rays": jnp.asarray(rays, dtype),
    }  # fmt: skip
    return arguments, depths


def golden_rays(viewmats: jax.Array, Ks: jax.Array, width: int, height: int) -> jax.Array:
    """Rays as the golden file has them: the rotation of a view matrix is transposed, not inverted."""
    u, v = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    pixels = jnp.asarray(np.stack([u, v, np.ones_like(u)], -1), Ks.dtype)
    directions = jnp.einsum("cij,hwj->chwi", jnp.linalg.inv(Ks), pixels)
    directions /= jnp.linalg.norm(directions, axis=-1, keepdims=True)
    rotations = viewmats[:, :3, :3]
    origins = -jnp.einsum("cji,cj->ci", rotations, viewmats[:, :3, 3])[:, None, None]
    directions = jnp.einsum("cji,chwj->chwi", rotations, directions)
    return jnp.concatenate([jnp.broadcast_to(origins, directions.shape), directions], -1)


def check_golden(backend: str) -> None:
    """Asserts that pictures and every gradient agree with the file; the reference in float64."""
    with np.load(shared("golden/world_rays.npz")) as file:
        case = dict(file)
    double = backend == "reference"
    with double_precision(double):
        dtype = np.float64 if double else np.float32
        names = ("means", "quats", "scales", "opacities", "colors", "viewmats", "backgrounds")
        floats = {name: jnp.asarray(case[name], dtype) for name in names}
        Ks, depths = jnp.asarray(case["Ks"], dtype), jnp.asarray(case["depths"], dtype)
        extents = anywhere(depths)
        extents = extents._replace(radii=jnp.where(depths[..., None] > 0.01, extents.radii, 0))

        def loss(f: dict[str, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            splats = [f[name][None] for name in names[:5]]
            rays = golden_rays(f["viewmats"], Ks, int(case["width"]), int(case["height"]))
            out = rasterize_gaussians_world(
                *splats, rays, extents=extents, backgrounds=f["backgrounds"], backend=backend
            )  # pyright: ignore
            cotangents = [jnp.asarray(case[f"cotangent_{name}"], dtype) for name in ("render", "alphas")]
            return jnp.sum(out.colors * cotangents[0]) + jnp.sum(out.alphas * cotangents[1]), (out.colors, out.alphas)

        (_, pictures), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(floats)
        for name, got in zip(("render", "alphas"), pictures, strict=True):
            error = np.abs(np.asarray(got) - case[name])
            assert error.max() <= (PICTURE_DOUBLE if double else PICTURE.worst), name
            assert np.mean(error <= PICTURE.usual) >= PICTURE.share, name
        for name in names:
            got = np.asarray(gradients[name])[..., :3, :] if name == "viewmats" else np.asarray(gradients[name])
            error = np.linalg.norm(got - case[f"grad_{name}"]) / np.linalg.norm(case[f"grad_{name}"])
            assert error <= (GRADIENT_DOUBLE if double else GRADIENT), f"gradient to {name} is {error} off"
