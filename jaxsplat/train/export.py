"""The command that exports a scene, with what only rendering can tell: which splats the cameras of a capture see."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat.data.capture import Cameras, load_cameras
from jaxsplat.io import commands
from jaxsplat.io.arrays import SplatFile
from jaxsplat.io.files import InputError
from jaxsplat.projection import project_gaussians
from jaxsplat.rasterize.contributors import trace_contributors
from jaxsplat.types import Splats


@dataclasses.dataclass(frozen=True)
class Export(commands.Export):
    """Write a scene without the splats that show nothing or that you do not want, in any format that convert writes."""

    prune_weight: float | None = None
    """Drop splats that add less to the pictures of --cameras than this, in whole pixels, over all of them."""
    cameras: Path | None = None
    """Folder of a capture, or its .json file."""
    downscale: int = 1
    """Shrink its pictures by this factor."""

    def selected(self, found: SplatFile) -> Splats:
        """What is left of a scene; says what was dropped."""
        if (self.prune_weight is None) != (self.cameras is None):
            raise InputError("give both --prune-weight and --cameras, or neither")
        if self.prune_weight is None or self.cameras is None:
            return super().selected(found)
        if not self.prune_weight >= 0:
            raise InputError(f"--prune-weight must be at least 0, got {self.prune_weight:g}")
        cameras = load_cameras(self.cameras, downscale=self.downscale)
        splats = super().selected(found)
        antialiased = found.antialiased if self.antialiased is None else self.antialiased
        keep = picture_weights(splats, cameras, antialiased=bool(antialiased)) >= self.prune_weight
        print(f"Dropped {int((~keep).sum()):,}: weight in {len(cameras.names)} pictures below {self.prune_weight:g}.")
        return jax.tree.map(lambda leaf: leaf[keep], splats)


def picture_weights(splats: Splats, cameras: Cameras, *, antialiased: bool = False) -> np.ndarray:
    """What each splat adds to the pictures of some cameras: alpha times transmittance, summed over their pixels.

    Args:
      splats: N rows.
      cameras: without distortion.
      antialiased: as the splats were trained.

    Returns:
      [N] float64, in pixels.

    Example:
      >>> picture_weights(load_splats("scene.ply"), load_cameras("captures/fox")).shape
      (80000,)
    """
    width, height = cameras.width, cameras.height

    @jax.jit
    def of_camera(splats: Splats, viewmat: jax.Array, K: jax.Array) -> jax.Array:
        opacities = jax.nn.sigmoid(splats.logit_opacities)
        p = project_gaussians(
            splats.means, splats.quats, jnp.exp(splats.log_scales), viewmat[None], K[None], opacities=opacities,
            antialiased=antialiased, width=width, height=height,
        )  # fmt: skip
        opacities = opacities[None] * p.compensations if antialiased else opacities[None]
        trace = trace_contributors(
            p.means2d, p.conics, opacities, depths=p.depths, radii=p.radii, max_hits=1, width=width, height=height
        )
        return trace.splat_weights[0]

    total = np.zeros(len(splats.means))
    for viewmat, K in zip(cameras.viewmats, cameras.Ks, strict=True):
        total += np.asarray(of_camera(splats, viewmat, K))
    return total
