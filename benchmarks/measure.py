"""One process of the benchmark: measures this library and the scalar baseline in turn.

`python -m benchmarks` starts it once for each number of threads and instruction set, in an environment that fixes them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import scenes, simd_limit
from benchmarks.baseline import Baseline, Splats
from jaxsplat.rasterize.gaussians_3d import rasterize_gaussians_3d
from jaxsplat.tiles import intersect_tiles

SYNTHETIC = {"synthetic": (100_000, 640, 480), "large": (1_000_000, 1920, 1080), "tiny": (2_000, 128, 96)}
BACKGROUND = (0.1, 0.2, 0.3)

MAX_PICTURE_DIFFERENCE = 5e-3
MAX_GRADIENT_DIFFERENCE = 2e-3
"""Where the two programs differ by more, their times mean nothing and the command fails."""


class Program(NamedTuple):
    """The stages of one renderer of one scene, as functions that block until done."""

    intersect: Callable[[], Any]
    forward: Callable[[], Any]
    backward: Callable[[], Any]
    forward_all: Callable[[], Any]
    backward_all: Callable[[], Any]


def baseline_program(screen: scenes.Screen, v_colors: np.ndarray, v_alphas: np.ndarray, threads: int) -> Program:
    """Set up the scalar baseline; its backward pass keeps the forward's lists, as its kind does."""
    baseline, size = Baseline(threads=threads), {"width": screen.width, "height": screen.height}
    splats = Splats(screen.means2d, screen.conics, screen.colors, screen.opacities)
    background = np.asarray(BACKGROUND, np.float32)

    def intersect() -> Any:
        return baseline.intersect(screen.means2d, screen.box_radii, screen.depths, **size)

    lists = intersect()
    picture = baseline.forward(splats, lists, background, **size)

    def backward() -> Splats:
        return baseline.backward(splats, lists, background, picture, v_colors, v_alphas)

    return Program(
        intersect,
        lambda: baseline.forward(splats, lists, background, **size),
        backward,
        lambda: baseline.forward(splats, intersect(), background, **size),
        backward,
    )


def our_program(screen: scenes.Screen, v_colors: np.ndarray, v_alphas: np.ndarray, capacity: int) -> Program:
    """Set up this library: every stage is a compiled JAX function on arrays that are ready."""
    size: dict[str, Any] = {"width": screen.width, "height": screen.height}
    splats = tuple(jnp.asarray(x) for x in (screen.means2d, screen.conics, screen.colors, screen.opacities))
    depths, radii, backgrounds = jnp.asarray(screen.depths), jnp.asarray(screen.radii), jnp.asarray(BACKGROUND)
    cotangents = (jnp.asarray(v_colors), jnp.asarray(v_alphas)[..., None])

    @jax.jit
    def intersect(means2d: jax.Array, conics: jax.Array, _: jax.Array, opacities: jax.Array) -> Any:
        return intersect_tiles(means2d, radii, depths, conics=conics, opacities=opacities, capacity=capacity, **size)

    @jax.jit
    def forward(splats: tuple[jax.Array, ...], tiles: Any) -> Any:
        order: dict[str, Any] = {"depths": depths, "radii": radii} if tiles is None else {"tiles": tiles}
        out = rasterize_gaussians_3d(*splats, **order, backgrounds=backgrounds, **size)
        return out.colors, out.alphas

    tiles = jax.block_until_ready(intersect(*splats))
    pull = jax.jit(lambda vjp: Splats(*vjp(cotangents)[0]))
    # The residuals travel inside the pulled-back function, which is a pytree.
    given = jax.vjp(lambda s: forward(s, tiles), splats)[1]
    found = jax.vjp(lambda s: forward(s, None), splats)[1]
    return Program(
        lambda: jax.block_until_ready(intersect(*splats)),
        lambda: jax.block_until_ready(forward(splats, tiles)),
        lambda: jax.block_until_ready(pull(given)),
        lambda: jax.block_until_ready(forward(splats, None)),
        lambda: jax.block_until_ready(pull(found)),
    )


