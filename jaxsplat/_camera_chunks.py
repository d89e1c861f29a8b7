"""Renders some cameras at a time: less memory, for a second forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxsplat.rasterize.gaussians_3d import per_pixel
from jaxsplat.types import RenderOutput

# Where the camera axis stands, counted from the last axis.
_CAMERA_AXIS = {
    "viewmats": -3, "Ks": -3, "backgrounds": -2, "depth_limit": -3, "masks": -3, "probe": -3, "rays": -4,
    "near_plane": -1, "far_plane": -1, "colors": -3, "lens": -2, "shutter": -3,
}  # fmt: skip


def render_in_chunks(
    render: Callable[[dict[str, Any], dict[str, Any]], RenderOutput],
    splats: dict[str, Any],
    cameras: dict[str, Any],
    *,
    chunk: int,
    image_axes: int,
) -> RenderOutput:
    """Renders `chunk` cameras at a time, and computes each chunk again in the backward pass.

    Args:
      render: the pipeline, called with the splats and with a part of the cameras.
      splats: what all cameras share, by name.
      cameras: what each camera has of its own, by name; the names are those of `_CAMERA_AXIS`.
      chunk: cameras at a time.
      image_axes: number of axes of the images, cameras included.

    Returns:
      What `render` returns for all cameras at once, without `info`.
    """
    axes = _CAMERA_AXIS
    if cameras["backgrounds"] is not None and per_pixel(cameras["backgrounds"], image_axes):
        axes = {**axes, "backgrounds": -4}
    count = cameras["viewmats"].shape[-3]
    # Camera axis first, so that a loop can run over it. A scalar plane is shared by all cameras.
    shared = {name: x for name, x in cameras.items() if x is None or (hasattr(x, "ndim") and x.ndim == 0)}
    split = {
        name: jax.tree.map(lambda leaf, axis=axes[name]: jnp.moveaxis(leaf, axis, 0), x)
        for name, x in cameras.items()
        if name not in shared
    }

    def render_chunk(part: dict[str, Any]) -> tuple[jax.Array, jax.Array]:
        part = {
            name: jax.tree.map(lambda leaf, axis=axes[name]: jnp.moveaxis(leaf, 0, axis), x) for name, x in part.items()
        }
        output = render(splats, {**shared, **part})
        return jnp.moveaxis(output.colors, -4, 0), jnp.moveaxis(output.alphas, -4, 0)

    render_chunk = jax.checkpoint(render_chunk, prevent_cse=False)
    whole = count // chunk * chunk
    parts = []
    if whole:
        stacked = jax.tree.map(lambda x: x[:whole].reshape(whole // chunk, chunk, *x.shape[1:]), split)
        images = jax.lax.map(render_chunk, stacked)
        parts.append([x.reshape(whole, *x.shape[2:]) for x in images])
    if whole < count or count == 0:
        parts.append(render_chunk(jax.tree.map(lambda x: x[whole:], split)))
    images = parts[0] if len(parts) == 1 else [jnp.concatenate(pair) for pair in zip(*parts, strict=True)]
    return RenderOutput(*(jnp.moveaxis(x, 0, -4) for x in images), info=None)
