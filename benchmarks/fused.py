"""The fused training step against the same step put together from public functions: `python -m benchmarks.fused`."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import scenes
from benchmarks.training import SH_DEGREE, target_of, training
from jaxsplat import SHCoeffs, linearize_gamma, losses, rasterization
from jaxsplat.clamps import Clamp, Clamps, clamped
from jaxsplat.fused import FusedCamera, FusedConfig, FusedState, init_fused_state, make_fused_step
from jaxsplat.optim import apply_splat_adam, splat_adam
from jaxsplat.train import keep_freed_memory
from jaxsplat.types import Splats

CLAMPS = Clamps(*[Clamp(gradient=10.0, update=0.05, low=-1e4, high=1e4)] * len(Splats._fields))
Step = Callable[..., Any]


def main() -> int:
    """Time the programs in turn, without and with clamps.

    Returns:
      The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fused", description=__doc__)
    parser.add_argument("--garden", type=Path, help="gsplat's test_garden.npz; without it a synthetic scene")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a tiny scene, to see that everything runs")
    arguments = parser.parse_args()
    keep_freed_memory()
    if arguments.garden:
        scene = scenes.garden(arguments.garden)
    else:
        scene = scenes.synthetic(*((500, 64, 48) if arguments.quick else (100_000, 640, 480)))
    for clamps in (None, CLAMPS):
        config = FusedConfig(scene.width, scene.height, clamps=clamps)
        programs = {
            "fused": make_fused_step(config),
            "composed, with Optax": jax.jit(composed(config, in_one_pass=False), donate_argnums=0),
            "composed, with the one-pass Adam": jax.jit(composed(config, in_one_pass=True), donate_argnums=0),
        }
        print(f"{scene.name}, {scene.width}x{scene.height}, {'without' if clamps is None else 'with'} clamps")
        times = measure(programs, scene, config, arguments.repeats)
        for name, walls in times.items():
            slower = statistics.median(w / f for w, f in zip(walls, times["fused"], strict=True))
            print(f"  {name}: {min(walls):.1f} ({statistics.median(walls):.1f}) ms, {slower:.2f} of the fused step")
    return 0


def composed(config: FusedConfig, *, in_one_pass: bool) -> Step:
    """Make the step from public functions; all but its counts.

    Args:
      config: settings.
      in_one_pass: use `apply_splat_adam` in place of Optax.

    Returns:
      A function like the fused step, which returns the new state and the loss.
    """
    optimizer = splat_adam(config.rates, steps=config.steps)
    if config.clamps is not None:
        optimizer = clamped(optimizer, config.clamps)

    def loss(splats: Splats, state: FusedState, camera: FusedCamera, target: Any, background: Any) -> jax.Array:
        out = rasterization(
            splats.means, splats.quats, jnp.exp(splats.log_scales), jax.nn.sigmoid(splats.logit_opacities),
            SHCoeffs(splats.sh_dc, splats.sh_rest, state.sh_factors), camera.viewmat[None], camera.K[None],
            sh_degree=SH_DEGREE, width=config.width, height=config.height, evaluate="ray", blend=config.blend,
            backgrounds=linearize_gamma(background)[None],
        )  # fmt: skip
        return losses.photometric(out.colors[0], target, difference="mse", ssim_weight=config.ssim_weight)

    def step(state: FusedState, *view: Any) -> tuple[FusedState, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(state.splats, state, *view)
        if in_one_pass:
            splats, opt_state = apply_splat_adam(
                state.splats, gradients, state.opt_state, config.rates, steps=config.steps, clamps=config.clamps
            )
        else:
            updates, opt_state = optimizer.update(gradients, state.opt_state, state.splats)  # pyright: ignore
            splats = jax.tree.map(jnp.add, state.splats, updates)
        return state._replace(splats=splats, opt_state=opt_state), value

    return step


def measure(
    programs: dict[str, Step], scene: scenes.Scene, config: FusedConfig, repeats: int
) -> dict[str, list[float]]:
    """Time steps of all programs in turn.

    Args:
      programs: by name.
      scene: where they begin.
      config: settings.
      repeats: steps of each.

    Returns:
      Milliseconds of each step.
    """
    camera = FusedCamera(jnp.asarray(scene.viewmat), jnp.asarray(scene.K))
    view = (camera, target_of(scene)[0], jnp.full(3, 0.5))
    states = {name: init_fused_state(training(scene)[0], config) for name in programs}
    times: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(repeats + 2):
        for name, program in programs.items():
            start = time.perf_counter()
            states[name], _ = jax.block_until_ready(program(states[name], *view))
            if turn > 1:  # compiled, and caches warm
                times[name].append(1e3 * (time.perf_counter() - start))
    return times


if __name__ == "__main__":
    sys.exit(main())
