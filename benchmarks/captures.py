"""Strategies against a fixed set of splats on real captures: `python -m benchmarks.captures FOLDER --out RESULTS`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trainings import Training, measure
from jaxsplat.data import load_cameras
from jaxsplat.data.capture import Cameras
from jaxsplat.io.files import InputError

STRATEGIES = ("fixed", "default", "mcmc")
FEW = 20
"""A capture of fewer pictures is trained several times, with others held out: one or two tell too little."""
FOLDS = 4
FEW_OPTIONS = ("--default.refine-start", "0.1", "--default.grow-scale", "0.05")
"""Of a capture of fewer pictures, found by trials on banana: splats are split later, and only the largest."""
OPTIONS = {"sceaux_castle": ("--random-background", "--rates.means", "4e-4", "--mcmc.growth", "0.12")}
"""Of single captures, the same for every strategy, found by trials."""
NEVER_HELD_OUT = {"sceaux_castle": ("100_7100.JPG",)}
"""It shows a tree that no other picture shows."""
HEAD = (
    "capture",
    "strategy",
    "PSNR, dB",
    "over fixed",
    "SSIM",
    "splats",
    "seconds",
    "processor seconds",
    "memory, GiB",
)


def main() -> int:
    """Train every capture of a folder with each strategy, with the same settings, and print a table.

    Returns:
      The exit status: 1 where the folder holds no capture.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.captures", description=__doc__)
    parser.add_argument("folder", type=Path, help="every capture below it is trained")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results and of captures.json")
    parser.add_argument("--only", nargs="+", help="names of captures; default: all")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--points", type=int, default=10_000, help="first splats of captures without points")
    parser.add_argument("--cap", type=int, default=30_000, help="most splats")
    parser.add_argument("--longest", type=int, default=500, help="pictures are halved until no side is longer")
    arguments = parser.parse_args()
    found = captures(arguments.folder, arguments.longest)
    chosen = {path: case for path, case in found.items() if not arguments.only or path.name in arguments.only}
    if not chosen:
        parser.error(f"{arguments.folder}: holds no capture" + (f" of {arguments.only}" if arguments.only else ""))
    settings = ("--steps", arguments.steps, "--initial-points", arguments.points, "--cap", arguments.cap, "--undistort")
    trainings = {
        (path, strategy): [
            Training(
                f"{path.name}/{strategy}/{fold}",
                path,
                (*map(str, settings), "--downscale", str(downscale), "--strategy", strategy, *own),
            )
            for fold, own in enumerate(own_options(path, cameras))
        ]
        for path, (downscale, cameras) in chosen.items()
        for strategy in STRATEGIES
    }
    found = measure([t for group in trainings.values() for t in group], arguments.out, arguments.out / "captures.json")
    figures = {
        f"{path.name}/{strategy}": mean([found[training.name] for training in group])
        for (path, strategy), group in trainings.items()
    }
    print("\n".join(rows(chosen, figures)))
    return 0


def captures(folder: Path, longest: int) -> dict[Path, tuple[int, Cameras]]:
    """Find the captures right below a folder, and by how much their pictures are to be shrunk.

    Args:
      folder: to look in.
      longest: side of a picture in pixels; a power of two shrinks larger ones.

    Returns:
      For each capture the factor and the cameras of pictures of that size.
    """
    found = {}
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        downscale = 1
        try:
            cameras = load_cameras(path)
            while max(cameras.width, cameras.height) > longest:
                downscale *= 2
                cameras = load_cameras(path, downscale=downscale)
        except InputError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        found[path] = (downscale, cameras)
    return found


def own_options(path: Path, cameras: Cameras) -> list[tuple[str, ...]]:
    """What a capture is trained with beside the settings of all, the same for every strategy.

    Args:
      path: of the capture.
      cameras: its cameras.

    Returns:
      Options of each of its trainings: one, which leaves it to the files or to the trainer what is held out; for few
      pictures one for each fold, which holds out every eighth from another on.
    """
    own = OPTIONS.get(path.name, ())
    if len(cameras.names) >= FEW:
        return [own]
    names = [name for name in cameras.names if name not in NEVER_HELD_OUT.get(path.name, ())]
    folds = [names[first::8] for first in range(0, 8, 8 // FOLDS)]
    return [(*FEW_OPTIONS, *own, "--held-out", *fold) for fold in folds if fold]


def mean(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum up the trainings of a capture.

    Args:
      figures: of each training.

    Returns:
      Means over all held-out views of PSNR and SSIM, and over the trainings of the rest; the number of views.
    """
    views = [run["views"] for run in figures]
    weights = {"psnr": views, "ssim": views}
    means = {
        key: float(np.average([run[key] for run in figures], weights=weights.get(key)))
        for key in ("psnr", "ssim", "splats", "wall_seconds", "processor_seconds", "peak_bytes")
    }
    return {**means, "views": sum(views)}


def rows(chosen: dict[Path, tuple[int, Cameras]], figures: dict[str, dict[str, Any]]) -> list[str]:
    """Lay the figures out as a markdown table, with the gain of each strategy over the fixed set."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for path, (_, cameras) in chosen.items():
        base = figures[f"{path.name}/fixed"]["psnr"]
        for strategy in STRATEGIES:
            run = figures[f"{path.name}/{strategy}"]
            name = f"{path.name}, {cameras.width}x{cameras.height}, {run['views']} held out"
            cells = (
                name if strategy == STRATEGIES[0] else "", strategy, f"{run['psnr']:.2f}",
                "" if strategy == "fixed" else f"{run['psnr'] - base:+.2f}", f"{run['ssim']:.3f}",
                f"{run['splats']:,.0f}", f"{run['wall_seconds']:.0f}", f"{run['processor_seconds']:.0f}",
                f"{run['peak_bytes'] / 2**30:.2f}",
            )  # fmt: skip
            lines.append("| " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
