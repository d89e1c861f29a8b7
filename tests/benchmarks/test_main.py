"""The benchmark command from end to end, at a tiny size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True)


def test_command_measures_both_programs_and_writes_the_figures(tmp_path: Path) -> None:
    report = tmp_path / "figures.json"
    done = _run("--scene", "tiny", "--threads", "1", "--repeats", "2", "--json", str(report))
    assert done.returncode == 0, done.stderr
    assert "backward" in done.stdout and "times as fast" in done.stdout
    (result,) = json.loads(report.read_text())["results"]
    assert (result["threads"], result["size"], result["splats"]) == (1, [128, 96], 2000)
    assert 0 < result["intersections"]["ours"] <= result["intersections"]["baseline"]
    assert max(result["differences"].values()) < 5e-3
    for stage in result["stages"].values():
        times = {program: stage[program]["min_ms"] for program in ("ours", "baseline")}
        assert min(times.values()) > 0
        assert stage["ratio_min"] == times["baseline"] / times["ours"]


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    done = _run("--threads", "1000")
    assert done.returncode == 2 and "got [1000]" in done.stderr
    done = _run("--scene", "garden", "--garden", str(tmp_path / "absent.npz"))
    assert done.returncode == 2 and "absent.npz" in done.stderr
