"""A training step of one picture in one call: render, compare, differentiate, move.

The defaults are those of the rlx renderer: splats along rays, without dilation, in linear light, with its blend rule;
each can be chosen anew.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxsplat import _check, _constants, losses
from jaxsplat.cameras import Lens
from jaxsplat.clamps import Clamps, limit_anisotropy
from jaxsplat.gamma import linearize_gamma
from jaxsplat.gradients import clip_cotangent
from jaxsplat.optim import LearningRates, apply_splat_adam, splat_adam
from jaxsplat.rendering import rasterization
from jaxsplat.sh import degree_of, sh_factors
from jaxsplat.types import Backend, Blend, CameraModel, Evaluate, Projection, RenderOutput, SHCoeffs, Splats

_NAME = "fused step"


@dataclasses.dataclass(frozen=True)
class FusedConfig:
    """Settings of a fused step, fixed for the run.

    Attributes:
      width: of the pictures, in pixels.
      height: of the pictures, in pixels.
      steps: length of the run, for the decay of the means' rate.
      rates: learning rates.
      scene_scale: size of the scene in world units, by which the means' rate is multiplied.
      clamps: bounds of each step; None for none, and gradients as they are.
      ssim_weight: w of the loss (1 - w) MSE + w (1 - SSIM), in 0..1.
      ssim_window: as in `losses.ssim`.
      ssim_c2: as in `losses.ssim`.
      ssim_valid: as `valid` in `losses.ssim`: only windows that lie inside the picture count.
      image_gradient_max: every value of the gradient to the picture is clipped to plus or minus this.
      linear_light: the background is given as it is displayed and turned into linear light, which the picture and the
        target are in. Otherwise it is taken as it is.
      radius_scale: by which all scales are multiplied.
      max_anisotropy: no axis of a splat is rendered shorter than the longest over this.
      near_plane: smallest visible depth, in world units.
      blend: the blend rule.
      evaluate: "ray" or "ellipse", as in `rasterization`.
      projection: "ewa", "unscented" or None, as in `rasterization`.
      camera_model: where the camera has no lens.
      keep_image: whether the picture is a part of the result.
      backend: renderer.
    """

    width: int
    height: int
    steps: int = 30_000
    rates: LearningRates = dataclasses.field(default_factory=LearningRates)
    scene_scale: float = 1.0
    clamps: Clamps | None = None
    ssim_weight: float = 0.2
    ssim_window: losses.Window = "gaussian"
    ssim_c2: float = losses.SSIM_C2
    ssim_valid: bool = False
    image_gradient_max: float = math.inf
    linear_light: bool = True
    radius_scale: float = 1.0
    max_anisotropy: float = math.inf
    near_plane: float = _constants.NEAR
    blend: Blend = dataclasses.field(default_factory=Blend.rlx)
    evaluate: Evaluate = "ray"
    projection: Projection | None = None
    camera_model: CameraModel = "pinhole"
    keep_image: bool = False
    backend: Backend = "auto"

    def __post_init__(self) -> None:
        _check.positive_int("FusedConfig", width=self.width, height=self.height, steps=self.steps)
        if not 0 <= self.ssim_weight <= 1:
            raise ValueError(f"FusedConfig: ssim_weight must lie in 0..1, got {self.ssim_weight}.")
        for name, least in (("image_gradient_max", 0), ("radius_scale", 0), ("scene_scale", 0)):
            if not getattr(self, name) > least:
                raise ValueError(f"FusedConfig: {name} must be above {least}, got {getattr(self, name)}.")


class FusedCamera(NamedTuple):
    """A camera; all of it is traced.

    Attributes:
      viewmat: [4, 4] world to camera, OpenCV axes.
      K: [3, 3] camera matrix, in pixels.
      lens: None for the model of the configuration.
    """

    viewmat: jax.Array
    K: jax.Array
    lens: Lens | None = None


class FusedState(NamedTuple):
    """What a step reads and writes.

    Attributes:
      step: [] int32, steps done.
      splats: N rows; `pack_splats` and `unpack_splats` give other layouts.
      opt_state: of the optimiser.
      sh_factors: [K] of the SH functions: `sh_factors(active, degree=...)` for those in use. A step leaves them alone.
    """

    step: jax.Array
    splats: Splats
    opt_state: Any
    sh_factors: jax.Array


class FusedStepResult(NamedTuple):
    """What a step tells of the splats before it.

    Attributes:
      loss: [] what is minimised.
      mse: [] mean squared difference.
      ssim: [] structural similarity; None where its weight is 0.
      image: [H, W, 3] the picture; None unless it is kept.
      list_count: [] int32, pairs of a splat and a tile that it touches.
      visible_count: [] int32, splats that touch the picture.
    """

    loss: jax.Array
    mse: jax.Array
    ssim: jax.Array | None
    image: jax.Array | None
    list_count: jax.Array
    visible_count: jax.Array


FusedStep = Callable[[FusedState, FusedCamera, jax.Array, jax.Array], tuple[FusedState, FusedStepResult]]
FusedGradients = Callable[[FusedState, FusedCamera, jax.Array, jax.Array], tuple[Splats, FusedStepResult]]


def init_fused_state(splats: Splats, config: FusedConfig) -> FusedState:
    """Begins a run.

    Args:
      splats: N rows, which are copied: a step consumes its state.
      config: settings.

    Returns:
      The state before the first step, with all SH functions in use.

    Raises:
      ValueError: for shapes that disagree.

    Example:
      >>> state = init_fused_state(load_splats("scene.ply"), FusedConfig(width=640, height=480))
    """
    sizes = _check.splats("init_fused_state", splats, batched=False)
    degree = degree_of("init_fused_state", sizes["R"])
    splats = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), splats)
    return FusedState(
        jnp.zeros((), jnp.int32),
        splats,
        splat_adam(config.rates, steps=config.steps, scene_scale=config.scene_scale).init(splats),
        sh_factors(degree, degree=degree).astype(splats.sh_dc.dtype),
    )


def make_fused_step(config: FusedConfig) -> FusedStep:
    """Makes the step: compiled, and with its state donated.

    It minimises (1 - w) MSE + w (1 - SSIM) of the picture of one camera by Adam, with bounds where there are clamps.
    New cameras, targets, backgrounds and SH factors never compile anew.

    Args:
      config: settings.

    Returns:
      `step(state, camera, target, background) -> (state, result)` for a target [H, W, 3] and a background [3]. The
      state that goes in must not be used again.

    Example:
      >>> step = make_fused_step(FusedConfig(width=640, height=480))
      >>> state, result = step(state, FusedCamera(viewmat, K), linearize_gamma(photograph), jnp.zeros(3))
    """

    def step(
        state: FusedState, camera: FusedCamera, target: jax.Array, background: jax.Array
    ) -> tuple[FusedState, FusedStepResult]:
        gradients, result = _differentiate(state, camera, target, background, config)
        splats, opt_state = apply_splat_adam(
            state.splats, gradients, state.opt_state, config.rates, steps=config.steps,
            scene_scale=config.scene_scale, clamps=config.clamps,
        )  # fmt: skip
        return state._replace(step=state.step + 1, splats=splats, opt_state=opt_state), result

    return jax.jit(step, donate_argnums=0)


def make_fused_gradients(config: FusedConfig) -> FusedGradients:
    """Makes the first part of the step alone, for an optimiser of your own.

    Args:
      config: settings, of which those of the optimiser do not matter.

    Returns:
      `gradients(state, camera, target, background) -> (gradients, result)`, compiled; the state stays as it is.

    Example:
      >>> gradients, result = make_fused_gradients(config)(state, camera, target, background)
    """

    def gradients(
        state: FusedState, camera: FusedCamera, target: jax.Array, background: jax.Array
    ) -> tuple[Splats, FusedStepResult]:
        return _differentiate(state, camera, target, background, config)

    return jax.jit(gradients)


def _differentiate(
    state: FusedState, camera: FusedCamera, target: jax.Array, background: jax.Array, config: FusedConfig
) -> tuple[Splats, FusedStepResult]:
    _check_arguments(state, camera, target, background, config)

    def objective(splats: Splats) -> tuple[jax.Array, FusedStepResult]:
        output = _render(splats, state.sh_factors, camera, background, config)
        image = output.colors[0]
        if math.isfinite(config.image_gradient_max):
            image = clip_cotangent(image, limit=config.image_gradient_max)
        loss = mse = losses.mse(image, target)
        ssim = None
        if config.ssim_weight:
            ssim = losses.ssim(
                image, target, valid=config.ssim_valid, window=config.ssim_window, c2=config.ssim_c2
            )  # fmt: skip
            loss = losses.with_ssim(mse, ssim, ssim_weight=config.ssim_weight)
        assert output.info is not None
        kept = image if config.keep_image else None
        return loss, FusedStepResult(loss, mse, ssim, kept, output.info.list_count[0], output.info.visible_count[0])

    gradients, result = jax.grad(objective, has_aux=True)(state.splats)
    return gradients, result


def _render(
    splats: Splats, factors: jax.Array, camera: FusedCamera, background: jax.Array, config: FusedConfig
) -> RenderOutput:
    if math.isfinite(config.max_anisotropy):
        splats = limit_anisotropy(splats, max_ratio=config.max_anisotropy)
    background = background.astype(splats.means.dtype)
    return rasterization(
        splats.means,
        splats.quats,
        config.radius_scale * jnp.exp(splats.log_scales),
        jax.nn.sigmoid(splats.logit_opacities),
        SHCoeffs(splats.sh_dc, splats.sh_rest, factors),
        camera.viewmat[None],
        camera.K[None],
        width=config.width,
        height=config.height,
        sh_degree=degree_of(_NAME, splats.sh_rest.shape[-2]),
        near_plane=config.near_plane,
        backgrounds=(linearize_gamma(background) if config.linear_light else background)[None],
        camera_model=config.camera_model if camera.lens is None else camera.lens,
        projection=config.projection,
        evaluate=config.evaluate,
        blend=config.blend,
        backend=config.backend,
    )


def _check_arguments(
    state: FusedState, camera: FusedCamera, target: jax.Array, background: jax.Array, config: FusedConfig
) -> None:
    sizes = _check.splats(_NAME, state.splats, batched=False)
    _check.shapes(
        _NAME,
        **{
            "camera.viewmat": (camera.viewmat, "4 4"),
            "camera.K": (camera.K, "3 3"),
            "target": (target, f"{config.height} {config.width} 3"),
            "background": (background, "3"),
            "state.sh_factors": (state.sh_factors, str(sizes["R"] + 1)),
        },
    )
    _check.floating(_NAME, target=target, background=background)
