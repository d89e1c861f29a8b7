"""All settings of a training run."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import tyro

from jaxsplat.io.files import InputError
from jaxsplat.losses import Difference
from jaxsplat.optim import LearningRates
from jaxsplat.strategy import MCMC, Regularizers, Strategy
from jaxsplat.train.appearance import Appearance
from jaxsplat.train.poses import CameraRefinement
from jaxsplat.types import Backend


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run. The run is defined by its steps and seed, never by time.

    Attributes:
      steps: length of the run; schedules stretch with it.
      seed: of every random number.
      sh_degree: highest degree of the spherical harmonics, 0 to 4.
      sh_interval: fraction of the run after which the degree in use rises by one.
      views_per_step: pictures that each step learns from.
      difference: of the pictures, beside SSIM.
      huber_delta: where the parabola of "huber" becomes a line, for values in 0..1.
      ssim_weight: share of 1 - SSIM in the loss; the rest is the difference.
      depth_weight: weight of the depths of the capture's sparse points, in units of the scene's size; usual: 0.01.
      initial_points: random points, where the capture has none.
      initial_opacity: opacity of the first splats.
      initial_scale: their size, as a fraction of the distance to their neighbours.
      antialiased: compensate the opacity of splats smaller than a pixel. Most viewers expect False.
      background: colour in 0..1 behind the scene; None means white where the pictures are transparent, else black.
      random_background: another colour for each step, so that nothing is left transparent that should not be.
      visible_adam: update only the splats that a step's views show; faster where most are out of sight and
        neighbours lie beside each other in memory.
      backend: renderer.
      rates: learning rates.
      strategy: how splats move, die and multiply.
      regularizers: terms of the loss beside those of the strategy.
      cameras: what is learned about the cameras.
      appearance: what is learned about the exposure of each picture.
    """

    steps: int = 3500
    seed: int = 0
    sh_degree: int = 3
    sh_interval: float = 1.0 / 30.0
    views_per_step: int = 1
    difference: Difference = "l1"
    huber_delta: float = 0.1
    ssim_weight: float = 0.2
    depth_weight: float = 0.0
    initial_points: int = 60_000
    initial_opacity: float = 0.1
    initial_scale: float = 0.5
    antialiased: bool = False
    background: tuple[float, float, float] | None = None
    random_background: bool = False
    visible_adam: bool = False
    backend: Backend = "auto"
    # Means move five times faster than in the field's runs, which are six times longer.
    rates: LearningRates = dataclasses.field(default_factory=lambda: LearningRates(means=8e-4))
    # The command line has options of its own for it.
    strategy: Annotated[Strategy, tyro.conf.Suppress] = dataclasses.field(default_factory=MCMC)
    regularizers: Regularizers = dataclasses.field(default_factory=Regularizers)
    cameras: CameraRefinement = dataclasses.field(default_factory=CameraRefinement)
    appearance: Appearance = dataclasses.field(default_factory=Appearance)

    def __post_init__(self) -> None:
        counts = {"steps": self.steps, "views_per_step": self.views_per_step, "strategy.cap": self.strategy.cap}
        for name, value in counts.items():
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        weights = {
            "depth_weight": self.depth_weight,
            "cameras.pose_rate": self.cameras.pose_rate,
            "cameras.intrinsics_rate": self.cameras.intrinsics_rate,
            "cameras.align_steps": self.cameras.align_steps,
            "appearance.rate": self.appearance.rate,
        }
        for name, value in weights.items():
            if not value >= 0:
                raise InputError(f"{name} must not be negative, got {value}")
        if not 0 <= self.ssim_weight <= 1:
            raise InputError(f"ssim_weight must lie in 0..1, got {self.ssim_weight}")
        if not self.huber_delta > 0:
            raise InputError(f"huber_delta must be above 0, got {self.huber_delta}")
        if min(self.appearance.grid) < 1:
            raise InputError(f"appearance.grid must have at least 1 cell along each axis, got {self.appearance.grid}")
