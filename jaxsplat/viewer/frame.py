"""One picture for the viewer: what is seen from a camera, in one of several modes, as 8-bit RGB."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import _constants
from jaxsplat.io.images import to_uint8
from jaxsplat.rendering import rasterization
from jaxsplat.types import SHCoeffs, Splats

Mode = Literal["RGB", "depth", "alpha"]
Up = Literal["+x", "-x", "+y", "-y", "+z", "-z"]
MODES: tuple[Mode, ...] = get_args(Mode)

_SIZE_STEP = 32  # sizes are rounded to this, so that a window that is being resized compiles little
_SOLID = 0.5  # depth is shown where the alpha is larger


@dataclasses.dataclass(frozen=True)
class Look:
    """How a scene is shown.

    Attributes:
      mode: colours, or depth (near is bright), or accumulated opacity.
      near: smallest visible depth, in world units.
      far: largest visible depth, in world units.
      background: colour in 0..1.
    """

    mode: Mode = "RGB"
    near: float = _constants.NEAR
    far: float = _constants.FAR
    background: tuple[float, float, float] = (0.0, 0.0, 0.0)


class View(NamedTuple):
    """Where a picture is taken from.

    Attributes:
      viewmat: [4, 4] world to camera, OpenCV axes.
      fov: vertical field of view, in radians.
      aspect: width over height of what is seen.
    """

    viewmat: np.ndarray
    fov: float
    aspect: float


def frame_size(width: int, height: int, largest: int) -> tuple[int, int]:
    """Size of a picture that fills a window: no side beyond `largest`, both multiples of 32 pixels."""
    shrink = min(1.0, largest / max(width, height, 1))
    sides = (max(1, round(side * shrink / _SIZE_STEP)) * _SIZE_STEP for side in (width, height))
    width, height = sides
    return width, height


def make_frame_renderer(*, antialiased: bool = False) -> Callable[[Splats, View, Look, int, int], np.ndarray]:
    """Makes `render(splats, view, look, width, height) -> uint8 [height, width, 3]`.

    The picture shows exactly what the view says, whatever its size: pixels need not be square. Only a new size, and
    the first picture of depth, compile anew.

    Args:
      antialiased: as the splats were trained.

    Returns:
      The function.

    Example:
      >>> render = make_frame_renderer()
      >>> render(load_splats("scene.ply"), View(np.eye(4), fov=0.9, aspect=1.5), Look(), 960, 640).shape
      (640, 960, 3)
    """

    @functools.partial(jax.jit, static_argnames=("width", "height", "depth"))
    def render(
        splats: Splats,
        viewmat: jax.Array,
        K: jax.Array,
        near: float,
        far: float,
        *,
        width: int,
        height: int,
        depth: bool,
    ) -> tuple[jax.Array, jax.Array]:
        coefficients = SHCoeffs(splats.sh_dc, splats.sh_rest)
        count = splats.sh_dc.shape[-2] + splats.sh_rest.shape[-2]
        scales, opacities = jnp.exp(splats.log_scales), jax.nn.sigmoid(splats.logit_opacities)
        output = rasterization(
            splats.means, splats.quats, scales, opacities, coefficients, viewmat[None], K[None],
            width=width, height=height, sh_degree=round(count**0.5) - 1,
            near_plane=near, far_plane=far, render_mode="ED" if depth else "RGB", antialiased=antialiased,
        )  # fmt: skip
        return output.colors[0], output.alphas[0]

    def frame(splats: Splats, view: View, look: Look, width: int, height: int) -> np.ndarray:
        focal = height / (2.0 * math.tan(view.fov / 2.0))
        focal_x = width / (2.0 * math.tan(view.fov / 2.0) * view.aspect)
        K = np.array([[focal_x, 0.0, width / 2.0], [0.0, focal, height / 2.0], [0.0, 0.0, 1.0]], np.float32)
        colors, alphas = render(
            splats, jnp.asarray(view.viewmat, jnp.float32), jnp.asarray(K), look.near, look.far,
            width=width, height=height, depth=look.mode == "depth",
        )  # fmt: skip
        return _picture(np.asarray(colors), np.asarray(alphas), look)

    return frame


def _picture(colors: np.ndarray, alphas: np.ndarray, look: Look) -> np.ndarray:
    if look.mode == "RGB":
        return to_uint8(colors + (1.0 - alphas) * np.asarray(look.background, np.float32))
    if look.mode == "alpha":
        return to_uint8(np.repeat(alphas, 3, -1))
    solid = alphas[..., 0] > _SOLID
    if not solid.any():
        return np.zeros(colors.shape[:2] + (3,), np.uint8)
    # In 1 / depth, near things keep their contrast before a far background.
    near, far = np.percentile(1.0 / colors[solid, 0], (98, 2))
    bright = (1.0 / np.maximum(colors[..., 0], 1e-12) - far) / max(near - far, 1e-12)
    bright = np.where(solid, 0.1 + 0.9 * np.clip(bright, 0.0, 1.0), 0.0)
    return to_uint8(np.repeat(bright[..., None], 3, -1))
