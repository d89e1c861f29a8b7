"""What it saves to update only the splats in sight: `python -m benchmarks.visible`."""

from __future__ import annotations

import argparse
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import native, scenes
from benchmarks.measure import time_in_turn
from benchmarks.stages import carried
from benchmarks.training import training
from jaxsplat.optim import apply_splat_adam
from jaxsplat.train import keep_freed_memory
from jaxsplat.types import Splats

ROWS = ("neighbours", "shuffled")
"""Whether splats of one room lie beside each other in memory."""
APART = 100.0
"""Distance of the rooms, which are about 12 wide."""
SPLATS = ("means", "quats", "scales", "opacities", "colors")
HEAD = ("rows", "in sight", "step, ms", "of those in sight", "times as fast", "Adam, ms", "of those in sight")


def main() -> int:
    """Time whole steps and the optimiser alone, of all splats and of those in sight, in turn.

    Returns:
      The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.visible", description=__doc__)
    parser.add_argument("--rooms", type=int, default=10, help="of which the camera sees one")
    parser.add_argument("--splats", type=int, default=100_000, help="of a room")
    parser.add_argument("--width", type=int, default=640)
    parser.add_argument("--height", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", choices=ROWS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rows:
        keep_freed_memory()
        scene = rooms(arguments.rooms, scenes.synthetic(arguments.splats, arguments.width, arguments.height))
        print(json.dumps(measure(scene, arguments.rows, arguments.repeats)))
        return 0
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    for rows in ROWS:
        done = native.run_confined(["-m", "benchmarks.visible", *sys.argv[1:], f"--rows={rows}"], arguments.threads)
        done.check_returncode()
        found = json.loads(done.stdout.splitlines()[-1])
        step, seen_step, adam, seen_adam = (found[key] for key in ("step", "seen_step", "adam", "seen_adam"))
        cells = (rows, f"{found['share']:.1%}", f"{step:.1f}", f"{seen_step:.1f}", f"{step / seen_step:.2f}")
        print("| " + " | ".join((*cells, f"{adam:.1f}", f"{seen_adam:.1f}")) + " |", flush=True)
    return 0


def rooms(count: int, room: scenes.Scene) -> scenes.Scene:
    """Put rooms beside each other.

    Args:
      count: of rooms.
      room: that the camera sees.

    Returns:
      The scene, room after room.
    """
    shift = np.array([APART, 0.0, 0.0], np.float32)
    many = {name: np.concatenate([getattr(room, name)] * count) for name in SPLATS}
    many["means"] = np.concatenate([room.means + k * shift for k in range(count)])
    return room._replace(**many)


def measure(scene: scenes.Scene, rows: str, repeats: int) -> dict[str, float]:
    """Time one order of the rows.

    Args:
      scene: of rooms.
      rows: one of ROWS.
      repeats: timed calls of each program.

    Returns:
      Milliseconds, the least, and the share of the splats that is in sight.
    """
    if rows == "shuffled":
        order = np.random.default_rng(4).permutation(len(scene.means))
        scene = scene._replace(**{name: getattr(scene, name)[order] for name in SPLATS})
    seen = jnp.asarray((scenes.project(scene).radii > 0).all(1))
    splats, everything = training(scene)
    in_sight = training(scene, visible_only=True)[1]
    # Not all alike, which XLA would write anew in each call.
    gradients = jax.tree.map(lambda leaf: 1e-3 * jnp.cos(leaf), splats)

    def adam(splats: Splats, state: object, visible: jax.Array | None = None) -> tuple[Splats, object]:
        return apply_splat_adam(splats, gradients, state, steps=1000, visible=visible)

    names = ("step", "seen_step", "adam", "seen_adam")
    programs = (everything, in_sight, adam, lambda splats, state: adam(splats, state, seen))
    times = time_in_turn([carried(program, splats) for program in programs], repeats)
    return {name: time["min_ms"] for name, time in zip(names, times, strict=True)} | {"share": float(seen.mean())}


if __name__ == "__main__":
    sys.exit(main())
