"""How the time of the rasterizer grows: `python -m benchmarks.growth --out FOLDER` fits powers and draws a plot."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import native, scenes
from benchmarks.stages import time_calls, with_gradient
from jaxsplat import rasterize_gaussians_3d

AXES: dict[str, Sequence[dict[str, int]]] = {
    "splats": [{"splats": n} for n in (10_000, 30_000, 100_000, 300_000)],
    "pixels": [{"width": w, "height": w * 9 // 16} for w in (320, 640, 1280, 2560)],
    "channels": [{"channels": d} for d in (1, 3, 4, 8, 16, 32, 64)],
    "cameras": [{"cameras": c} for c in (1, 2, 4, 8, 16)],
    "threads": [{"threads": t} for t in (1, 2, 4, 8, 16, 32, 64)],
}
QUICK = {"splats": [{"splats": n} for n in (100, 200)]}
START = {"splats": 100_000, "width": 640, "height": 360, "channels": 3, "cameras": 1, "threads": 0}


def main() -> int:
    """Measure, print and draw.

    Returns:
      The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the plot")
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    arguments = parser.parse_args()
    if arguments.settings:
        print(_measure(**json.loads(arguments.settings)))
        return 0
    series: dict[str, tuple[list[int], list[float]]] = {}
    for axis, changes in (QUICK if arguments.quick else AXES).items():
        sizes, times = [], []
        for change in changes:
            if change.get("threads", 0) > _processors():
                continue
            settings = {**START, **({"width": 64, "height": 48} if arguments.quick else {}), **change}
            sizes.append(settings["width"] * settings["height"] if axis == "pixels" else settings[axis])
            times.append(_in_process(settings))
            print(f"{axis:10}{sizes[-1]:>12,}{times[-1]:>10.1f} ms", flush=True)
        series[axis] = sizes, times
        print(f"{axis}: time grows as the power {exponent(sizes, times):.2f}", flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    _draw(series, arguments.out / "growth.png")
    return 0


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_process(settings: dict[str, int]) -> float:
    """Measure in a process that is confined to as many processors as threads: all of them for 0."""
    settings = dict(settings)
    threads = settings.pop("threads") or _processors()
    command = ["-m", "benchmarks.growth", "--out", ".", "--settings", json.dumps(settings)]
    done = native.run_confined(command, threads)
    done.check_returncode()
    return float(done.stdout)


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Fit time = constant * size^exponent by least squares of the logarithms.

    Args:
      sizes: of the problem.
      times: in any unit.

    Returns:
      The exponent.
    """
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def _measure(*, splats: int, width: int, height: int, channels: int, cameras: int) -> float:
    """Milliseconds of the forward and backward pass of all cameras."""
    screen = scenes.project(scenes.synthetic(splats, width, height))
    colors = jnp.asarray(np.random.default_rng(1).random((splats, channels)), jnp.float32)
    arrays = (jnp.asarray(screen.means2d), jnp.asarray(screen.conics), colors, jnp.asarray(screen.opacities))
    operands = tuple(jnp.broadcast_to(a, (cameras, *a.shape)) for a in arrays)
    depths, radii = jnp.asarray(screen.depths), jnp.asarray(screen.radii)

    def render(*operands: jax.Array) -> jax.Array:
        m, c, d, o = operands
        out = rasterize_gaussians_3d(m, c, d, o, depths=depths[None], radii=radii[None], width=width, height=height)
        return out.colors

    both = with_gradient(render)
    return time_calls(lambda: both(*operands))["min_ms"]


def _draw(series: dict[str, tuple[list[int], list[float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(series), figsize=(4 * len(series), 3.5), squeeze=False, layout="constrained")
    for panel, (name, (sizes, times)) in zip(axes[0], series.items(), strict=True):
        panel.loglog(sizes, times, "o-")
        panel.set(title=f"{name}: power {exponent(sizes, times):.2f}", xlabel=name, ylabel="ms, forward and backward")
        panel.grid(True, which="both", alpha=0.3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
