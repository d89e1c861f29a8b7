"""The other benchmarks: counts, exponents and tables against what is known, and the commands at a tiny size."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import growth, instructions, native, profile_step, scenes, simd_limit

ROOT = Path(__file__).parents[2]


def _run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_more_instructions_are_a_regression_and_fewer_or_nearly_as_many_are_not() -> None:
    record = {"a": 1000, "b": 1000, "c": 1000}
    assert instructions.regressions({"a": 1029, "b": 500, "c": 1000}, record, 0.03) == []
    (line,) = instructions.regressions({"a": 1031, "b": 1000, "c": 1000}, record, 0.03)
    assert line.startswith("a takes +3.1%")
    assert len(instructions.regressions({"a": 1000, "b": 1000, "d": 1}, record, 0.03)) == 2


def test_counts_of_every_kernel_are_on_record() -> None:
    record = json.loads(instructions.RECORD.read_text())["counts"]
    assert set(record) == {f"{scene} {stage}" for scene in instructions.SCENES for stage in instructions.STAGES}
    assert min(record.values()) > 1000


def test_flags_of_the_instruction_sets_are_found_in_the_build() -> None:
    assert "-mavx2" in native.isa_flags("avx2") and "-mavx512f" in native.isa_flags("avx512")
    assert native.isa_flags("baseline") == []


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_exponent_of_a_power_law_is_its_power(power: float) -> None:
    sizes = np.array([10.0, 100.0, 1000.0])
    assert growth.exponent(sizes.tolist(), (3 * sizes**power).tolist()) == pytest.approx(power)


def test_pairs_are_those_of_the_blocks_that_a_splat_touches_until_they_end() -> None:
    """A round splat of half a pixel in the middle of one 4x4 block of 32x16 pixels, then a wall of opaque ones."""
    one = {"means2d": [[6.0, 6.0]], "conics": [[4.0, 0.0, 4.0]], "opacities": [0.5]}
    wall = {"means2d": [[8.0, 8.0]] * 6, "conics": [[1e-6, 0.0, 1e-6]] * 6, "opacities": [0.95] * 6}

    def pairs(splats: dict[str, list], ids: list[int], offsets: list[int]) -> int:
        n = len(splats["opacities"])
        arrays = {name: np.asarray(values, np.float32) for name, values in splats.items()}
        radii, colors = np.ones((n, 2), np.int32), np.zeros((n, 3), np.float32)
        screen = scenes.Screen(
            **arrays, depths=np.ones(n, np.float32), radii=radii, box_radii=radii, colors=colors, width=32, height=16
        )
        return simd_limit.measure(screen, np.asarray(ids, np.int32), np.asarray(offsets, np.int32), 1).pairs

    assert pairs(one, [0], [0, 1, 1]) == 16
    # Transmittance 0.05^4 is below 1e-4: four layers are composited, the rest never looked at.
    assert pairs(wall, list(range(6)), [0, 6, 6]) == 4 * 256


def test_time_of_operations_is_summed_and_other_events_are_not() -> None:
    events = [
        {"ph": "X", "dur": 3000, "args": {"hlo_op": "fusion"}},
        {"ph": "X", "dur": 1000, "args": {"hlo_op": "call"}},
        {"ph": "X", "dur": 1000, "args": {"hlo_op": "call"}},
        {"ph": "X", "dur": 9000, "name": "python"},
        {"ph": "M", "args": {"hlo_op": "fusion"}},
    ]
    lines = profile_step.table(events).splitlines()[1:]
    assert [line.split() for line in lines] == [["fusion", "0.60", "60%"], ["call", "0.40", "40%"]]


def test_stages_are_measured_and_written(tmp_path: Path) -> None:
    report = tmp_path / "stages.json"
    printed = _run("benchmarks.stages", "--quick", "--threads", "1", "--json", str(report))
    assert "whole step" in printed
    step, raster, views = json.loads(report.read_text())
    assert {"projection", "Adam", "whole step"} < set(step["stages"]) and 0 < step["outside_kernels"] < 1
    assert "whole step" not in raster["stages"] and "views, with gradient" in views["stages"]
    assert min(t["min_ms"] for result in (step, raster, views) for t in result["stages"].values()) > 0


def test_growth_draws_a_plot(tmp_path: Path) -> None:
    assert "splats: time grows as the power" in _run("benchmarks.growth", "--quick", "--out", str(tmp_path))
    assert (tmp_path / "growth.png").stat().st_size > 5000


def test_profile_names_the_kernels_and_leaves_a_trace(tmp_path: Path) -> None:
    small = ["--splats", "500", "--width", "32", "--height", "24"]
    assert "ffi_call" in _run("benchmarks.profile_step", "--out", str(tmp_path), *small)
    assert list(tmp_path.rglob("perfetto_trace.json.gz"))
