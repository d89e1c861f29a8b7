"""The cameras of a finished run: as it learned them, and held-out ones put where the scene shows their photographs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxsplat import losses
from jaxsplat.cameras import Lens
from jaxsplat.data.capture import Cameras, Capture
from jaxsplat.data.normalize import Normalization, normalization
from jaxsplat.io.files import InputError, load_json
from jaxsplat.train.evaluate import held_out_views
from jaxsplat.train.poses import CameraDeltas, refined_intrinsics, refined_viewmats
from jaxsplat.train.render import render_splats
from jaxsplat.types import Backend, Splats

_RATE, _RATE_END = 2e-3, 0.01
"""Learning rate of an alignment, in radians and units of the scene's size, and the fraction that is left at its end."""


def learned_capture(capture: Capture, deltas: CameraDeltas, normal: Normalization) -> Capture:
    """The capture with the cameras that a run learned: the poses of training views, the intrinsics of all.

    Args:
      capture: as it was loaded.
      deltas: of the training views, in the normalised scene.
      normal: from the world of the capture to that scene.

    Returns:
      The same photographs with other cameras. Held-out poses stay: nothing was learned about them.
    """
    cameras, training = capture.cameras, ~capture.held_out
    normalized = jnp.asarray(normal.viewmats(cameras.viewmats[training]))
    moved = np.asarray(refined_viewmats(normalized, deltas.rotations, deltas.translations), np.float64)
    moved[:, :3, 3] = moved[:, :3, 3] * normal.scale - moved[:, :3, :3] @ normal.center
    viewmats = cameras.viewmats.copy()
    viewmats[training] = moved
    Ks = refined_intrinsics(
        jnp.asarray(cameras.Ks), deltas.log_focals, deltas.centers, width=cameras.width, height=cameras.height
    )
    return dataclasses.replace(capture, cameras=cameras._replace(viewmats=viewmats, Ks=np.asarray(Ks)))


def cameras_as_json(cameras: Cameras) -> dict[str, Any]:
    """Cameras as JSON values, for `with_cameras`."""
    views = [
        {"name": name, "viewmat": viewmat.astype(float).tolist(), "K": K.astype(float).tolist()}
        for name, viewmat, K in zip(cameras.names, cameras.viewmats, cameras.Ks, strict=True)
    ]
    return {"width": cameras.width, "height": cameras.height, "views": views}


def with_cameras(capture: Capture, path: Path) -> Capture:
    """The capture with the cameras of a file that `cameras_as_json` made, scaled to the size of its pictures.

    Args:
      capture: of the same views.
      path: of the file.

    Returns:
      The same photographs with other cameras.

    Raises:
      InputError: where the file is damaged or lacks a view.
    """
    content, cameras = load_json(path), capture.cameras
    try:
        by_name = {view["name"]: view for view in content["views"]}
        scale = np.diag([cameras.width / content["width"], cameras.height / content["height"], 1.0])
        views = [by_name[name] for name in cameras.names]
        viewmats = np.array([view["viewmat"] for view in views], np.float32).reshape(-1, 4, 4)
        Ks = (scale @ np.array([view["K"] for view in views], np.float64).reshape(-1, 3, 3)).astype(np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: does not hold the cameras of this capture ({error!r})") from None
    return dataclasses.replace(capture, cameras=cameras._replace(viewmats=viewmats, Ks=Ks))


def aligned_capture(
    splats: Splats, capture: Capture, *, steps: int, antialiased: bool = False, backend: Backend = "auto"
) -> Capture:
    """The capture with its held-out cameras where the finished scene shows their photographs best.

    A run that learns poses may turn or shift its whole scene a little, and the files' held-out poses are as wrong as
    those that were corrected: without this, their figures measure the poses. Splats and intrinsics stay; only six
    numbers a view are fitted, by Adam on the L1 loss.

    Args:
      splats: in the world of the capture.
      capture: photographs.
      steps: for each view; 100 are usual.
      antialiased: as the splats were trained.
      backend: renderer.

    Returns:
      The same photographs with other cameras.

    Example:
      >>> evaluate(splats, aligned_capture(splats, capture, steps=100)).psnr
    """
    cameras = capture.cameras
    points = None if capture.points is None else capture.points.points
    unit = normalization(cameras.viewmats[~capture.held_out], points).scale
    background = jnp.asarray(capture.background)[None]
    optimizer = optax.scale_by_adam()

    def moved(viewmat: jax.Array, delta: jax.Array) -> jax.Array:
        return refined_viewmats(viewmat[None], delta[None, :3], unit * delta[None, 3:])

    @jax.jit
    def fitted(
        splats: Splats, viewmat: jax.Array, K: jax.Array, lens: Lens | None, image: jax.Array, mask: jax.Array | None
    ) -> jax.Array:
        target = image[None].astype(splats.means.dtype) / 255.0

        def loss(delta: jax.Array) -> jax.Array:
            output = render_splats(
                splats, moved(viewmat, delta), K[None], width=cameras.width, height=cameras.height,
                background=background, antialiased=antialiased, backend=backend, lens=lens,
            )  # fmt: skip
            return losses.l1(output.colors, target, masks=None if mask is None else mask[None]).mean()

        def step(k: jax.Array, carry: tuple[jax.Array, Any]) -> tuple[jax.Array, Any]:
            delta, state = carry
            update, state = optimizer.update(jax.grad(loss)(delta), state)
            rate = _RATE * _RATE_END ** (k / steps)
            return delta - rate * jnp.asarray(update), state

        zero = jnp.zeros(6, splats.means.dtype)
        delta, _ = jax.lax.fori_loop(0, steps, step, (zero, optimizer.init(zero)))
        return moved(viewmat, delta)[0]

    viewmats = cameras.viewmats.copy()
    for i in held_out_views(capture):
        mask = None if capture.masks is None else jnp.asarray(capture.masks[i])
        view = jax.tree.map(lambda leaf, i=i: jnp.asarray(leaf[i]), (viewmats, cameras.Ks, cameras.lens))
        viewmats[i] = np.asarray(fitted(splats, *view, jnp.asarray(capture.images[i]), mask))
    return dataclasses.replace(capture, cameras=cameras._replace(viewmats=viewmats))
