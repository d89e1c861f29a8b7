"""Stored splats as pictures."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxsplat.cameras import Lens
from jaxsplat.rendering import rasterization
from jaxsplat.types import Backend, RenderOutput, ScreenProbe, SHCoeffs, Splats


def render_splats(
    splats: Splats,
    viewmats: jax.Array,
    Ks: jax.Array,
    *,
    width: int,
    height: int,
    background: tuple[float, float, float] | jax.Array = (0.0, 0.0, 0.0),
    sh_factors: jax.Array | None = None,
    antialiased: bool = False,
    backend: Backend = "auto",
    depth: bool = False,
    probe: ScreenProbe | None = None,
    lens: Lens | None = None,
) -> RenderOutput:
    """Renders stored splats: activations, then `rasterization` with every SH band that they hold.

    Args:
      splats: N rows.
      viewmats: [C, 4, 4] world to camera.
      Ks: [C, 3, 3] intrinsics in pixels.
      width: of the pictures, in pixels.
      height: of the pictures, in pixels.
      background: colour in 0..1, of all pictures, or an array [C, 3].
      sh_factors: [K] by which each SH function is multiplied; None for 1.
      antialiased: as the splats were trained.
      backend: renderer.
      depth: whether to add the expected depth as a fourth channel.
      probe: zeros [C, N, 2] whose gradients are screen-space statistics.
      lens: of the cameras; None for pinholes.

    Returns:
      Pictures [C, H, W, 3] and their alphas.

    Example:
      >>> render_splats(load_ply("scene.ply"), viewmats, Ks, width=270, height=480).colors
    """
    count = splats.sh_dc.shape[-2] + splats.sh_rest.shape[-2]
    colors = None  # black costs nothing
    if isinstance(background, jax.Array):
        colors = background
    elif any(background):
        colors = jnp.broadcast_to(jnp.asarray(background, splats.means.dtype), (viewmats.shape[-3], 3))
    return rasterization(
        splats.means,
        splats.quats,
        jnp.exp(splats.log_scales),
        jax.nn.sigmoid(splats.logit_opacities),
        SHCoeffs(splats.sh_dc, splats.sh_rest, sh_factors),
        viewmats,
        Ks,
        width=width,
        height=height,
        sh_degree=round(count**0.5) - 1,
        backgrounds=colors,
        antialiased=antialiased,
        backend=backend,
        render_mode="RGB+ED" if depth else "RGB",
        probe=probe,
        camera_model="pinhole" if lens is None else lens,
    )


def make_renderer(
    *,
    width: int,
    height: int,
    background: tuple[float, float, float] = (0.0, 0.0, 0.0),
    antialiased: bool = False,
    backend: Backend = "auto",
) -> Callable[..., jax.Array]:
    """Makes a compiled `render(splats, viewmats, Ks, lens=None) -> colors [C, H, W, 3]`, with values clipped to 0..1.

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

    def render(splats: Splats, viewmats: jax.Array, Ks: jax.Array, lens: Lens | None = None) -> jax.Array:
        output = render_splats(
            splats,
            viewmats,
            Ks,
            width=width,
            height=height,
            background=background,
            antialiased=antialiased,
            backend=backend,
            lens=lens,
        )
        return jnp.clip(output.colors, 0.0, 1.0)

    return jax.jit(render)
