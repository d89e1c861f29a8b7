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
TARGETS = tuple(target for target in _ffi._TARGETS if target.startswith(_ffi._CUDA_FUNCTIONS))

# As the device rounds: no contraction, fused operations where they are written.
FLAGS = ("-std=c++17", "-g1", "-march=native", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra",
         "-Werror", "-Wno-unknown-pragmas", "-Wno-psabi")  # fmt: skip
SANITIZER = "-fsanitize=address,undefined"
KERNEL_FLAGS = {
    "plain": ("-O2",),
    "sanitized": ("-O1", SANITIZER, "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"),
    "races": ("-O2", "-fsanitize=thread"),
    "few at a time": ("-O2", "-DJAXSPLAT_ENTRIES_IN_FLIGHT=150"),
}

needs_emulator = pytest.mark.skipif(
    shutil.which("g++") is None or platform.machine() != "x86_64", reason="the emulator needs g++ on x86-64"
)


def build(kind: str, sources: Path = SOURCES) -> Path:
    """Compiles the kernels for the emulator, as far as they were not compiled from the same files before.

    Args:
      kind: "plain", "sanitized" (addresses and undefined behaviour), "races" (data races), or "few at a time" (images
        with more than a few entries in their lists are worked on some at a time, or one by one).
      sources: the folder with `cuda/`, `ffi/` and what they include.
    """
    kernels = (*KERNEL_FLAGS[kind], "-DJAXSPLAT_DEVICE", "-DJAXSPLAT_POISON", "-x", "c++")
    # Only the kernels: everything else is slow to sanitize, and the scheduler must not be.
    jobs = {path: kernels for path in sorted((sources / "cuda").glob("*.cu"))}
    for name in ("gaussians_3d", "gaussians_world", "meshes"):
        jobs[sources / f"ffi/rasterize_{name}.cc"] = ("-O0", "-DJAXSPLAT_CUDA", "-DJAXSPLAT_EMULATED")
    jobs[EMULATOR / "ask.cc"] = ("-O0",)
    jobs[EMULATOR / "emulator.cc"] = ("-O2", *((SANITIZER,) if kind == "sanitized" else ()))
    if kind == "races":
        jobs[EMULATOR / "races.cc"] = ("-O2",)
    headers = sorted([*sources.rglob("*.h"), *EMULATOR.rglob("*.h"), *EMULATOR.rglob("*.cuh")])
    shared = repr((FLAGS, jax.__version__)).encode() + b"".join(path.read_bytes() for path in headers)
    folder = Path(tempfile.gettempdir()) / f"jaxsplat-emulated-{os.getuid()}"
    folder.mkdir(exist_ok=True)

    def compile_one(job: tuple[Path, tuple[str, ...]]) -> Path:
        source, flags = job
        digest = hashlib.sha256(shared + repr(flags).encode() + source.read_bytes()).hexdigest()[:16]
        include = (f"-I{EMULATOR}", f"-I{sources}", "-isystem", jax.ffi.include_dir())
        return _make(folder / f"{source.stem}-{digest}.o", "g++", *FLAGS, *flags, *include, "-c", str(source))

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = [str(path) for path in pool.map(compile_one, jobs.items())]
    digest = hashlib.sha256(repr(objects).encode()).hexdigest()[:16]
    link = (SANITIZER,) if kind == "sanitized" else ()
    return _make(folder / f"{kind}-{digest}.so", "g++", "-shared", *link, *objects, "-ldl")


def _make(path: Path, *command: str) -> Path:
    """Runs a command that writes a file, unless the file is there; other processes may do the same."""
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=path.suffix, delete=False) as temporary:
            result = subprocess.run([*command, "-o", temporary.name], capture_output=True, text=True, check=False)
        assert result.returncode == 0, " ".join(command) + "\n" + result.stderr
        Path(temporary.name).replace(path)
    return path


def register(library: Path) -> ctypes.CDLL:
    """Makes the kernels of a library the ones that are called under `emulated()`."""
    _ffi.load()  # under its own names
    loaded = ctypes.CDLL(str(library))
    for target in TARGETS:
        handler = jax.ffi.pycapsule(getattr(loaded, f"jaxsplat_{target}"))
        jax.ffi.register_ffi_target(PREFIX + target, handler, platform="cpu")
    return loaded


@contextlib.contextmanager
def emulated() -> Iterator[None]:
    """What is traced here calls the emulated kernels in place of those for the CPU."""
    before, _ffi._PREFIX = _ffi._PREFIX, PREFIX
    try:
        yield
    finally:
        _ffi._PREFIX = before
