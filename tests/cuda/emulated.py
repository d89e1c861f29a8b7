"""The CUDA kernels, compiled as C++ for the emulator and called by XLA on the CPU under names of their own."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import pytest

from jaxsplat import _ffi

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "xla_ffi"
EMULATOR = Path(__file__).parent / "emulator"
PREFIX = "jaxsplat.emulated."
TARGETS = ("rasterize_gaussians_3d_forward", "rasterize_gaussians_3d_backward", "intersect_tiles")

# As the device rounds: no contraction, fused operations where they are written.
FLAGS = ("-std=c++17", "-g1", "-march=native", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra",
         "-Werror", "-Wno-unknown-pragmas", "-Wno-psabi")  # fmt: skip
SANITIZER = "-fsanitize=address,undefined"
KERNEL_FLAGS = {
    "plain": ("-O2",),
    "sanitized": ("-O1", SANITIZER, "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"),
    "races": ("-O2", "-fsanitize=thread"),
}

needs_emulator = pytest.mark.skipif(
    shutil.which("g++") is None or platform.machine() != "x86_64", reason="the emulator needs g++ on x86-64"
)


def build(kind: str, sources: Path = SOURCES) -> Path:
    """Compiles the kernels for the emulator, or takes what was compiled from the same files before.

    Args:
      kind: "plain", "sanitized" (addresses and undefined behaviour) or "races" (data races).
      sources: the folder with `cuda/`, `ffi/` and what they include.
    """
    digest = hashlib.sha256(repr((FLAGS, KERNEL_FLAGS[kind], jax.__version__)).encode())
    for path in sorted([*sources.rglob("*.h"), *sources.rglob("*.cu"), *sources.rglob("*.cc"), *EMULATOR.rglob("*.*")]):
        digest.update(path.name.encode() + path.read_bytes())
    folder = Path(tempfile.gettempdir()) / f"jaxsplat-emulated-{os.getuid()}"
    library = folder / f"{kind}-{digest.hexdigest()[:16]}.so"
    if not library.exists():
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            built = _compile(kind, sources, Path(work))
            built.replace(library)
    return library


def _compile(kind: str, sources: Path, work: Path) -> Path:
    include = [f"-I{EMULATOR}", f"-I{sources}", "-isystem", jax.ffi.include_dir()]
    kernels = [*KERNEL_FLAGS[kind], "-DJAXSPLAT_DEVICE", "-x", "c++"]
    # Only the kernels: everything else is slow to sanitize, and the scheduler must not be.
    jobs = {path: kernels for path in sorted((sources / "cuda").glob("*.cu"))}
    jobs[sources / "ffi/rasterize_gaussians_3d.cc"] = ["-O0", "-DJAXSPLAT_CUDA", "-DJAXSPLAT_EMULATED"]
    jobs[EMULATOR / "emulator.cc"] = ["-O2", *([SANITIZER] if kind == "sanitized" else [])]
    if kind == "races":
        jobs[EMULATOR / "races.cc"] = ["-O2"]

    def compile_one(job: tuple[Path, list[str]]) -> str:
        source, flags = job
        to = work / f"{source.stem}.{source.parent.name}.o"
        _run(["g++", *FLAGS, *flags, *include, "-c", str(source), "-o", str(to)])
        return str(to)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = list(pool.map(compile_one, jobs.items()))
    library = work / "emulated.so"
    link = [SANITIZER] if kind == "sanitized" else []
    _run(["g++", "-shared", *link, *objects, "-ldl", "-o", str(library)])
    return library


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, " ".join(command) + "\n" + result.stderr


def register(library: Path) -> None:
    """Makes the kernels of a library the ones that are called under `emulated()`."""
    loaded = ctypes.CDLL(str(library))
    for target in TARGETS:
        handler = jax.ffi.pycapsule(getattr(loaded, f"jaxsplat_{target}"))
        jax.ffi.register_ffi_target(PREFIX + target, handler, platform="cpu")


@contextlib.contextmanager
def emulated() -> Iterator[None]:
    """What is traced here calls the emulated kernels in place of those for the CPU."""
    before, _ffi._PREFIX = _ffi._PREFIX, PREFIX
    try:
        yield
    finally:
        _ffi._PREFIX = before
