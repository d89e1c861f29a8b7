"""Stages that bring primitives to the screen. Plain JAX."""

from __future__ import annotations

from jaxsplat.projection.ewa import project_gaussians as project_gaussians
from jaxsplat.projection.outlines import project_outlines as project_outlines
from jaxsplat.projection.unscented import Unscented as Unscented
from jaxsplat.projection.unscented import project_unscented as project_unscented
