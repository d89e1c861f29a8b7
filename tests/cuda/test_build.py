"""Whether the CUDA module is built, where the tools of CUDA are there, broken, or missing. Nothing is compiled."""

from __future__ import annotations

import os
import shutil
import subprocess

import jax
import pytest

from tests.cuda import emulated

needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")

BROKEN_NVCC = "echo 'nvcc: no such thing' >&2; exit 1"
NO_CUB = """
for file in "$@"; do
  case "$file" in *.cu) grep -q cub/cub.cuh "$file" && {{ echo "cub/cub.cuh: No such file" >&2; exit 1; }} ;; esac
done
exec {nvcc} "$@"
"""


def configure(folder, nvcc, mode):
    """Configures a build with a GPU that is only said to be there, and with this `nvcc`."""
    tools = folder / "bin"
    tools.mkdir()
    for name, script in (("nvidia-smi", "echo 'GPU 0: none'"), ("nvcc", nvcc)):
        (tools / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    command = [
        "cmake", "-S", str(emulated.SOURCES), "-B", str(folder / "build"), f"-DJAXSPLAT_CUDA={mode}",
        f"-DJAXSPLAT_XLA_INCLUDE_DIR={jax.ffi.include_dir()}", "-DCMAKE_CUDA_ARCHITECTURES=90",
    ]  # fmt: skip
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "CUDACXX": str(tools / "nvcc")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@needs_cmake
@pytest.mark.parametrize(
    ("nvcc", "reason"),
    [
        pytest.param(BROKEN_NVCC, "there is no working nvcc", id="broken nvcc"),
        pytest.param(
            NO_CUB.format(nvcc=shutil.which("nvcc")), "nvcc cannot compile the headers of CUDA or of CUB",
            id="no CUB", marks=needs_nvcc,
        ),
    ],
)  # fmt: skip
def test_broken_tools_leave_the_cuda_module_out_or_end_the_build_where_it_must_be_there(tmp_path, nvcc, reason):
    for mode in ("auto", "on"):
        folder = tmp_path / mode
        folder.mkdir()
        result = configure(folder, nvcc, mode)
        if mode == "auto":
            assert result.returncode == 0, result.stderr
            (line,) = [line for line in result.stdout.splitlines() if "CUDA module" in line]
            assert f"No CUDA module: {reason}" in line
        else:
            assert result.returncode != 0
            assert f"JAXSPLAT_CUDA is on, but {reason}" in " ".join(result.stderr.split())


@needs_cmake
@needs_nvcc
def test_whole_tools_build_the_cuda_module(tmp_path):
    result = configure(tmp_path, f'exec {shutil.which("nvcc")} "$@"', "auto")
    assert result.returncode == 0 and "CUDA module for 90" in result.stdout, result.stdout + result.stderr
