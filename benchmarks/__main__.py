"""Compares this library with a plain scalar implementation: `python -m benchmarks --help`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from benchmarks import native

ROOT = Path(__file__).parents[1]
GARDEN = "shared/data/gsplat/test_garden.npz"
SCENES = ("garden", "synthetic", "large", "tiny")
ISAS = ("best", "avx512", "avx2", "baseline")
STAGES = {
    "intersect": "intersect + sort",
    "forward": "forward",
    "backward": "backward",
    "forward_all": "intersect + sort + forward",
    "backward_all": "backward, lists found again",
}


def main() -> int:
    """Run the benchmark.

    Returns:
      The exit status: 1 where the programs disagree or a process failed.
    """
    arguments = _parse()
    results = []
    for isa in arguments.isa:
        for threads in arguments.threads:
            found = _run(arguments, threads, isa)
            if found is None:
                return 1
            for result in found:
                results.append({"threads": threads, "isa": isa, **result})
                print(_table(results[-1]), flush=True)
    if arguments.json:
        report = {"machine": platform.processor() or platform.machine(), "cpus": os.cpu_count(), "results": results}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 0


def _parse() -> argparse.Namespace:
    """Read the command line; without a garden file the synthetic scene stands in."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--scene", nargs="+", choices=SCENES, help="default: garden if its file is there, else synthetic"
    )
    parser.add_argument("--garden", type=Path, help=f"gsplat's test_garden.npz; default: {GARDEN}, here or one up")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--isa", nargs="+", choices=ISAS, default=["best"], help="kernels of ours to use")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    if arguments.garden is None:
        arguments.garden = next((path for up in (ROOT, ROOT.parent) if (path := up / GARDEN).exists()), None)
    arguments.scene = arguments.scene or ["garden" if arguments.garden else "synthetic"]
    if "garden" in arguments.scene and (arguments.garden is None or not arguments.garden.exists()):
        parser.error(f"the garden scene needs --garden, got {arguments.garden}")
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if wrong := [threads for threads in arguments.threads if not 1 <= threads <= cpus]:
        parser.error(f"--threads must be from 1 to the {cpus} processors that this process may use, got {wrong}")
    return arguments


def _run(arguments: argparse.Namespace, threads: int, isa: str) -> list[dict[str, Any]] | None:
    """Measure in a process of its own, confined to as many processors as threads; None where it failed."""
    command = ["-m", "benchmarks.measure", f"--threads={threads}", f"--repeats={arguments.repeats}"]
    command += [f"--garden={arguments.garden}"] if arguments.garden else []
    done = native.run_confined([*command, *arguments.scene], threads, JAXSPLAT_ISA="" if isa == "best" else isa)
    if done.returncode:
        return None
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _table(result: dict[str, Any]) -> str:
    """Lay one result out for reading."""
    width, height = result["size"]
    count = result["intersections"]
    gradient = max(value for key, value in result["differences"].items() if key.startswith("gradient"))
    lines = [
        f"\n{result['scene']}: {result['splats']} splats, {result['visible']} visible, {width}x{height}; "
        f"{result['threads']} thread(s), kernels: {result['isa']}",
        f"tile intersections: {count['ours']} of ours (exact), {count['baseline']} of the baseline's (boxes)",
        f"largest difference: picture {result['differences']['colors']:.1e}, gradients (relative) {gradient:.1e}",
        f"{'milliseconds, minimum (median)':32}{'ours':>20}{'scalar baseline':>20}{'times as fast':>20}",
    ]
    for stage, label in STAGES.items():
        s = result["stages"][stage]
        cells = [f"{s[who]['min_ms']:.1f} ({s[who]['median_ms']:.1f})" for who in ("ours", "baseline")]
        cells.append(f"{s['ratio_min']:.1f} ({s['ratio_median']:.1f})")
        lines.append(f"{label:32}" + "".join(f"{cell:>20}" for cell in cells))
    limit = result["limit"]
    lines.append(f"{limit['pairs'] / 1e6:.1f} million pixel-splat pairs after culling, billions of them a second:")
    for stage in ("forward", "backward"):
        reached, loop = (limit[stage][key] / 1e9 for key in ("reached", "of_the_loop"))
        lines.append(f"  {stage:10} {reached:.2f}, its inner loop alone {loop:.2f}: {reached / loop:.0%}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
