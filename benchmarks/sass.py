"""What the CUDA kernels cost, read off their machine code where there is no GPU: a gate against spills and growth.

`python -m benchmarks.sass` compiles each `.cu` file with nvcc and fails where a kernel spills, or grew beyond the
margin over the table on record; `--update` puts what it finds on record. Without nvcc, nvdisasm or cuobjdump (of the
toolkit, or of the packages nvidia-cuda-nvdisasm and nvidia-cuda-cuobjdump) it says so and checks nothing.

The figures bound nothing in time: there is no model of caches, conflicts or divergence.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import util
from pathlib import Path
from typing import Any

from benchmarks import native

RECORD = Path(__file__).with_suffix(".json")
ARCHITECTURES = (80, 90, 120)
FILES = tuple(sorted(path.stem for path in (native.XLA_FFI / "cuda").glob("*.cu") if path.stem != "device_sort"))
"""Not the algorithms of CUB, which are not ours."""

FLAGS = ("-std=c++17", "-O3", "-fmad=false", "-DJAXSPLAT_DEVICE", f"-I{native.XLA_FFI}", "-cubin")
"""Those of the build."""

MARGIN = {"registers": 4, "loop": 4}
"""Growth that is let pass: registers, and instructions of the longest innermost loop."""

THREADS = 256

LIMITS = {80: (164, 64, 32), 90: (228, 64, 32), 120: (100, 48, 24)}
"""Shared memory in KiB, warps and blocks of a multiprocessor, by architecture (CUDA C++ Programming Guide)."""


def main() -> int:
    """Run the gate.

    Returns:
      The exit status: 1 where a kernel spills or grew.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sass", description=__doc__)
    parser.add_argument("--update", action="store_true", help="put the table on record")
    arguments = parser.parse_args()
    missing = [tool for tool in ("nvcc", "nvdisasm", "cuobjdump") if _tool(tool) is None]
    if missing:
        print(f"CUDA kernels: NOT CHECKED, there is no {', '.join(missing)}")
        return 0
    found = {f"sm_{arch} {name}": cost for arch, name, cost in _all_costs()}
    for name, cost in found.items():
        print(f"{name:60} {' '.join(f'{key} {value}' for key, value in cost.items())}")
    if arguments.update:
        RECORD.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        return 0
    if not RECORD.exists():
        print("nothing is on record; --update writes it")
        return 1
    wrong = regressions(found, json.loads(RECORD.read_text(encoding="utf-8")))
    print("\n".join(wrong) or "as on record")
    return int(bool(wrong))


def regressions(found: dict[str, dict[str, Any]], record: dict[str, dict[str, Any]]) -> list[str]:
    """What spills, grew beyond the margin, or is not on record.

    Args:
      found: cost of each kernel.
      record: the same as it was.
    """
    wrong = [f"{name}: spills {cost['spilled']} bytes" for name, cost in found.items() if cost["spilled"]]
    for name, cost in found.items():
        if name not in record:
            wrong.append(f"{name}: not on record; add it by --update")
            continue
        for key, margin in MARGIN.items():
            if cost[key] > record[name][key] + margin:
                wrong.append(f"{name}: {key} {cost[key]}, on record {record[name][key]}")
    return wrong


def occupancy(arch: int, registers: int, shared: int) -> float:
    """Share of a multiprocessor's warps that run at once, for blocks of THREADS threads.

    Args:
      arch: compute capability, 10 times.
      registers: of a thread.
      shared: bytes of a block.
    """
    kib, warps, blocks = LIMITS[arch]
    of_block = THREADS // 32
    by_registers = 65536 // 4 // ((registers * 32 + 255) // 256 * 256) * 4 // of_block if registers else blocks
    # Each block takes 1 KiB more for the system.
    by_shared = kib * 1024 // ((shared + 1024 + 127) // 128 * 128)
    return min(by_registers, by_shared, warps // of_block, blocks) * of_block / warps


def _tool(name: str) -> str | None:
    path = shutil.which(name)
    spec = util.find_spec("nvidia") if path is None else None
    for folder in [] if spec is None else spec.submodule_search_locations or []:
        path = path or next((str(p) for p in Path(folder).rglob(name) if os.access(p, os.X_OK)), None)
    return path


def _run(tool: str, *arguments: str) -> str:
    return subprocess.run([str(_tool(tool)), *arguments], capture_output=True, text=True, check=True).stdout


def _all_costs() -> Iterator[tuple[int, str, dict[str, Any]]]:
    jobs = [(arch, file) for arch in ARCHITECTURES for file in FILES]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for (arch, _), costs in zip(jobs, pool.map(lambda job: _costs(Path(folder), *job), jobs), strict=True):
            for name, cost in sorted(costs.items()):
                yield arch, name, cost


def _costs(folder: Path, arch: int, file: str) -> dict[str, dict[str, Any]]:
    """Cost of each kernel of one file."""
    cubin = str(folder / f"{file}.{arch}.cubin")
    _run("nvcc", *FLAGS, f"-arch=sm_{arch}", "-o", cubin, str(native.XLA_FFI / "cuda" / f"{file}.cu"))
    loops = dict(_longest_loops(_run("nvdisasm", "-c", cubin)))
    found = {}
    pattern = r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)"
    for name, registers, stack, shared, local in re.findall(pattern, _run("cuobjdump", "-res-usage", cubin)):
        found[_readable(name)] = {
            "registers": int(registers),
            "spilled": int(stack) + int(local),
            "shared": int(shared),
            "occupancy": round(occupancy(arch, int(registers), int(shared)), 3),
            "loop": loops.get(name, 0),
        }
    return found


def _longest_loops(text: str) -> Iterator[tuple[str, int]]:
    """Instructions of the longest innermost loop of each kernel: a branch back, with no other one within."""
    for section in re.split(r"\.section\s+\.text\.", text)[1:]:
        name = re.match(r"[^,\s]+", section)
        lines = re.findall(r"^(\.L_\S+):|/\*([0-9a-f]{4,})\*/\s+(.*?);", section, re.MULTILINE)
        labels: dict[str, int] = {}
        loops: list[tuple[int, int]] = []
        at = 0
        for label, address, instruction in lines:
            if label:
                labels[label] = at
            elif address:
                at += 1
                back = re.search(r"\bBRA\b.*?`\((\.L_\S+)\)", instruction)
                if back and labels.get(back[1], at) < at - 1:
                    loops.append((labels[back[1]], at))
        inner = [a for a in loops if not any(b != a and b[0] >= a[0] and b[1] <= a[1] for b in loops)]
        yield (name[0] if name else ""), max((end - begin for begin, end in inner), default=0)


def _readable(name: str) -> str:
    text = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout
    text = re.sub(r"\((?:anonymous namespace|int|bool)\)(?:::)?", "", text).split("(")[0]
    return text.replace("void ", "").replace("jaxsplat::cuda::", "").strip()


if __name__ == "__main__":
    sys.exit(main())
