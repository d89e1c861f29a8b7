"""A training in a process of its own, and what it came to; those already on record are not repeated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxsplat.io.files import load_json, save_json


class Training(NamedTuple):
    """A training to be measured.

    Attributes:
      name: in the record and in the folder of results; slashes make folders.
      capture: folder.
      options: of `jaxsplat train`.
    """

    name: str
    capture: Path
    options: tuple[str, ...]


def measure(trainings: Sequence[Training], out: Path, record: Path) -> dict[str, dict[str, Any]]:
    """Train one after the other and write the figures down after each.

    Args:
      trainings: what to measure.
      out: folder for the results of each.
      record: JSON file; trainings that it holds with the same options are not repeated.

    Returns:
      Figures by name: those of metrics.json, wall-clock and processor seconds of the process, its peak memory in bytes.

    Raises:
      subprocess.CalledProcessError: where a training fails.
    """
    known: dict[str, Any] = load_json(record) if record.is_file() else {}
    for k, training in enumerate(trainings, 1):
        asked = {"options": list(training.options)}
        if asked.items() <= known.get(training.name, {}).items():
            continue
        print(f"[{k}/{len(trainings)}] {training.name}", file=sys.stderr, flush=True)
        known[training.name] = {**asked, **_measured(training, out / training.name)}
        save_json(record, known)
    return {training.name: known[training.name] for training in trainings}


def _measured(training: Training, out: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "jaxsplat", "train", str(training.capture), "--out", str(out), "--overwrite"]
    command += training.options
    began = time.monotonic()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    figures = json.loads((out / "metrics.json").read_text())
    return {
        **{key: figures[key] for key in ("psnr", "ssim", "splats")},
        "aligned_psnr": figures.get("aligned", {}).get("psnr"),
        "views": len(figures["views"]),
        "wall_seconds": time.monotonic() - began,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    }
