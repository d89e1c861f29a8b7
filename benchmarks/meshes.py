"""The mesh rasterizer against the obvious loop over all faces and pixels: `python -m benchmarks.meshes --help`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import native

SOURCE = Path(__file__).with_suffix(".cc")
ROOT = Path(__file__).parents[1]
COW = "shared/data/meshes/cow_mesh/cow.obj"
SIZE = 256
SETTINGS = {1: 0.0, 8: 1e-4 * (SIZE / 2) ** 2}
"""Faces per pixel, and the squared blur radius in pixels."""
GROWTH = {
    "faces": [(faces, 1024) for faces in (62_500, 250_000, 1_000_000)],
    "pixels": [(20_000, size) for size in (512, 1024, 2048)],
    "both": [(faces, size) for faces, size in ((62_500, 512), (250_000, 1024), (1_000_000, 2048))],
}
"""Faces and sides of pictures, of which one grows fourfold from step to step, or both do."""
SAME = 0.998
"""Share of the slots in which both programs must find the same face."""


class Case(NamedTuple):
    """A mesh on the screen, [F, 3, 3], and the side of its square picture."""

    name: str
    face_verts: NDArray[np.float32]
    size: int


def cow(path: Path) -> Case:
    """The cow, as seen from 2.7 units in a field of view of 60 degrees."""
    from jaxsplat.io import load_mesh

    mesh = load_mesh(path)
    depth = mesh.verts[:, 2] + 2.7
    focal = SIZE / 2 * 3**0.5
    screen = np.stack([mesh.verts[:, 0] / depth * focal, -mesh.verts[:, 1] / depth * focal, depth], -1)
    screen[:, :2] += SIZE / 2
    return Case("cow", screen[mesh.faces].astype(np.float32), SIZE)


def landscape(faces: int, size: int, name: str) -> Case:
    """A hilly surface that fills the picture, of about so many faces."""
    side = round((faces / 2) ** 0.5) + 1
    y, x = np.meshgrid(np.linspace(0, 1, side), np.linspace(0, 1, side), indexing="ij")
    # Moved a little: on edges through pixel centres the obvious loop leaves holes.
    verts = np.stack([x * size + 0.137, y * size, 3 + 0.4 * np.sin(9 * x) * np.cos(7 * y)], -1).reshape(-1, 3)
    index = np.arange(side * side).reshape(side, side)
    a, b, c, d = index[:-1, :-1], index[:-1, 1:], index[1:, 1:], index[1:, :-1]
    triangles = np.concatenate([np.stack(t, -1).reshape(-1, 3) for t in ((a, b, d), (c, d, b))])
    return Case(name, verts[triangles].astype(np.float32), size)


def brute_force(case: Case, slots: int, blur: float, threads: int) -> Callable[[], tuple[NDArray[Any], ...]]:
    """The obvious loop, compiled for this machine; each call fills and returns the same arrays."""
    library = native.load(SOURCE, "-O3", "-fopenmp")
    shape = (case.size, case.size, slots)
    depths, bary, dists = (np.empty(x, np.float32) for x in (shape, (*shape, 3), shape))
    out = (np.empty(shape, np.int32), depths, bary, dists)
    radius = np.array([blur], np.float32)

    def run() -> tuple[NDArray[Any], ...]:
        library.brute_force(
            *native.arguments(
                case.face_verts, len(case.face_verts), case.size, case.size, slots, radius, int(blur > 0), threads, *out
            )
        )
        return out

    return run


def measure(case: Case, slots: int, threads: int, repeats: int, *, baseline: bool) -> dict[str, Any]:
    """Times one case.

    Args:
      case: the mesh.
      slots: faces per pixel.
      threads: number of threads of the loop; ours uses those that the process has.
      repeats: number of timed calls of ours; the loop is called twice.
      baseline: whether to time the loop too, and to compare what both find.

    Returns:
      Times in milliseconds, and ratios.

    Raises:
      RuntimeError: the programs find different faces.
    """
    import jax
    import jax.numpy as jnp

    from benchmarks.measure import time_in_turn
    from jaxsplat import rasterize_meshes

    blur = SETTINGS[slots]

    def render(verts: jax.Array) -> Any:
        return rasterize_meshes(
            verts, None, width=case.size, height=case.size, faces_per_pixel=slots, blur_radius=blur,
            clip_barycentric_coords=blur > 0,
        )  # fmt: skip

    verts = jnp.asarray(case.face_verts)
    forward, pull = jax.jit(render), jax.jit(lambda vjp, cotangents: vjp(cotangents))
    outputs, vjp = jax.vjp(lambda v: render(v)[1:], verts)
    cotangents = jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape), outputs)
    ours, backward = time_in_turn(
        [lambda: jax.block_until_ready(forward(verts)), lambda: jax.block_until_ready(pull(vjp, cotangents))], repeats
    )
    result: dict[str, Any] = {"mesh": case.name, "faces": len(verts), "size": case.size, "faces_per_pixel": slots}
    result |= {"threads": threads, "forward_ms": ours["min_ms"], "backward_ms": backward["min_ms"]}
    if baseline:
        loop = brute_force(case, slots, blur, threads)
        same = np.mean(loop()[0] == np.asarray(forward(verts).pix_to_face))
        if same < SAME:
            raise RuntimeError(f"{case.name}: only {same} of the slots hold the same face")
        (slow,) = time_in_turn([loop], 1)
        result |= {"loop_ms": slow["min_ms"], "ratio": slow["min_ms"] / ours["min_ms"], "same": float(same)}
    return result


def growth(series: Mapping[str, Sequence[tuple[int, int]]], repeats: int) -> dict[str, Any]:
    """Fits how the time of the forward pass grows: linear in faces plus pixels, its exponents are about 1 at most.

    Args:
      series: faces and sides of the pictures of each.
      repeats: number of timed calls.

    Returns:
      For each series the exponent of what grows, and the times in milliseconds.
    """
    from benchmarks.growth import exponent

    result: dict[str, Any] = {}
    for name, cases in series.items():
        times = [
            measure(landscape(faces, size, name), 1, 1, repeats, baseline=False)["forward_ms"] for faces, size in cases
        ]
        # Both grow alike.
        grown = [size**2 if name == "pixels" else faces for faces, size in cases]
        result[name] = {"exponent": exponent(grown, times), "forward_ms": times}
    return result


def main() -> int:
    """Run the benchmark: each number of threads in a process of its own.

    Returns:
      The exit status: 1 where the programs disagree or a process failed.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.meshes", description=__doc__)
    parser.add_argument("--cow", type=Path, help=f"cow.obj; default: {COW}, here or one up, else a landscape")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--million", action="store_true", help="also a landscape of a million faces at 1024x1024")
    parser.add_argument("--growth", action="store_true", help="also how the time grows with faces and pixels")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return _child(arguments)
    status = 0
    for threads in arguments.threads:
        command = ["-m", "benchmarks.meshes", "--child", f"--threads={threads}", f"--repeats={arguments.repeats}"]
        command += [f"--cow={arguments.cow}"] if arguments.cow else []
        command += [f"--{name}" for name in ("million", "growth") if getattr(arguments, name)]
        done = native.run_confined(command, threads)
        print(done.stdout, end="", flush=True)
        status |= int(done.returncode != 0)
    return status


def _child(arguments: argparse.Namespace) -> int:
    path = arguments.cow or next((p for up in (ROOT, ROOT.parent) if (p := up / COW).exists()), None)
    case = cow(path) if path else landscape(6000, SIZE, "landscape")
    threads = arguments.threads[0]
    for slots in SETTINGS:
        print(json.dumps(measure(case, slots, threads, arguments.repeats, baseline=True)), flush=True)
    if arguments.million:
        million = landscape(1_000_000, 1024, "landscape")
        print(json.dumps(measure(million, 1, threads, arguments.repeats, baseline=False)), flush=True)
    if arguments.growth:
        print(json.dumps({"threads": threads, **growth(GROWTH, arguments.repeats)}), flush=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
