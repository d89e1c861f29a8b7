"""Counts the instructions of the kernels and compares them with those on record: a gate that noise does not open.

`python -m benchmarks.instructions` fails where a kernel got slower; `--update` puts what it finds on record.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks import native

SOURCE = Path(__file__).with_suffix(".cc")
RECORD = Path(__file__).with_suffix(".json")
SCENES = ("sparse", "dense", "channels16")
STAGES = ("intersect", "forward", "backward", "both")
"""`both` are the two passes as a training step calls them: the second takes the lists of the first."""
FLAGS = ("-O3", "-ffp-contract=off", "-w", "-pthread", f"-I{native.XLA_FFI}")

TOLERANCE = 0.03
"""Growth that is let pass, as a fraction."""

OTHER_COMPILER_TOLERANCE = 0.15
"""The same where another compiler made the counts on record."""


def main() -> int:
    """Run the gate.

    Returns:
      The exit status: 1 where a count grew, or with `--require` where counting is not possible.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--update", action="store_true", help="put the counts on record")
    parser.add_argument("--require", action="store_true", help="fail where valgrind is missing")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("instruction counts: NOT CHECKED, valgrind is not installed")
        return int(arguments.require)
    found = {"compiler": _compiler(), "counts": _count_all()}
    if arguments.update:
        RECORD.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        return 0
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    tolerance = TOLERANCE
    if record["compiler"] != found["compiler"]:
        tolerance = OTHER_COMPILER_TOLERANCE
        print(f"the counts on record are of {record['compiler']}, these of {found['compiler']}")
    for name, count in found["counts"].items():
        change = count / record["counts"][name] - 1 if name in record["counts"] else float("nan")
        print(f"{name:24}{count:14,}{change:+9.2%}")
    wrong = regressions(found["counts"], record["counts"], tolerance)
    for line in wrong:
        print(f"regression: {line}")
    return int(bool(wrong))


def regressions(found: dict[str, int], record: dict[str, int], tolerance: float) -> list[str]:
    """Compare counts with those on record.

    Args:
      found: instructions by kernel.
      record: the same, on record.
      tolerance: growth that is let pass, as a fraction.

    Returns:
      What is wrong, one line for each kernel; those that are missing on either side too.
    """
    lines = [f"{name} is only in one of the two" for name in sorted(found.keys() ^ record.keys())]
    for name in sorted(found.keys() & record.keys()):
        change = found[name] / record[name] - 1
        if change > tolerance:
            lines.append(f"{name} takes {change:+.1%} instructions ({record[name]:,} before, {found[name]:,} now)")
    return lines


def _count_all() -> dict[str, int]:
    """Compile the kernels as the package does, and count each stage on each scene."""
    cpu = native.XLA_FFI / "cpu"
    with tempfile.TemporaryDirectory() as name:
        folder, objects = Path(name), []
        for source in sorted(cpu.glob("*.cc")):
            isa = source.stem.rpartition("_")[2]
            objects.append(folder / f"{source.stem}.o")
            native.compile_to(objects[-1], [source], ["-c", *FLAGS, *native.isa_flags(isa)])
        program = folder / "instructions"
        native.compile_to(program, [SOURCE, *objects], FLAGS)
        runs = list(itertools.product(SCENES, STAGES, (1, 3)))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            totals = dict(zip(runs, pool.map(lambda run: _instructions(program, *run), runs), strict=True))
        return {
            f"{scene} {stage}": totals[scene, stage, 3] - totals[scene, stage, 1]
            for scene, stage in itertools.product(SCENES, STAGES)
        }


def _instructions(program: Path, scene: str, stage: str, repeats: int) -> int:
    """Count the instructions of one run. Valgrind knows AVX2, but not AVX-512."""
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", str(program), scene, stage, str(repeats)],
        env={**os.environ, "JAXSPLAT_ISA": "avx2"},
        capture_output=True,
        text=True,
    )
    total = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or total is None:
        raise RuntimeError(f"valgrind failed:\n{done.stderr}")
    return int(total[1])


def _compiler() -> str:
    compiler = os.environ.get("CXX") or "g++"
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
