"""All settings of a training run."""

from __future__ import annotations

import dataclasses

from jaxsplat.optim import LearningRates
from jaxsplat.strategy import MCMC
from jaxsplat.types import Backend


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Settings of a training run. The run is defined by its steps and seed, never by time.

    Attributes:
      steps: length of the run; schedules stretch with it.
      seed: of every random number.
      sh_degree: highest degree of the spherical harmonics, 0 to 4.
      sh_interval: fraction of the run after which the degree in use rises by one.
      ssim_weight: share of 1 - SSIM in the loss; the rest is L1.
      initial_points: random points, where the capture has none.
      initial_opacity: opacity of the first splats.
      initial_scale: their size, as a fraction of the distance to their neighbours.
      antialiased: compensate the opacity of splats smaller than a pixel. Most viewers expect False.
      background: colour in 0..1 behind the scene; None means white where the pictures are transparent, else black.
      backend: renderer.
      rates: learning rates.
      strategy: how splats move, die and multiply.
    """

    steps: int = 3500
    seed: int = 0
    sh_degree: int = 3
    sh_interval: float = 1.0 / 30.0
    ssim_weight: float = 0.2
    initial_points: int = 60_000
    initial_opacity: float = 0.1
    initial_scale: float = 0.5
    antialiased: bool = False
    background: tuple[float, float, float] | None = None
    backend: Backend = "auto"
    # Means move five times faster than in the field's runs, which are six times longer.
    rates: LearningRates = dataclasses.field(default_factory=lambda: LearningRates(means=8e-4))
    strategy: MCMC = dataclasses.field(default_factory=MCMC)
