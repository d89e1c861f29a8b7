"""The splats of a scene as a Flax NNX module, for those who train with `nnx.Optimizer`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxsplat import _check
from jaxsplat.initialization import splats_from_points
from jaxsplat.rendering import rasterization
from jaxsplat.sh import degree_of
from jaxsplat.types import RenderOutput, SHCoeffs, Splats

INITIAL_OPACITY = 0.1


class GaussianModel(nnx.Module):
    """3D Gaussians whose stored values are `nnx.Param`s, and a renderer of them.

    Attributes:
      means: [N, 3] centres, in world units.
      quats: [N, 4] rotations wxyz, any norm.
      log_scales: [N, 3] logarithms of the standard deviations.
      logit_opacities: [N] opacity = sigmoid of this.
      sh_dc: [N, 1, 3] degree-0 coefficients of the colour.
      sh_rest: [N, K - 1, 3] coefficients of the higher degrees.

    Example:
      >>> model = GaussianModel.from_points(points, colors, sh_degree=2, rngs=nnx.Rngs(0))
      >>> model(viewmats, Ks, 640, 480).colors.shape
      (3, 480, 640, 3)
    """

    def __init__(self, splats: Splats) -> None:
        """Takes over the values of a scene.

        Args:
          splats: N rows, without batch axes, for example from `load_ply`.

        Raises:
          ValueError: the shapes disagree, or K is not a square.
        """
        sizes = _check.splats("GaussianModel", splats, batched=False)
        self.sh_degree = degree_of("GaussianModel", sizes["R"])
        self.means = nnx.Param(jnp.asarray(splats.means))
        self.quats = nnx.Param(jnp.asarray(splats.quats))
        self.log_scales = nnx.Param(jnp.asarray(splats.log_scales))
        self.logit_opacities = nnx.Param(jnp.asarray(splats.logit_opacities))
        self.sh_dc = nnx.Param(jnp.asarray(splats.sh_dc))
        self.sh_rest = nnx.Param(jnp.asarray(splats.sh_rest))

    @classmethod
    def from_points(cls, points: jax.Array, colors: jax.Array, *, sh_degree: int = 3, rngs: nnx.Rngs) -> GaussianModel:
        """Puts a round, mostly transparent splat at each point.

        Args:
          points: [N, 3] in world units.
          colors: [N, 3] in 0..1.
          sh_degree: degree of the spherical harmonics, 0 to 4; the higher coefficients begin at zero.
          rngs: its `params` stream draws the rotations.

        Returns:
          The model.

        Raises:
          ValueError: the shapes disagree, or there are no points.

        Example:
          >>> GaussianModel.from_points(jnp.zeros((5, 3)), jnp.ones((5, 3)), rngs=nnx.Rngs(0)).sh_rest.shape
          (5, 15, 3)
        """
        sizes = _check.shapes("GaussianModel.from_points", points=(points, "N 3"), colors=(colors, "N 3"))
        _check.positive_int("GaussianModel.from_points", N=sizes["N"])
        splats = splats_from_points(
            jnp.asarray(points), jnp.asarray(colors), sh_degree=sh_degree, opacity=INITIAL_OPACITY
        )
        return cls(splats._replace(quats=jax.random.normal(rngs.params(), splats.quats.shape, splats.quats.dtype)))

    @property
    def splats(self) -> Splats:
        """The stored values, for `save_ply` and for functions that take a scene."""
        return Splats(*(getattr(self, name)[...] for name in Splats._fields))

    def __call__(self, viewmats: jax.Array, Ks: jax.Array, width: int, height: int, **settings: Any) -> RenderOutput:
        """Renders the scene.

        Args:
          viewmats: [C, 4, 4] world-to-camera matrices, OpenCV axes.
          Ks: [C, 3, 3] camera matrices, in pixels.
          width: image width in pixels.
          height: image height in pixels.
          **settings: any other setting of `rasterization`; `sh_degree` may be lower than the model's.

        Returns:
          The pictures [C, height, width, 3] and what came with them.

        Example:
          >>> model(viewmats, Ks, 640, 480, backgrounds=jnp.ones((3, 3)), antialiased=True).alphas.shape
          (3, 480, 640, 1)
        """
        s = self.splats
        return rasterization(
            s.means,
            s.quats,
            jnp.exp(s.log_scales),
            jax.nn.sigmoid(s.logit_opacities),
            SHCoeffs(s.sh_dc, s.sh_rest),
            viewmats,
            Ks,
            width=width,
            height=height,
            **{"sh_degree": self.sh_degree, **settings},
        )
