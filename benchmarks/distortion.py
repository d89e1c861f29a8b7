"""Trainings through the lens and on pictures made straight: `python -m benchmarks.distortion --out RESULTS`.

Both are judged by the held-out photographs as they were taken: the scene from straight pictures is shown through the
lens too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.trainings import Training, measure
from jaxsplat.data import load_capture, make_demo_capture
from jaxsplat.data.capture import Capture
from jaxsplat.io.splats import load_splats
from jaxsplat.train import evaluate
from jaxsplat.train.run import SPLATS

BARREL = (-0.4, 0.1, 0.0, 0.0)
"""k1, k2, p1, p2 of the rendered capture: in a corner of its pictures, 21% nearer to the middle than without."""

WAYS = {"lens": "--no-undistort", "straight": "--undistort"}
HEAD = ("capture", "splats", "through the lens: PSNR (SSIM)", "straight pictures", "difference", "processor seconds")


def main() -> int:
    """Train every capture both ways, with the same settings, and print a table.

    Returns:
      The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distortion", description=__doc__)
    parser.add_argument("captures", nargs="*", type=Path, help="default: the demo's scene through a barrel lens")
    parser.add_argument("--out", type=Path, required=True, help="folder of the results and of distortion.json")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--cap", type=int, default=20_000, help="most splats")
    parser.add_argument("--points", type=int, default=10_000, help="first splats of captures without points")
    parser.add_argument("--downscale", type=int, default=1)
    arguments = parser.parse_args()
    captures = arguments.captures or [barrel_capture(arguments.out / "barrel")]
    settings = ("--steps", arguments.steps, "--initial-points", arguments.points, "--cap", arguments.cap)
    settings = (*map(str, settings), "--downscale", str(arguments.downscale))
    trainings = [
        Training(f"{path.name}/{way}", path, (*settings, option)) for path in captures for way, option in WAYS.items()
    ]
    figures = measure(trainings, arguments.out, arguments.out / "distortion.json")
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for path in captures:
        capture = load_capture(path, downscale=arguments.downscale, undistort=False)
        print(row(capture, path.name, {way: arguments.out / path.name / way for way in WAYS}, figures))
    return 0


def barrel_capture(folder: Path, *, size: int = 128, views: int = 40) -> Path:
    """Make the demo's capture as a strong barrel lens takes it, unless it is there."""
    if not folder.exists():
        make_demo_capture(folder, size=size, views=views, distortion=BARREL)
    return folder


def row(capture: Capture, name: str, results: dict[str, Path], figures: dict[str, dict[str, Any]]) -> str:
    """Judge both results of a capture by its held-out photographs, and lay the figures out."""
    judged = {way: evaluate(load_splats(folder / SPLATS), capture) for way, folder in results.items()}
    runs = [figures[f"{name}/{way}"] for way in WAYS]
    cameras = capture.cameras
    cells = (
        f"{name}, {cameras.width}x{cameras.height}, {len(judged['lens'].views)} of {len(cameras.names)} held out",
        ", ".join(f"{run['splats']:,}" for run in runs),
        *(f"{judged[way].psnr:.2f} dB ({judged[way].ssim:.3f})" for way in WAYS),
        f"{judged['lens'].psnr - judged['straight'].psnr:+.2f}",
        ", ".join(f"{run['processor_seconds']:.0f}" for run in runs),
    )
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(main())
