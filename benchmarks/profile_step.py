"""Where the time of a training step goes: `python -m benchmarks.profile_step --out FOLDER`.

Prints the operations that take longest and leaves a trace that opens in Perfetto.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat.strategy import MCMC
from jaxsplat.train import Batch, TrainConfig, init_state, keep_freed_memory, make_train_step

STEPS = 5
LINES = 25


def main() -> int:
    """Trace some steps.

    Returns:
      The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile_step", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the trace")
    parser.add_argument("--splats", type=int, default=80_000)
    parser.add_argument("--width", type=int, default=270)
    parser.add_argument("--height", type=int, default=480)
    arguments = parser.parse_args()
    keep_freed_memory()
    step, state, batch = _training(arguments.splats, arguments.width, arguments.height)
    for _ in range(3):
        state, _ = jax.block_until_ready(step(state, batch))

    def run() -> None:
        nonlocal state
        for _ in range(STEPS):
            state, _ = jax.block_until_ready(step(state, batch))

    path = trace(run, arguments.out)
    times = times_of(operations(path))
    print(table(times))
    print(f"{outside_kernels(times):.0%} of the time is spent outside the library's kernels (ffi_call).")
    print(f"The whole trace, for ui.perfetto.dev: {path}")
    return 0


def trace(function: Callable[[], Any], folder: Path) -> Path:
    """Trace a function that runs compiled code.

    Args:
      function: to call; it must block until done.
      folder: where the trace goes.

    Returns:
      The trace, a file that opens in Perfetto.
    """
    with jax.profiler.trace(str(folder), create_perfetto_trace=True):
        function()
    return max(folder.rglob("perfetto_trace.json.gz"), key=lambda path: path.stat().st_mtime)


def operations(path: Path) -> list[dict[str, Any]]:
    """Read the events of a trace."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)["traceEvents"]


def times_of(events: list[dict[str, Any]]) -> collections.Counter[str]:
    """Sum the time of the operations of a trace.

    Args:
      events: of the trace; operations of XLA are those with an `hlo_op`.

    Returns:
      Microseconds of each.
    """
    times: collections.Counter[str] = collections.Counter()
    for event in events:
        operation = event.get("args", {}).get("hlo_op")
        if event.get("ph") == "X" and operation:
            times[operation] += event["dur"]
    return times


def outside_kernels(times: collections.Counter[str]) -> float:
    """Share of the time that is not spent in the library's own kernels, which XLA calls `ffi_call`."""
    kernels = sum(time for name, time in times.items() if name.startswith("ffi_call"))
    return 1 - kernels / (sum(times.values()) or 1)


def table(times: collections.Counter[str]) -> str:
    """Lay the longest operations out, with milliseconds and share of a step."""
    total = sum(times.values()) or 1
    lines = [f"{'operation':48}{'ms a step':>12}{'share':>8}"]
    for name, microseconds in times.most_common(LINES):
        lines.append(f"{name[:47]:48}{microseconds / 1e3 / STEPS:>12.2f}{microseconds / total:>8.0%}")
    return "\n".join(lines)


def _training(count: int, width: int, height: int) -> tuple[Any, Any, Batch]:
    """A step, a state of round splats in a cube, and a picture of noise."""
    rng = np.random.default_rng(0)
    config = TrainConfig(strategy=MCMC(cap=count))
    points, colors = rng.uniform(-1, 1, (count, 3)), rng.random((count, 3))
    state = init_state(config, points.astype(np.float32), colors.astype(np.float32))
    K = jnp.array([[[1.3 * width, 0, width / 2], [0, 1.3 * width, height / 2], [0, 0, 1]]])
    images = jnp.asarray(rng.integers(0, 256, (1, height, width, 3)), jnp.uint8)
    step = jax.jit(make_train_step(config), donate_argnums=0)
    return step, state, Batch(images, jnp.eye(4).at[2, 3].set(3.0)[None], K)


if __name__ == "__main__":
    sys.exit(main())
