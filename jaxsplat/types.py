"""What goes into and comes out of the public functions.

Axis letters, used in every docstring and error message:

`...` any leading batch axes; `N` splats; `C` cameras; `H`, `W` image height and width in pixels; `D` colour channels;
`K` spherical-harmonics coefficients; `T` tiles of one image, row by row (`ceil(H / tile_size) * ceil(W / tile_size)`);
`M` capacity of a tile list. Meshes: `V` vertices; `F` faces; `K` faces kept at a pixel.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, NamedTuple

import jax

from jaxsplat import _constants as const

CameraModel = Literal["pinhole", "ortho", "fisheye"]
Projection = Literal["ewa", "unscented"]
RenderMode = Literal["RGB", "D", "ED", "RGB+D", "RGB+ED"]
Evaluate = Literal["ellipse", "ray"]
TileAssignment = Literal["ellipse", "box"]
Backend = Literal["auto", "native", "reference"]
MeshCameraModel = Literal["pinhole", "ortho"]
Convention = Literal["opencv", "pytorch3d"]


class Projected(NamedTuple):
    """Splats on the screen, one row per camera and splat. A culled row holds zeros everywhere.

    Attributes:
      means2d: [..., C, N, 2] centres in pixels; pixel (x, y) has its centre at (x + .5, y + .5).
      conics: [..., C, N, 3] upper triangle (xx, xy, yy) of the inverse 2D covariance, in 1 / pixel^2.
      depths: [..., C, N] camera-space z, in world units; for an equidistant `Lens` the distance.
      radii: [..., C, N, 2] int32, half sizes of the bounding box in pixels along x and y; zero where culled.
      compensations: [..., C, N] factor on the opacity that undoes the dilation by `eps2d`.
    """

    means2d: jax.Array
    conics: jax.Array
    depths: jax.Array
    radii: jax.Array
    compensations: jax.Array


class SHCoeffs(NamedTuple):
    """Coefficients of spherical harmonics in two parts, as trained splats are stored: nothing has to join them.

    Attributes:
      dc: [..., N, 1, D] of the constant function; any number of coefficients may stand here.
      rest: [..., N, K - 1, D] those that follow.
      factors: [K] by which each function is multiplied, for example 0 for bands that are not in use yet; None for 1.
        Not differentiated.
    """

    dc: jax.Array
    rest: jax.Array
    factors: jax.Array | None = None


class TileIntersections(NamedTuple):
    """Which splats touch which tile, nearest first.

    Attributes:
      gaussian_ids: [..., C, M] int32, the lists of all tiles of an image one after another, -1 beyond the last.
      tile_offsets: [..., C, T + 1] int32; tile `t` owns `gaussian_ids[tile_offsets[t]:tile_offsets[t + 1]]`.
      tiles_per_gaussian: [..., C, N] int32, number of tiles that each splat touches.
      count: [..., C] int32, the true number of intersections. Where it exceeds M the lists are incomplete.
    """

    gaussian_ids: jax.Array
    tile_offsets: jax.Array
    tiles_per_gaussian: jax.Array
    count: jax.Array


class Contributors(NamedTuple):
    """The splats that each pixel blends, K of them listed; and what each splat adds to the image.

    A weight is alpha times the transmittance in front: the part that a splat's color has in the pixel's.

    Attributes:
      counts: [..., H, W] int32, the true number of splats blended at each pixel; where it exceeds K, some are not
        listed.
      ids: [..., H, W, K] int32 indices of splats, -1 beyond the last.
      alphas: [..., H, W, K] their opacities at the pixel, 0 beyond the last.
      transmittances: [..., H, W, K] what the splats in front of each let pass, 0 beyond the last.
      splat_weights: [..., N] sum of each splat's weights over the pixels of the image.
      splat_counts: [..., N] int32, number of pixels that blend each splat.
      colors: [..., H, W, K, D] their colors, 0 beyond the last; None where none were given.
    """

    counts: jax.Array
    ids: jax.Array
    alphas: jax.Array
    transmittances: jax.Array
    splat_weights: jax.Array
    splat_counts: jax.Array
    colors: jax.Array | None


@dataclasses.dataclass(frozen=True)
class Blend:
    """The rule by which splats are composited, front to back. Static: a new value compiles anew.

    Attributes:
      alpha_max: a splat's opacity at a pixel is clamped to this.
      alpha_min: smaller contributions are skipped.
      transmittance_min: the splat that would take the transmittance to this or below ends the pixel.
      blend_last: whether that splat is still blended.
      max_contributors: most splats blended at one pixel; 0 means no limit.
      alpha_gradient_max: in the backward pass, the gradient to the opacity of every splat at every pixel is clipped to
        plus or minus this; `inf` for exact gradients.
      compensation_min: least factor on the opacity of antialiased splats.
      tile_sigmas: splats on the screen are cut off at the tiles that a square touches, of half a side of this many
        standard deviations of their longer axis, whatever the `tile_assignment`; 0 for no cut. Not along rays.
    """

    alpha_max: float = const.ALPHA_MAX
    alpha_min: float = const.ALPHA_MIN
    transmittance_min: float = const.TRANSMITTANCE_MIN
    blend_last: bool = False
    max_contributors: int = 0
    alpha_gradient_max: float = math.inf
    compensation_min: float = const.COMPENSATION_MIN
    tile_sigmas: float = 0.0

    @classmethod
    def gsplat(cls) -> Blend:
        """The rule of gsplat 1.6, and the default here."""
        return cls()

    @classmethod
    def gsplat_1_0(cls) -> Blend:
        """The rule of gsplat 1.0, which clamps later, and compensates in full."""
        return cls(alpha_max=const.ALPHA_MAX_EARLY, compensation_min=0.0)

    @classmethod
    def inria(cls) -> Blend:
        """The rule of the original program (Kerbl et al. 2023), with its radius; its near plane is at 0.2."""
        return cls(tile_sigmas=const.INRIA_SIGMAS)

    @classmethod
    def rlx(
        cls,
        *,
        alpha_min: float = const.ALPHA_MIN,
        max_contributors: int = 1 << 15,
        alpha_gradient_max: float = math.inf,
    ) -> Blend:
        """The rule of the rlx renderer, which evaluates along rays: the splat that ends a pixel is still blended.

        Args:
          alpha_min: smaller contributions are skipped.
          max_contributors: most splats blended at one pixel.
          alpha_gradient_max: as in the class.

        Returns:
          The rule, with a clamp so near to 1 that only opaque splats feel it; the renderer itself has none.

        Example:
          >>> Blend.rlx(alpha_min=0.01).blend_last
          True
        """
        return cls(
            const.ALPHA_MAX_OPEN,
            alpha_min,
            blend_last=True,
            max_contributors=max_contributors,
            alpha_gradient_max=alpha_gradient_max,
        )


class ScreenProbe(NamedTuple):
    """Zero arrays whose gradients are screen-space statistics, for strategies that densify by them.

    Attributes:
      grad: [..., C, N, 2] its gradient is dL/dmeans2d, summed over the pixels.
      absgrad: [..., C, N, 2] its gradient is the sum over the pixels of |dL/dmeans2d|, per axis; None if not needed.
    """

    grad: jax.Array
    absgrad: jax.Array | None


class RenderInfo(NamedTuple):
    """What the stages of `rasterization` produced on the way.

    Attributes:
      projected: the splats on the screen.
      opacities: [..., C, N] or [..., 1, N], as blended (compensated when `antialiased`).
      last_ids: [..., C, H, W] int32, index of the last splat blended at each pixel, -1 for none.
      list_count: [..., C] int32, the number of tile intersections of each camera. Where it exceeds `max_intersections`,
        the farthest splats are missing.
      left_out: [..., C] int32, the number of entries of tile lists beyond `max_list_entries`, which are not blended.
      visible_count: [..., C] int32, the number of splats that the projection has not culled.
      normals: [..., C, H, W, 3] normals in the world, accumulated by weight; None unless `evaluate="ray"` and a depth
        mode asked for them.
    """

    projected: Projected
    opacities: jax.Array
    last_ids: jax.Array
    list_count: jax.Array
    left_out: jax.Array
    visible_count: jax.Array
    normals: jax.Array | None = None


class RenderOutput(NamedTuple):
    """Pictures.

    Attributes:
      colors: [..., C, H, W, D] rendered channels; a depth mode adds depth as the last channel.
      alphas: [..., C, H, W, 1] accumulated opacity, 1 - transmittance.
      info: intermediate results; None where cameras were rendered in chunks.
    """

    colors: jax.Array
    alphas: jax.Array
    info: RenderInfo | None


class Splats(NamedTuple):
    """A scene as it is stored and optimised: values before their activations.

    Attributes:
      means: [..., N, 3] centres, in world units.
      quats: [..., N, 4] rotations wxyz, any norm.
      log_scales: [..., N, 3] natural logarithm of the standard deviations.
      logit_opacities: [..., N] opacity = sigmoid of this.
      sh_dc: [..., N, 1, 3] degree-0 coefficient of the colour.
      sh_rest: [..., N, K - 1, 3] coefficients of the higher degrees; K - 1 may be zero.
    """

    means: jax.Array
    quats: jax.Array
    log_scales: jax.Array
    logit_opacities: jax.Array
    sh_dc: jax.Array
    sh_rest: jax.Array


class Fragments(NamedTuple):
    """The faces of a mesh at each pixel, nearest first. A slot without a face holds -1 everywhere.

    Attributes:
      pix_to_face: [..., H, W, K] int32, index of the face.
      zbuf: [..., H, W, K] depth, in world units.
      bary_coords: [..., H, W, K, 3] barycentric coordinates.
      dists: [..., H, W, K] squared distance on the screen to the outline of the face, negative inside; in pixels, or in
        the units of `convention="pytorch3d"`.
    """

    pix_to_face: jax.Array
    zbuf: jax.Array
    bary_coords: jax.Array
    dists: jax.Array


class MeshOutput(NamedTuple):
    """Pictures of a mesh.

    Attributes:
      colors: [..., C, H, W, D] what was blended.
      alphas: [..., C, H, W, 1] coverage.
      depths: [..., C, H, W] of the nearest face, `inf` where there is none: a depth limit for splats.
      fragments: the faces of each pixel, with indices and coordinates of the faces given.
    """

    colors: jax.Array
    alphas: jax.Array
    depths: jax.Array
    fragments: Fragments


@dataclasses.dataclass(frozen=True)
class MeshBlend:
    """How the faces of a pixel become its color. Static: a new value compiles anew.

    Attributes:
      sigma: softness of outlines in squared pixels; 0 shows the nearest face alone, with hard outlines.
      gamma: softness of occlusion in inverted depth between the planes.
      cutoff: a face is blended as far out as its coverage is at least this.
      faces_per_pixel: most faces blended at a pixel, the nearest; with hard outlines one is enough.
    """

    sigma: float = 0.0
    gamma: float = 1e-4
    cutoff: float = 1e-4
    faces_per_pixel: int = 1
