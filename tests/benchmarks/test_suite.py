"""The other benchmarks: counts, exponents and tables against what is known, and the commands at a tiny size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import growth, instructions, loops, memory, native, profile_step, scenes, simd_limit, visible
from jaxsplat import losses, project_gaussians

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
    lines = profile_step.table(profile_step.times_of(events)).splitlines()[1:]
    assert [line.split() for line in lines] == [["fusion", "0.60", "60%"], ["call", "0.40", "40%"]]


def test_stages_are_measured_and_written(tmp_path: Path) -> None:
    report = tmp_path / "stages.json"
    printed = _run("benchmarks.stages", "--quick", "--threads", "1", "--json", str(report))
    assert "whole step" in printed
    step, raster, views = json.loads(report.read_text())
    assert {"projection", "Adam", "whole step"} < set(step["stages"]) and 0 < step["outside_kernels"] < 1
    assert "whole step" not in raster["stages"] and "views, with gradient" in views["stages"]
    assert min(t["min_ms"] for result in (step, raster, views) for t in result["stages"].values()) > 0


def test_rooms_are_out_of_sight_of_each_other() -> None:
    room = scenes.synthetic(50, 64, 48)
    seen = (scenes.project(visible.rooms(3, room)).radii > 0).all(1)
    assert seen[:50].sum() > 30 and not seen[50:].any()


def test_steps_of_splats_in_sight_are_timed_in_both_orders_of_the_rows() -> None:
    printed = _run("benchmarks.visible", "--rooms", "3", "--splats", "50", "--width", "32", "--height", "24")
    head, _, *lines = printed.splitlines()
    assert [line.split(" | ")[0] for line in lines] == ["| neighbours", "| shuffled"]
    assert all(float(cell) > 0 for line in lines for cell in line.strip("| ").split(" | ")[2:])
    assert head.count("|") == lines[0].count("|")


def test_growth_draws_a_plot(tmp_path: Path) -> None:
    assert "splats: time grows as the power" in _run("benchmarks.growth", "--quick", "--out", str(tmp_path))
    assert (tmp_path / "growth.png").stat().st_size > 5000


def test_profile_names_the_kernels_and_leaves_a_trace(tmp_path: Path) -> None:
    small = ["--splats", "500", "--width", "32", "--height", "24"]
    assert "ffi_call" in _run("benchmarks.profile_step", "--out", str(tmp_path), *small)
    assert list(tmp_path.rglob("perfetto_trace.json.gz"))


def test_the_projection_in_cpp_has_the_librarys_gradient() -> None:
    scene = scenes.synthetic(300, 96, 64)
    scene = scene._replace(quats=scene.quats / np.linalg.norm(scene.quats, axis=1, keepdims=True))

    def total(means: jax.Array, quats: jax.Array, scales: jax.Array) -> jax.Array:
        out = project_gaussians(means, quats, scales, scene.viewmat[None], scene.K[None], width=96, height=64)
        return out.means2d.sum() + out.conics.sum() + out.depths.sum()

    gradients = jax.grad(total, (0, 1, 2))(*map(jnp.asarray, (scene.means, scene.quats, scene.scales)))
    visible = np.asarray(scenes.project(scene).box_radii).all(axis=1)
    assert visible.sum() > 100
    found = loops.projection_gradient(scene)
    # Of unit length: the library's gradient has no part along the quaternion.
    along = np.sum(found.quats * scene.quats, axis=1, keepdims=True) * scene.quats
    for ours, truth in zip((found.means, found.quats - along, found.scales), gradients, strict=True):
        np.testing.assert_allclose(ours[visible], np.asarray(truth)[visible], rtol=2e-3, atol=1e-4)


def test_ssim_in_cpp_has_the_librarys_value_and_gradient() -> None:
    x, y = np.random.default_rng(0).random((2, 20, 23, 3), np.float32)
    value, gradient = jax.value_and_grad(losses.ssim)(jnp.asarray(x), jnp.asarray(y))
    found, v_x = loops.ssim_gradient(x, y)
    assert found == pytest.approx(float(value), rel=1e-5)
    np.testing.assert_allclose(v_x, gradient, rtol=1e-3, atol=1e-7)


def test_the_share_outside_the_kernels_is_that_of_all_other_operations() -> None:
    times = profile_step.times_of(
        [{"ph": "X", "dur": d, "args": {"hlo_op": n}} for n, d in (("ffi_call.3", 3), ("f", 1))]
    )
    assert profile_step.outside_kernels(times) == pytest.approx(0.25)


@pytest.mark.skipif(not os.access(memory.RESET, os.W_OK), reason="the system does not let the peak start anew")
def test_memory_of_a_call_is_what_it_touches() -> None:
    def touch() -> None:
        np.ones(32 << 20)

    assert 240 << 20 < memory.peak_beyond(touch) < 300 << 20
