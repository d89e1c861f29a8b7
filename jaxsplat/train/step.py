"""One training step as a pure function: render, loss, Adam, noise, refinement."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxsplat import _ffi, losses
from jaxsplat.optim import apply_splat_adam, means_rate, zero_moments
from jaxsplat.rendering import rasterization
from jaxsplat.strategy import mcmc
from jaxsplat.train.config import TrainConfig
from jaxsplat.train.state import TrainState
from jaxsplat.types import Backend, RenderOutput, Splats


class Batch(NamedTuple):
    """Pictures to learn from.

    Attributes:
      images: [B, H, W, 3], uint8 or floating-point in 0..1.
      viewmats: [B, 4, 4] world to camera.
      Ks: [B, 3, 3] intrinsics in pixels.
      masks: [B, H, W] weights of the pixels; None where all count alike.
    """

    images: jax.Array
    viewmats: jax.Array
    Ks: jax.Array
    masks: jax.Array | None = None


class Metrics(NamedTuple):
    """What a step tells.

    Attributes:
      loss: [] everything that is minimised.
      psnr: [] of the rendered pictures, mean over the batch, in dB.
      num_splats: [] int32, splats in use.
      dead: [] int32, dead splats found by a refinement in this step.
      stuck: [] bool, whether a refinement found no live splat to move them to.
    """

    loss: jax.Array
    psnr: jax.Array
    num_splats: jax.Array
    dead: jax.Array
    stuck: jax.Array


def render_splats(
    splats: Splats,
    viewmats: jax.Array,
    Ks: jax.Array,
    *,
    width: int,
    height: int,
    background: tuple[float, float, float] = (0.0, 0.0, 0.0),
    antialiased: bool = False,
    backend: Backend = "auto",
) -> RenderOutput:
    """Renders stored splats: activations, then `rasterization` with every SH band that they hold.

    Args:
      splats: N rows.
      viewmats: [C, 4, 4] world to camera.
      Ks: [C, 3, 3] intrinsics in pixels.
      width: of the pictures, in pixels.
      height: of the pictures, in pixels.
      background: colour in 0..1.
      antialiased: as the splats were trained.
      backend: renderer.

    Returns:
      Pictures [C, H, W, 3] and their alphas.

    Example:
      >>> render_splats(load_ply("scene.ply"), viewmats, Ks, width=270, height=480).colors
    """
    coefficients = _materialize_gradient(jnp.concatenate([splats.sh_dc, splats.sh_rest], -2))
    colors = None  # black costs nothing
    if any(background):
        colors = jnp.broadcast_to(jnp.asarray(background, splats.means.dtype), (viewmats.shape[-3], 3))
    return rasterization(
        splats.means,
        splats.quats,
        jnp.exp(splats.log_scales),
        jax.nn.sigmoid(splats.logit_opacities),
        coefficients,
        viewmats,
        Ks,
        width=width,
        height=height,
        sh_degree=round(coefficients.shape[-2] ** 0.5) - 1,
        backgrounds=colors,
        antialiased=antialiased,
        backend=backend,
    )


@jax.custom_vjp
def _materialize_gradient(x: jax.Array) -> jax.Array:
    """Returns x; its gradient is computed once, and not again in each slice that is taken of it."""
    return x


_materialize_gradient.defvjp(lambda x: (x, None), lambda _, v: (_ffi.materialize(v),))


def make_renderer(
    *,
    width: int,
    height: int,
    background: tuple[float, float, float] = (0.0, 0.0, 0.0),
    antialiased: bool = False,
    backend: Backend = "auto",
) -> Callable[[Splats, jax.Array, jax.Array], jax.Array]:
    """Makes a compiled `render(splats, viewmats, Ks) -> colors [C, H, W, 3]` with values clipped to 0..1.

    Args:
      width: of the pictures, in pixels.
      height: of the pictures, in pixels.
      background: colour in 0..1.
      antialiased: as the splats were trained.
      backend: renderer.

    Returns:
      The function.

    Example:
      >>> render = make_renderer(width=270, height=480)
      >>> images = render(load_ply("scene.ply"), viewmats, Ks)
    """

    def render(splats: Splats, viewmats: jax.Array, Ks: jax.Array) -> jax.Array:
        output = render_splats(
            splats,
            viewmats,
            Ks,
            width=width,
            height=height,
            background=background,
            antialiased=antialiased,
            backend=backend,
        )
        return jnp.clip(output.colors, 0.0, 1.0)

    return jax.jit(render)


def make_train_step(config: TrainConfig) -> Callable[[TrainState, Batch], tuple[TrainState, Metrics]]:
    """Makes the step of a run; jit it, and donate the state.

    Args:
      config: settings, fixed for the run.

    Returns:
      `step(state, batch) -> (state, metrics)`, pure.

    Example:
      >>> step = jax.jit(make_train_step(config), donate_argnums=0)
      >>> state, metrics = step(state, Batch(images, viewmats, Ks))
    """

    def step(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        targets = batch.images
        if jnp.issubdtype(targets.dtype, jnp.integer):
            targets = targets.astype(state.splats.means.dtype) / 255.0
        objective = jax.value_and_grad(_loss, has_aux=True)
        (loss, psnr), gradients = objective(state.splats, state, batch, targets, config)
        splats, opt_state = apply_splat_adam(state.splats, gradients, state.opt_state, config.rates, steps=config.steps)
        refine_key, noise_key = jax.random.split(jax.random.fold_in(state.key, state.step))
        done = state.step + 1
        splats, count, opt_state, dead, stuck = _refine_if_due(
            refine_key, done, splats, state.num_splats, opt_state, config
        )
        rate = means_rate(state.step, config.rates, steps=config.steps)
        splats = mcmc.add_noise(noise_key, splats, count, rate, settings=config.strategy)
        return TrainState(done, splats, count, opt_state, state.key), Metrics(loss, psnr, count, dead, stuck)

    return step


def active_bands(step: jax.Array, config: TrainConfig) -> np.ndarray | jax.Array:
    """Which coefficients of `sh_rest` are in use at a step: [K - 1] 0 or 1. A value, so that nothing recompiles."""
    orders = np.concatenate([np.full(2 * degree + 1, degree) for degree in range(1, config.sh_degree + 1)] or [[]])
    interval = max(config.sh_interval * config.steps, 1.0)
    return jnp.asarray(orders) <= step / interval


def _loss(
    splats: Splats, state: TrainState, batch: Batch, targets: jax.Array, config: TrainConfig
) -> tuple[jax.Array, jax.Array]:
    mask = active_bands(state.step, config).astype(splats.sh_rest.dtype)
    shown = splats._replace(sh_rest=splats.sh_rest * mask[None, :, None])
    height, width = targets.shape[-3:-1]
    images = render_splats(
        shown,
        batch.viewmats,
        batch.Ks,
        width=width,
        height=height,
        background=config.background or (0.0, 0.0, 0.0),
        antialiased=config.antialiased,
        backend=config.backend,
    ).colors
    difference = losses.l1(images, targets, masks=batch.masks).mean()
    similarity = losses.ssim(images, targets, masks=batch.masks).mean()
    loss = (1.0 - config.ssim_weight) * difference + config.ssim_weight * (1.0 - similarity)
    loss += mcmc.regularizer(splats, state.num_splats, settings=config.strategy)
    return loss, losses.psnr(images, targets, masks=batch.masks).mean()


def _refine_if_due(
    key: jax.Array, done: jax.Array, splats: Splats, count: jax.Array, opt_state: optax.OptState, config: TrainConfig
) -> tuple[Splats, jax.Array, optax.OptState, jax.Array, jax.Array]:
    def refined(
        splats: Splats, count: jax.Array, opt_state: optax.OptState
    ) -> tuple[Splats, jax.Array, optax.OptState, jax.Array, jax.Array]:
        result = mcmc.refine(key, splats, count, settings=config.strategy)
        moments = zero_moments(opt_state, result.moved)
        return result.splats, result.num_splats, moments, result.dead, (result.dead > 0) & (result.live == 0)

    def unchanged(
        splats: Splats, count: jax.Array, opt_state: optax.OptState
    ) -> tuple[Splats, jax.Array, optax.OptState, jax.Array, jax.Array]:
        return splats, count, opt_state, jnp.zeros((), jnp.int32), jnp.zeros((), bool)

    due = config.strategy.is_due(done, steps=config.steps)
    return jax.lax.cond(due, refined, unchanged, splats, count, opt_state)
