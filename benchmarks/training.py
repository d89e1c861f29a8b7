"""The training step that is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import scenes
from jaxsplat import SHCoeffs, losses, rasterization
from jaxsplat.optim import apply_splat_adam
from jaxsplat.types import Splats

SH_DEGREE = 3


def training(scene: scenes.Scene, *, visible_only: bool = False) -> tuple[Splats, Callable[[Splats, Any], Any]]:
    """Make a step of Adam from a scene towards a picture of noise.

    Args:
      scene: where the splats begin; their colors are random coefficients.
      visible_only: update only the splats that the camera sees.

    Returns:
      The splats, and step(splats, state) -> (splats, state).
    """
    rng = np.random.default_rng(2)
    count = len(scene.means)
    opacities = np.clip(scene.opacities, 1e-4, 1 - 1e-4)
    splats = Splats(
        means=jnp.asarray(scene.means),
        quats=jnp.asarray(scene.quats),
        log_scales=jnp.log(jnp.asarray(scene.scales)),
        logit_opacities=jnp.asarray(np.log(opacities / (1 - opacities))),
        sh_dc=jnp.asarray(rng.normal(size=(count, 1, 3)), jnp.float32),
        sh_rest=jnp.asarray(0.1 * rng.normal(size=(count, 15, 3)), jnp.float32),
    )
    viewmats, Ks = jnp.asarray(scene.viewmat)[None], jnp.asarray(scene.K)[None]
    compare = compare_with(target_of(scene))

    def loss(splats: Splats) -> tuple[jax.Array, jax.Array]:
        out = rasterization(
            splats.means,
            splats.quats,
            jnp.exp(splats.log_scales),
            jax.nn.sigmoid(splats.logit_opacities),
            SHCoeffs(splats.sh_dc, splats.sh_rest),
            viewmats,
            Ks,
            sh_degree=SH_DEGREE,
            width=scene.width,
            height=scene.height,
        )
        assert out.info is not None
        return compare(out.colors), (out.info.projected.radii > 0).all(-1).any(0)

    def step(splats: Splats, state: Any) -> tuple[Splats, Any]:
        gradients, seen = jax.grad(loss, has_aux=True)(splats)
        return apply_splat_adam(splats, gradients, state, steps=1000, visible=seen if visible_only else None)

    return splats, step


def target_of(scene: scenes.Scene) -> jax.Array:
    """Make a picture of noise [1, H, W, 3]."""
    return jnp.asarray(np.random.default_rng(3).random((1, scene.height, scene.width, 3)), jnp.float32)


def compare_with(target: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Make the loss of training, 0.8 L1 + 0.2 (1 - SSIM), against a picture."""
    return lambda images: 0.8 * losses.l1(images, target).mean() + 0.2 * (1 - losses.ssim(images, target).mean())