def differences(ours: Program, baseline: Program) -> dict[str, float]:
    """Compare what the programs compute.

    Args:
      ours: this library.
      baseline: the scalar baseline.

    Returns:
      Largest absolute difference of the pictures, the fraction of values that differ by over 1e-4, and the relative L2
      difference of each gradient.
    """
    colors, picture = np.asarray(ours.forward_all()[0]), baseline.forward_all()
    difference = np.abs(colors - picture.colors)
    result = {"colors": float(difference.max()), "colors over 1e-4": float(np.mean(difference > 1e-4))}
    for stage in ("backward", "backward_all"):
        mine, theirs = getattr(ours, stage)(), getattr(baseline, stage)()
        for name in Splats._fields:
            a, b = np.asarray(getattr(mine, name), np.float64), np.asarray(getattr(theirs, name), np.float64)
            key = f"gradient of {name}"
            # numpy's maximum, unlike Python's, keeps a NaN.
            result[key] = float(np.maximum(result.get(key, 0.0), np.linalg.norm(a - b) / np.linalg.norm(b)))
    return result


def time_in_turn(functions: list[Callable[[], Any]], repeats: int) -> list[dict[str, float]]:
    """Time functions alternately, so that whatever else the machine does hits all of them alike.

    Args:
      functions: what to time; each is called once beforehand.
      repeats: number of timed calls of each.

    Returns:
      Minimum and median of each, in milliseconds.
    """
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for function, list_ in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            list_.append(1e3 * (time.perf_counter() - start))
    return [{"min_ms": min(list_), "median_ms": statistics.median(list_)} for list_ in times]


def measure(scene: scenes.Scene, threads: int, repeats: int) -> dict[str, Any]:
    """Check and time both programs on one scene.

    Args:
      scene: the scene.
      threads: number of threads of the baseline; ours uses those that the process has.
      repeats: number of timed calls of each stage.

    Returns:
      Sizes of the scene, differences of the programs, and times and ratios of each stage.

    Raises:
      RuntimeError: the programs do not compute the same thing.
    """
    screen = scenes.project(scene)
    rng = np.random.default_rng(1)
    v_colors = rng.normal(size=(scene.height, scene.width, 3)).astype(np.float32)
    v_alphas = rng.normal(size=(scene.height, scene.width)).astype(np.float32)
    baseline = baseline_program(screen, v_colors, v_alphas, threads)
    boxes = len(baseline.intersect().ids)
    ours = our_program(screen, v_colors, v_alphas, capacity=boxes)
    different = differences(ours, baseline)
    limits = {key: MAX_GRADIENT_DIFFERENCE if "gradient" in key else MAX_PICTURE_DIFFERENCE for key in different}
    if wrong := [key for key, value in different.items() if not value <= limits[key]]:
        raise RuntimeError(f"{scene.name}: the two programs disagree in {', '.join(wrong)}: {different}")
    lists = ours.intersect()
    limit = simd_limit.measure(screen, np.asarray(lists.gaussian_ids), np.asarray(lists.tile_offsets), threads)
    stages = {}
    for stage in Program._fields:
        us, them = time_in_turn([getattr(ours, stage), getattr(baseline, stage)], repeats)
        stages[stage] = {"ours": us, "baseline": them} | {
            f"ratio_{key}": them[f"{key}_ms"] / us[f"{key}_ms"] for key in ("min", "median")
        }
    return {
        "scene": scene.name,
        "size": [scene.width, scene.height],
        "splats": len(scene.means),
        "visible": int((screen.radii > 0).all(axis=1).sum()),
        "intersections": {"ours": int(lists.count), "baseline": boxes},
        "limit": {
            "pairs": limit.pairs,
            **{
                stage: {"of_the_loop": rate, "reached": limit.pairs / stages[stage]["ours"]["min_ms"] * 1e3}
                for stage, rate in (("forward", limit.forward), ("backward", limit.backward))
            },
        },
        "differences": different,
        "stages": stages,
    }


def main() -> None:
    """Measure the scenes named on the command line and print one JSON object for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--garden", type=Path)
    parser.add_argument("scenes", nargs="+")
    arguments = parser.parse_args()
    for name in arguments.scenes:
        scene = scenes.garden(arguments.garden) if name == "garden" else scenes.synthetic(*SYNTHETIC[name])
        print(json.dumps(measure(scene, arguments.threads, arguments.repeats)), flush=True)


if __name__ == "__main__":
    main()
