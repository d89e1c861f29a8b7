"""Compiles C++ for this machine, calls it on numpy arrays, and runs processes on few processors."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

XLA_FFI = Path(__file__).parents[1] / "xla_ffi"


def isa_flags(isa: str) -> list[str]:
    """Read from the build of the kernels which flags an instruction set takes: avx512, avx2 or baseline."""
    build = (XLA_FFI / "CMakeLists.txt").read_text(encoding="utf-8")
    flags = re.search(rf'kernels_{isa}\.cc PROPERTIES\s+COMPILE_OPTIONS "([^"]*)"', build)
    return flags[1].split(";") if flags else []


def compile_to(target: Path, sources: Sequence[Path], flags: Sequence[str]) -> None:
    """Compile C++ with the compiler of the environment variable CXX, or g++.

    Args:
      target: file to write.
      sources: C++ or object files.
      flags: of the compiler.

    Raises:
      RuntimeError: there is no compiler, or it fails.
    """
    compiler = os.environ.get("CXX") or shutil.which("g++") or "g++"
    command = [compiler, "-std=c++17", *flags, *map(str, sources), "-o", str(target)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise RuntimeError(f"the benchmarks need a C++ compiler with OpenMP: {compiler}: {error}") from error
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")


@functools.cache
def load(source: Path, *flags: str) -> ctypes.CDLL:
    """Compile a source into a temporary library and load it, once.

    Args:
      source: C++ file.
      *flags: of the compiler.

    Returns:
      The library.

    Raises:
      RuntimeError: there is no compiler, or it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "library.so"
        compile_to(target, [source], ["-shared", "-fPIC", *flags])
        return ctypes.CDLL(str(target))


def arguments(*values: Any) -> list[Any]:
    """Turn arrays into pointers, and integers into 64-bit ones."""
    return [_pointer(value) if isinstance(value, np.ndarray) else ctypes.c_int64(value) for value in values]


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    """Take the address of an array that the kernels can read as it is."""
    if array.dtype not in (np.float32, np.int32) or not array.flags.c_contiguous:
        raise TypeError(f"expected a contiguous float32 or int32 array, got {array.dtype} {array.shape}")
    return ctypes.c_void_p(array.ctypes.data)


def run_confined(arguments: Sequence[str], threads: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process that is confined to as many processors as threads.

    Args:
      arguments: of the interpreter.
      threads: number of threads, of JAX and of OpenMP.
      **environment: further environment variables.

    Returns:
      The finished process, with what it printed.
    """
    variables = {**os.environ, "NPROC": str(threads), "OMP_NUM_THREADS": str(threads), "JAX_PLATFORMS": "cpu"}
    variables.pop("XLA_FLAGS", None)
    # Idle OpenMP threads would go on spinning on the processors that another program needs.
    variables |= {"OMP_WAIT_POLICY": "passive", **environment}
    confine = getattr(os, "sched_setaffinity", None)
    return subprocess.run(
        [sys.executable, *arguments],
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=confine and (lambda: confine(0, sorted(os.sched_getaffinity(0))[:threads])),
    )
