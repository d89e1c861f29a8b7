"""What a training step minimises: render, correct, compare."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat import losses
from jaxsplat.cameras import Lens
from jaxsplat.sh import sh_factors
from jaxsplat.strategy import Regularizers, regularize
from jaxsplat.train.appearance import correct_colors
from jaxsplat.train.config import TrainConfig
from jaxsplat.train.depth import SparseDepths, depth_loss
from jaxsplat.train.extras import Extras, extras_penalty
from jaxsplat.train.poses import refined_intrinsics, refined_viewmats
from jaxsplat.train.render import render_splats
from jaxsplat.train.state import TrainState
from jaxsplat.types import RenderOutput, ScreenProbe, Splats

_BACKGROUND_STREAM = 0xBAC6


class Batch(NamedTuple):
    """Pictures to learn from; what is None takes no part.

    Attributes:
      images: [B, H, W, 3], uint8 or floating-point in 0..1.
      viewmats: [B, 4, 4] world to camera.
      Ks: [B, 3, 3] intrinsics in pixels.
      index: [B] int32, which view each picture is, to learn its camera or colours.
      masks: [B, H, W] weights of the pixels, uint8 or floating-point in 0..1.
      alphas: [B, H, W] how much of each pixel is scene and not background, uint8 or floating-point in 0..1.
      depths: of sparse points, B views.
      lens: of the cameras, coefficients [B, n].
    """

    images: jax.Array
    viewmats: jax.Array
    Ks: jax.Array
    index: jax.Array | None = None
    masks: jax.Array | None = None
    alphas: jax.Array | None = None
    depths: SparseDepths | None = None
    lens: Lens | None = None


class Learned(NamedTuple):
    """All that the loss is differentiated by.

    Attributes:
      splats: N rows.
      extras: corrections of cameras and colours, or None.
      probe: zeros, whose gradients are the strategy's statistics, or None.
    """

    splats: Splats
    extras: Extras | None
    probe: ScreenProbe | None


class Seen(NamedTuple):
    """What a step sees beside the loss.

    Attributes:
      psnr: [] mean over the pictures, in dB.
      radii: [B, N, 2] int32 on the screen in pixels, zero where a splat is not seen; None where nobody asks.
    """

    psnr: jax.Array
    radii: jax.Array | None


def objective(learned: Learned, state: TrainState, batch: Batch, config: TrainConfig) -> tuple[jax.Array, Seen]:
    """The loss of a batch, and what was seen.

    Args:
      learned: what to differentiate by.
      state: of the run, for step, key and number of splats.
      batch: pictures.
      config: settings.

    Returns:
      [] the loss, and `Seen`.

    Example:
      >>> (loss, seen), gradients = jax.value_and_grad(objective, has_aux=True)(learned, state, batch, config)
    """
    splats = learned.splats
    targets = unit_range(batch.images, splats)
    masks = None if batch.masks is None else unit_range(batch.masks, splats)
    height, width = targets.shape[-3:-1]
    background = config.background or (0.0, 0.0, 0.0)
    if config.random_background:
        background, targets = _random_background(state, batch, targets, background)
    output = _render(learned, state, batch, config, background, width, height)
    images = output.colors[..., :3]
    if learned.extras is not None and learned.extras.colors is not None:
        images = correct_colors(images, learned.extras.colors.astype(images.dtype), _index(batch))
    loss = losses.photometric(
        images,
        targets,
        difference=config.difference,
        ssim_weight=config.ssim_weight,
        huber_delta=config.huber_delta,
        masks=masks,
    ).mean()
    loss += regularize(splats, state.num_splats, weights=_weights(config))
    if config.depth_weight and batch.depths is not None:
        loss += config.depth_weight * depth_loss(output.colors[..., 3], batch.depths)
    if learned.extras is not None:
        loss += extras_penalty(learned.extras, config)
    asked = config.visible_adam or config.strategy.observes
    radii = output.info.projected.radii if asked and output.info is not None else None
    return loss, Seen(losses.psnr(images, targets, masks=masks).mean(), radii)


def active_bands(step: jax.Array, config: TrainConfig) -> jax.Array:
    """Which SH functions are in use at a step: [K] 0 or 1. A value, so that nothing recompiles."""
    return sh_factors(step / max(config.sh_interval * config.steps, 1.0), degree=config.sh_degree)


def unit_range(values: jax.Array, like: Splats) -> jax.Array:
    """8-bit values as 0..1 in the precision of the splats; others as they are."""
    if not jnp.issubdtype(values.dtype, jnp.integer):
        return values
    return values.astype(like.means.dtype) / 255.0


def _render(
    learned: Learned,
    state: TrainState,
    batch: Batch,
    config: TrainConfig,
    background: tuple[float, float, float] | jax.Array,
    width: int,
    height: int,
) -> RenderOutput:
    viewmats, Ks = batch.viewmats, batch.Ks
    if learned.extras is not None and learned.extras.cameras is not None:
        deltas = jax.tree.map(lambda leaf: leaf.astype(viewmats.dtype), learned.extras.cameras)
        index = _index(batch)
        viewmats = refined_viewmats(viewmats, deltas.rotations[index], deltas.translations[index])
        Ks = refined_intrinsics(Ks, deltas.log_focals, deltas.centers, width=width, height=height)
    return render_splats(
        learned.splats,
        viewmats,
        Ks,
        width=width,
        height=height,
        background=background,
        sh_factors=active_bands(state.step, config).astype(learned.splats.sh_dc.dtype),
        antialiased=config.antialiased,
        backend=config.backend,
        lens=batch.lens,
        depth=bool(config.depth_weight) and batch.depths is not None,
        probe=learned.probe,
    )


def _random_background(
    state: TrainState, batch: Batch, targets: jax.Array, background: tuple[float, float, float]
) -> tuple[jax.Array, jax.Array]:
    """A colour for each picture [B, 3], and the pictures put on it where they are transparent."""
    key = jax.random.fold_in(jax.random.fold_in(state.key, _BACKGROUND_STREAM), state.step)
    colors = jax.random.uniform(key, (len(targets), 3), targets.dtype)
    if batch.alphas is None:
        return colors, targets
    change = colors - jnp.asarray([background], targets.dtype)
    clear = 1.0 - unit_range(batch.alphas, state.splats)
    return colors, targets + clear[..., None] * change[:, None, None, :]


def _index(batch: Batch) -> jax.Array:
    if batch.index is None:
        raise ValueError("training step: batch.index must say which view each picture is, got None.")
    return batch.index


def _weights(config: TrainConfig) -> Regularizers:
    own, more = config.strategy.regularizers(), config.regularizers
    return Regularizers(
        own.opacity + more.opacity, own.scale + more.scale, own.anisotropy + more.anisotropy, more.max_ratio
    )
