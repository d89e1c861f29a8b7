"""Scenes that reach every part of the CUDA kernels, rendered by them and by the kernels for the CPU.

`python -m tests.cuda.scenes LIBRARY|gpu [small]` exits with 1 where they differ, or where the emulator finds a fault.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import Blend, ScreenProbe, intersect_tiles, rasterize_gaussians_3d, rasterize_gaussians_world
from jaxsplat.types import Projected
from tests.cuda import emulated
from tests.cuda.mesh_scenes import MeshScene, mesh_results, mesh_scenes
from tests.rays import anywhere, ray_scene
from tests.splats2d import random_splats
from tests.tolerances import GRADIENT, PICTURE


class Scene(NamedTuple):
    """A scene with the settings of the rasterizer, and how its lists are given."""

    splats: Any
    settings: dict[str, Any]
    absgrad: bool = False
    lists: bool = False


class RayScene(NamedTuple):
    """Arguments of the rasterizer along rays, bounds of the splats, and settings."""

    arguments: dict[str, jax.Array]
    extents: Projected
    settings: dict[str, Any]


def ray_scenes(small: bool) -> Iterator[tuple[str, RayScene]]:
    """Those along rays: sparse and dense, from one point and from many."""
    arguments, depths = ray_scene(50, cameras=1, channels=18, moving=True)
    yield "rays", RayScene(arguments, anywhere(depths), {"hits": True})
    if small:
        return
    # Seen in a few blocks of pixels alone: the other lanes of a warp evaluate nothing.
    centres = jnp.asarray(np.random.default_rng(1).uniform(0, 20, (*depths.shape, 2)), jnp.float32)
    bounds = anywhere(depths)
    few = bounds._replace(means2d=centres, conics=jnp.broadcast_to(jnp.array([0.8, 0.2, 1.2]), bounds.conics.shape))
    flat = {**arguments, "scales": arguments["scales"].at[:, 3].set(0), "quats": arguments["quats"].at[:, 5].set(0)}
    yield "outlined rays", RayScene(flat, few, {"hits": True})
    arguments, depths = ray_scene(400, cameras=1)
    # Every third lies as far behind the origin of the first ray.
    means, origin = arguments["means"], arguments["rays"][:, :1, 0, :3]
    behind = jnp.where(jnp.arange(means.shape[-2])[:, None] % 3 == 0, 2 * origin - means, means)
    faint = {**arguments, "means": behind, "opacities": 0.05 * arguments["opacities"]}
    yield "dense rays", RayScene(faint, anywhere(depths), {"tile_size": 20})
    blind = {**arguments, "rays": arguments["rays"].at[:, 3:6, 5:9].set(0.0)}
    yield "bounded rays", RayScene(blind, anywhere(depths), {"max_intersections": 903, "hits": True})


def scenes(small: bool) -> Iterator[tuple[str, Scene]]:
    """Sparse ones, whose last batch is partial, and dense ones with at least three batches in a tile.

    Args:
      small: only what the race detector needs, which is slow.
    """
    wide, high = 45, 33
    sparse = random_splats(90, width=wide, height=high, largest=4)
    size = {"width": wide, "height": high}
    yield "sparse", Scene(sparse, size)
    dense = random_splats(650, width=21, height=13, largest=2)
    yield (
        "dense",
        Scene(
            dense._replace(
                means2d=dense.means2d % jnp.array([[21.0, 13.0]]),
                opacities=jnp.maximum(0.03, 0.1 * dense.opacities),
                radii=jnp.full_like(dense.radii, 9),
            ),
            {"width": 21, "height": 13},
        ),
    )
    channels = random_splats(150, width=19, height=17, channels=18)
    yield "18 channels", Scene(channels, {"width": 19, "height": 17}, absgrad=not small)
    yield "given lists", Scene(sparse, size, lists=True)
    yield "bounded lists", Scene(sparse, {**size, "max_intersections": 80})
    if small:
        return
    many = random_splats(60, width=wide, height=high, images=(3,))
    yield "images", Scene(many._replace(conics=many.conics[0]), size, absgrad=True)
    yield "given lists of images", Scene(many, size, lists=True)
    yield "bounded images", Scene(many, {**size, "max_intersections": 60})
    yield "large tiles", Scene(sparse, {**size, "tile_size": 20})
    yield "small tiles", Scene(sparse, {**size, "tile_size": 12})
    rule = Blend(max_contributors=3, blend_last=True, transmittance_min=0.1)
    mask = jnp.ones((3, 3), jnp.bool_).at[1, 2].set(False)
    yield "rule and mask", Scene(sparse, {**size, "blend": rule, "masks": mask}, absgrad=True)
    yield "opaque", Scene(random_splats(400, width=wide, height=high, channels=1), size)


def ray_results(scene: RayScene) -> dict[str, jax.Array]:
    """Picture and gradients of a scene along rays."""

    def loss(arguments: dict[str, jax.Array]) -> tuple[jax.Array, Any]:
        output, rng = (
            rasterize_gaussians_world(**arguments, extents=scene.extents, **scene.settings),
            np.random.default_rng(3),
        )
        floats = [x for x in output if x is not None and x.dtype == jnp.float32]
        return sum(jnp.sum(x * jnp.asarray(rng.normal(size=x.shape), jnp.float32)) for x in floats), output

    gradients, output = jax.grad(loss, has_aux=True)(scene.arguments)
    picture = {name: x for name, x in output._asdict().items() if x is not None}
    return {**picture, **{f"gradient to {name}": x for name, x in gradients.items()}}


def results(scene: Scene | RayScene | MeshScene) -> dict[str, jax.Array]:
    """Lists, picture and gradients of a scene."""
    if isinstance(scene, MeshScene):
        return mesh_results(scene)
    if isinstance(scene, RayScene):
        return ray_results(scene)
    s = scene.splats
    size = {k: scene.settings[k] for k in ("width", "height", "tile_size") if k in scene.settings}
    tiles = intersect_tiles(s.means2d, s.radii, s.depths, conics=s.conics, opacities=s.opacities, capacity=4000, **size)
    order = {"tiles": tiles} if scene.lists else {"depths": s.depths, "radii": s.radii}

    def picture(floats: Any, probe: Any) -> Any:
        return rasterize_gaussians_3d(*floats, **order, **scene.settings, probe=probe)

    def loss(floats: Any, probe: Any) -> jax.Array:
        output, rng = picture(floats, probe), np.random.default_rng(3)
        return sum(jnp.sum(x * jnp.asarray(rng.normal(size=x.shape), jnp.float32)) for x in output[:2])

    floats, zeros = tuple(s[:4]), jnp.zeros_like(s.means2d)
    probe = ScreenProbe(zeros, zeros) if scene.absgrad else None
    gradients = jax.grad(loss, argnums=(0, 1))(floats, probe)
    names = ("means2d", "conics", "colors", "opacities", "probe", "absgrad")
    found = {f"gradient to {n}": g for n, g in zip(names, jax.tree.leaves(gradients), strict=False)}
    return {**tiles._asdict(), **picture(floats, probe)._asdict(), **found}


def differences(got: dict[str, jax.Array], want: dict[str, jax.Array]) -> list[str]:
    """What is not the same. Integers must be equal: both round alike."""
    wrong = []
    for name, truth in want.items():
        a, b = np.asarray(got[name]), np.asarray(truth)
        if name.startswith("gradient"):
            same = np.isfinite(a).all() and np.linalg.norm(a - b) <= 1e-2 * GRADIENT * np.linalg.norm(b)
        elif b.dtype == np.int32:
            same = np.mean(a == b) == 1 if name != "last_ids" else np.mean(a == b) >= PICTURE.share
        else:
            same = np.mean(np.abs(a - b) <= PICTURE.usual) >= PICTURE.share and np.abs(a - b).max() <= PICTURE.worst
        if not same:
            wrong.append(name)
    return wrong


def compare(on_device: Callable[[], AbstractContextManager[Any]], small: bool) -> list[str]:
    """Renders all scenes on the CPU, and under `on_device`. Returns what went wrong."""
    wrong = []
    for name, scene in (*scenes(small), *ray_scenes(small), *mesh_scenes(small)):
        with jax.default_device(jax.devices("cpu")[0]):
            want = jax.block_until_ready(results(scene))
        try:
            with on_device():
                got = jax.block_until_ready(results(scene))
        except (ValueError, jax.errors.JaxRuntimeError) as error:
            wrong.append(f"{name}: {error}")
            continue
        wrong += [f"{name}: {what}" for what in differences(got, want)]
    return wrong


def run(library: Path, size: str, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs this module in a process of its own.

    Args:
      library: the emulated kernels.
      size: "small" or "".
      settings: environment variables of the emulator.
    """
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu", **settings}
    if library.name.startswith("sanitized"):
        # The interpreter is not sanitized, so the sanitizer has to be there before it.
        paths = [subprocess.check_output(["g++", f"-print-file-name=lib{n}.so"], text=True) for n in ("asan", "ubsan")]
        environment |= {"LD_PRELOAD": ":".join(path.strip() for path in paths), "ASAN_OPTIONS": "detect_leaks=0"}
    command = [sys.executable, "-m", "tests.cuda.scenes", str(library), *size.split()]
    return subprocess.run(command, env=environment, cwd=emulated.ROOT, capture_output=True, text=True, check=False)


def main() -> int:
    """Compares; the second argument "small" leaves out what the race detector need not see."""
    small = "small" in sys.argv[2:]
    if sys.argv[1] == "gpu":
        wrong = compare(lambda: jax.default_device(jax.devices("gpu")[0]), small)
    else:
        emulated.register(Path(sys.argv[1]))
        wrong = compare(emulated.emulated, small)
    print("\n".join(wrong) or "equal")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
