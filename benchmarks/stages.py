"""Times every stage of a training step on scenes of many sizes: `python -m benchmarks.stages`."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import loops, memory, native, profile_step, scenes, simd_limit
from benchmarks.training import SH_DEGREE, compare_with, target_of, training
from jaxsplat import (
    intersect_tiles,
    losses,
    project_gaussians,
    project_outlines,
    rasterization,
    rasterize_gaussians_3d,
    rasterize_gaussians_world,
    spherical_harmonics,
)
from jaxsplat.cameras import camera_rays
from jaxsplat.optim import apply_splat_adam, splat_adam
from jaxsplat.train import keep_freed_memory
from jaxsplat.types import Splats

SECONDS = 2.0
"""Time that is spent on each stage, at least one call; almost none with `--quick`."""


class Case(NamedTuple):
    """What one process measures.

    Attributes:
      scene: "garden", "garden x2", or the number of splats of a synthetic one.
      width: pixels of a synthetic scene.
      height: pixels of a synthetic scene.
      channels: other than 3: the rasterizer alone.
      cameras: more than 1: views alone.
    """

    scene: str
    width: int = 0
    height: int = 0
    channels: int = 3
    cameras: int = 1


CASES = (
    Case("garden"),
    Case("garden x2"),
    Case("garden", channels=16),
    Case("garden", channels=64),
    Case("10000", 1920, 1080),
    Case("100000", 1920, 1080),
    Case("1000000", 1920, 1080),
    Case("50000", 64, 64, cameras=1000),
)
QUICK = (Case("500", 64, 48), Case("500", 64, 48, channels=16), Case("500", 16, 16, cameras=8))


def main() -> int:
    """Run the cases, each in a process of its own.

    Returns:
      The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__)
    parser.add_argument("--garden", type=Path, help="gsplat's test_garden.npz; without it the scene is left out")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="tiny scenes, to see that everything runs")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        keep_freed_memory()
        seconds, case = 0.0 if arguments.quick else SECONDS, Case(*json.loads(arguments.case))
        result = (
            measure_memory(case, arguments.garden) if arguments.memory else measure(case, arguments.garden, seconds)
        )
        print(json.dumps(result))
        return 0
    results = []
    for case in QUICK if arguments.quick else CASES:
        if case.scene.startswith("garden") and arguments.garden is None:
            continue
        for threads in arguments.threads:
            found = _in_process(case, threads, arguments)
            if "whole step" in found["stages"]:
                found |= _in_process(case, threads, arguments, "--memory")
            results.append({"case": case._asdict(), "threads": threads, **found})
            print(table(results[-1]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _in_process(case: Case, threads: int, arguments: argparse.Namespace, *more: str) -> dict[str, Any]:
    """Measure in a process that is confined to as many processors as threads."""
    command = ["-m", "benchmarks.stages", "--case", json.dumps(case), *more]
    command += [f"--garden={arguments.garden}"] if arguments.garden else []
    command += ["--quick"] if arguments.quick else []
    done = native.run_confined(command, threads)
    done.check_returncode()
    return json.loads(done.stdout.splitlines()[-1])


def measure(case: Case, garden: Path | None, seconds: float) -> dict[str, Any]:
    """Time the stages of one case.

    Args:
      case: what to measure.
      garden: file of the garden scene.
      seconds: time to spend on each stage.

    Returns:
      Milliseconds of each stage; pairs a second and their share of what the inner loops reach; the share of a step that
      is not the kernels'.
    """
    scene = _scene(case, garden)
    if case.cameras > 1:
        stages = _views(scene, case.cameras)
    elif case.channels != 3:
        stages = _raster(scene, case.channels)
    else:
        stages = {**_raster(scene, 3), **_rays(scene), **_step(scene)}
    result: dict[str, Any] = {"stages": {name: time_calls(function, seconds) for name, function in stages.items()}}
    if case.cameras == 1:
        _add_limit(result, scene, case.channels)
    if "whole step" in stages:
        with tempfile.TemporaryDirectory() as folder:
            path = profile_step.trace(lambda: jax.block_until_ready(stages["whole step"]()), Path(folder))
            result["outside_kernels"] = profile_step.outside_kernels(
                profile_step.times_of(profile_step.operations(path))
            )
    return result


def measure_memory(case: Case, garden: Path | None) -> dict[str, Any]:
    """Measure what the first step takes beyond parameters, moments and gradients.

    Args:
      case: what to measure.
      garden: file of the garden scene.

    Returns:
      Mebibytes; and those of 150 bytes a splat and 100 bytes a pixel, to compare with.
    """
    scene = _scene(case, garden)
    splats, step = training(scene)
    state = splat_adam(steps=1000).init(splats)
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(splats, state).compile()
    gradients = sum(leaf.nbytes for leaf in splats)
    beyond = memory.peak_beyond(lambda: compiled(splats, state)) - gradients
    allowance = 150 * len(scene.means) + 100 * scene.width * scene.height
    return {"step_mib": beyond / 2**20, "step_allowance_mib": allowance / 2**20}


def _add_limit(result: dict[str, Any], scene: scenes.Scene, channels: int) -> None:
    """Pixel-splat pairs a second of the rasterizer, and of its inner loops alone (for 3 channels)."""
    screen = scenes.project(scene)
    size: dict[str, Any] = {"width": scene.width, "height": scene.height}
    lists = intersect_tiles(
        *(jnp.asarray(x) for x in (screen.means2d, screen.radii, screen.depths)),
        conics=jnp.asarray(screen.conics),
        opacities=jnp.asarray(screen.opacities),
        capacity=16 * len(screen.means2d),
        **size,
    )
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = simd_limit.measure(screen, np.asarray(lists.gaussian_ids), np.asarray(lists.tile_offsets), threads)
    times = result["stages"]
    forward = times["raster, forward"]["min_ms"]
    backward = times["raster, forward and backward"]["min_ms"] - forward
    result["pairs"] = limit.pairs
    for stage, ms, rate in (("forward", forward, limit.forward), ("backward", backward, limit.backward)):
        result[f"{stage}_pairs_a_second"] = limit.pairs / ms * 1e3
        if channels == 3:
            result[f"{stage}_share_of_limit"] = limit.pairs / ms * 1e3 / rate


def _scene(case: Case, garden: Path | None) -> scenes.Scene:
    if not case.scene.startswith("garden"):
        return scenes.synthetic(int(case.scene), case.width, case.height)
    assert garden is not None
    scene = scenes.garden(garden)
    if case.scene == "garden":
        return scene
    K = scene.K * np.array([[2], [2], [1]], np.float32)
    return scene._replace(K=K, width=2 * scene.width, height=2 * scene.height)


Stages = dict[str, Callable[[], Any]]


def _raster(scene: scenes.Scene, channels: int) -> Stages:
    """The kernels alone, on projected splats."""
    screen = scenes.project(scene)
    size: dict[str, Any] = {"width": scene.width, "height": scene.height}
    colors = jnp.asarray(np.random.default_rng(1).random((len(scene.means), channels)), jnp.float32)
    splats = (jnp.asarray(screen.means2d), jnp.asarray(screen.conics), colors, jnp.asarray(screen.opacities))
    depths, radii = jnp.asarray(screen.depths), jnp.asarray(screen.radii)

    @jax.jit
    def forward(means2d: jax.Array, conics: jax.Array, colors: jax.Array, opacities: jax.Array) -> jax.Array:
        return rasterize_gaussians_3d(means2d, conics, colors, opacities, depths=depths, radii=radii, **size).colors

    both = with_gradient(forward)

    @jax.jit
    def intersect(means2d: jax.Array, conics: jax.Array, _: jax.Array, opacities: jax.Array) -> Any:
        capacity = 16 * len(means2d)
        return intersect_tiles(means2d, radii, depths, conics=conics, opacities=opacities, capacity=capacity, **size)

    return {
        "intersect + sort": lambda: intersect(*splats),
        "raster, forward": lambda: forward(*splats),
        "raster, forward and backward": lambda: both(*splats),
    }


def _rays(scene: scenes.Scene) -> Stages:
    """The kernels that evaluate splats along rays, within the bounds that the pipeline gives them."""
    viewmats, Ks = jnp.asarray(scene.viewmat)[None], jnp.asarray(scene.K)[None]
    size: dict[str, Any] = {"width": scene.width, "height": scene.height}
    means, quats, scales, opacities = (
        jnp.asarray(x) for x in (scene.means, scene.quats, scene.scales, scene.opacities)
    )
    colors = jnp.asarray(np.random.default_rng(1).random((len(scene.means), 3)), jnp.float32)
    splats = [x[None] for x in (means, quats, scales, opacities, colors)]
    extents = project_outlines(means, quats, scales, viewmats, Ks, opacities=opacities, **size)
    rays = camera_rays(viewmats, Ks, **size)

    def forward(*arguments: Any) -> jax.Array:
        return rasterize_gaussians_world(*arguments[:5], rays=rays, extents=extents).colors

    def everything(*arguments: Any) -> Any:
        out = rasterize_gaussians_world(*arguments[:6], extents=extents, hits=True)
        return out.colors, out.distances, out.normals

    forward_jit, both, all_of_it = jax.jit(forward), with_gradient(forward), with_gradient(everything)
    return {
        "along rays, forward": lambda: forward_jit(*splats),
        "along rays, forward and backward": lambda: both(*splats),
        "with hits and gradient of rays": lambda: all_of_it(*splats, rays),
    }


def _step(scene: scenes.Scene) -> Stages:
    """What is around the kernels in a training step, and the whole of it."""
    splats, step = training(scene)
    size: dict[str, Any] = {"width": scene.width, "height": scene.height}
    viewmats, Ks = jnp.asarray(scene.viewmat)[None], jnp.asarray(scene.K)[None]
    target = target_of(scene)
    compare, image = compare_with(target), jnp.clip(target + 0.1, 0, 1)
    coefficients = jnp.concatenate([splats.sh_dc, splats.sh_rest], 1)
    directions = splats.means - jnp.asarray(-scene.viewmat[:3, :3].T @ scene.viewmat[:3, 3])

    def project(means: jax.Array, quats: jax.Array, scales: jax.Array) -> Any:
        out = project_gaussians(means, quats, scales, viewmats, Ks, opacities=jnp.asarray(scene.opacities), **size)
        return out.means2d, out.conics, out.depths

    colors = jax.jit(lambda directions, terms: spherical_harmonics(SH_DEGREE, directions, terms))
    projected = (splats.means, splats.quats, jnp.exp(splats.log_scales))
    project_jit, project_both = jax.jit(project), with_gradient(project)
    colors_both, compare_both = with_gradient(colors), with_gradient(compare)
    similarity = with_gradient(lambda images: losses.ssim(images, target).mean())
    # Not all alike, which XLA would write anew in each call.
    gradients = jax.tree.map(lambda leaf: 1e-3 * jnp.cos(leaf), splats)
    adam = carried(lambda splats, state: apply_splat_adam(splats, gradients, state, steps=1000), splats)
    # As the library's projection does it, every quaternion divided by its length beforehand.
    unit = scene._replace(quats=scene.quats / np.linalg.norm(scene.quats, axis=1, keepdims=True))
    gradient, pictures = loops.projection_gradient(unit), (np.asarray(image[0]), np.asarray(target[0]))
    written = np.empty_like(pictures[0])
    return {
        "projection": lambda: project_jit(*projected),
        "projection, with gradient": lambda: project_both(*projected),
        "the same, one C++ loop": lambda: loops.projection_gradient(unit, gradient),
        "spherical harmonics": lambda: colors(directions, coefficients),
        "spherical harmonics, with gradient": lambda: colors_both(directions, coefficients),
        "L1 + SSIM, with gradient": lambda: compare_both(image),
        "SSIM alone, with gradient": lambda: similarity(image),
        "the same, C++ loops": lambda: loops.ssim_gradient(*pictures, written),
        "Adam": adam,
        "whole step": carried(step, splats),
    }


def with_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function together with its gradients.

    Args:
      function: of arrays.

    Returns:
      The function that gives the sum of all results, and its gradients.
    """

    def total(*arguments: jax.Array) -> jax.Array:
        return jnp.stack([leaf.sum() for leaf in jax.tree.leaves(function(*arguments))]).sum()

    return jax.jit(lambda *arguments: jax.value_and_grad(total, argnums=tuple(range(len(arguments))))(*arguments))


def carried(step: Callable[[Splats, Any], Any], splats: Splats) -> Callable[[], Any]:
    """Make calls of a step on what its last call returned, whose memory it may use.

    Args:
      step: (splats, state of Adam) -> (splats, state).
      splats: of the first call.

    Returns:
      The function that makes the next step.
    """
    compiled = jax.jit(step, donate_argnums=(0, 1))
    splats = jax.tree.map(jnp.copy, splats)
    carried = [(splats, splat_adam(steps=1000).init(splats))]

    def call() -> Any:
        carried[0] = jax.block_until_ready(compiled(*carried[0]))
        return carried[0]

    return call


def _views(scene: scenes.Scene, cameras: int) -> Stages:
    """Many small pictures of one scene, with spherical harmonics left out."""
    angles = np.linspace(0, 0.2, cameras, dtype=np.float32)
    viewmats = np.tile(scene.viewmat, (cameras, 1, 1))
    viewmats[:, 0, 3] += angles
    Ks = jnp.asarray(np.tile(scene.K, (cameras, 1, 1)))
    splats = [jnp.asarray(a) for a in (scene.means, scene.quats, scene.scales, scene.opacities, scene.colors)]
    size: dict[str, Any] = {"width": scene.width, "height": scene.height, "camera_chunk": min(50, cameras)}
    views = jnp.asarray(viewmats)

    def render(
        means: jax.Array, quats: jax.Array, scales: jax.Array, opacities: jax.Array, colors: jax.Array
    ) -> jax.Array:
        return rasterization(means, quats, scales, opacities, colors, views, Ks, **size).colors

    forward, both = jax.jit(render), with_gradient(render)
    return {"views": lambda: forward(*splats), "views, with gradient": lambda: both(*splats)}


def time_calls(function: Callable[[], Any], seconds: float = SECONDS) -> dict[str, float]:
    """Time a function.

    Args:
      function: to call.
      seconds: time to spend, at least one call.

    Returns:
      Milliseconds of a call: minimum and median of the wall clock, minimum of all processors together.
    """
    jax.block_until_ready(function())
    walls, cpus, start = [], [], time.perf_counter()
    while not walls or (time.perf_counter() - start < seconds and len(walls) < 15):
        wall, cpu = time.perf_counter(), time.process_time()
        jax.block_until_ready(function())
        walls.append(1e3 * (time.perf_counter() - wall))
        cpus.append(1e3 * (time.process_time() - cpu))
    return {"min_ms": min(walls), "median_ms": statistics.median(walls), "cpu_ms": min(cpus)}


def table(result: dict[str, Any]) -> str:
    """Lay one result out for reading."""
    case = Case(**result["case"])
    name = case.scene if case.scene.startswith("garden") else f"{case.scene} splats, {case.width}x{case.height}"
    lines = [
        f"\n{name}, {case.channels} channels, {case.cameras} camera(s), {result['threads']} thread(s)",
        f"{'milliseconds':36}{'minimum (median)':>22}{'all processors':>18}",
    ]
    for stage, t in result["stages"].items():
        wall = f"{t['min_ms']:.1f} ({t['median_ms']:.1f})"
        lines.append(f"{stage:36}{wall:>22}{t['cpu_ms']:>18.1f}")
    if "pairs" in result:
        lines.append(f"{result['pairs'] / 1e6:.1f} million pixel-splat pairs after culling, billions of them a second:")
        for stage in ("forward", "backward"):
            share = result.get(f"{stage}_share_of_limit")
            of = "" if share is None else f", {share:.0%} of its inner loop alone"
            lines.append(f"  {stage} {result[f'{stage}_pairs_a_second'] / 1e9:.2f}{of}")
    if "step_mib" in result:
        lines.append(
            f"memory of the step beyond parameters, moments and gradients: {result['step_mib']:.0f} MiB "
            f"(150 bytes a splat + 100 bytes a pixel: {result['step_allowance_mib']:.0f})"
        )
    if "outside_kernels" in result:
        lines.append(f"of the step's time, {result['outside_kernels']:.0%} is spent outside the library's kernels")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
