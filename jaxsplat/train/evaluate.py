"""How well splats show views that they were not trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import losses
from jaxsplat.data.capture import Capture
from jaxsplat.io.images import save_image, to_uint8
from jaxsplat.train.render import make_renderer
from jaxsplat.types import Backend, Splats

_ERROR_GAIN = 4.0


class ViewMetrics(NamedTuple):
    """One view's agreement with its photograph.

    Attributes:
      name: of the view.
      psnr: in dB.
      ssim: 1 where both are equal.
      lpips: 0 where both look equal; None where it was not asked for.
    """

    name: str
    psnr: float
    ssim: float
    lpips: float | None = None


class Evaluation(NamedTuple):
    """Agreement over views.

    Attributes:
      psnr: mean, in dB.
      ssim: mean.
      views: each view.
      images: [V, H, W, 3] uint8 rendered pictures.
    """

    psnr: float
    ssim: float
    views: tuple[ViewMetrics, ...]
    images: np.ndarray


def evaluate(
    splats: Splats,
    capture: Capture,
    *,
    antialiased: bool = False,
    backend: Backend = "auto",
    lpips: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
) -> Evaluation:
    """Renders the held-out views and compares them with the photographs; of all views where none is held out.

    Args:
      splats: in the world of the capture.
      capture: photographs.
      antialiased: as the splats were trained.
      backend: renderer.
      lpips: of `make_lpips`, to have that figure of each view too; hidden pixels are alike for it.

    Returns:
      PSNR and SSIM of pictures clipped to 0..1; pixels that the capture's masks hide do not count.

    Example:
      >>> evaluate(load_ply("point_cloud.ply"), capture).psnr
    """
    background = (float(capture.background[0]), float(capture.background[1]), float(capture.background[2]))
    cameras = capture.cameras
    render = make_renderer(
        width=cameras.width, height=cameras.height, background=background, antialiased=antialiased, backend=backend
    )
    views, images = [], []
    for i in held_out_views(capture):
        view = jax.tree.map(
            lambda leaf, i=i: jnp.asarray(leaf[i : i + 1]), (cameras.viewmats, cameras.Ks, cameras.lens)
        )
        image = render(splats, *view)[0]
        truth = jnp.asarray(capture.images[i]).astype(image.dtype) / 255.0
        masks = None if capture.masks is None else jnp.asarray(capture.masks[i])
        psnr, ssim = losses.psnr(image, truth, masks=masks), losses.ssim(image, truth, masks=masks)
        shown = image if masks is None else jnp.where(masks[..., None], image, truth)
        distance = None if lpips is None else float(lpips(shown, truth))
        views.append(ViewMetrics(cameras.names[i], float(psnr), float(ssim), distance))
        images.append(to_uint8(np.asarray(image)))
    means = np.mean([(view.psnr, view.ssim) for view in views], 0)
    return Evaluation(float(means[0]), float(means[1]), tuple(views), np.stack(images))


def held_out_views(capture: Capture) -> np.ndarray:
    """Indices of the views to evaluate on."""
    held_out = capture.held_out if capture.held_out.any() else np.ones_like(capture.held_out)
    return np.flatnonzero(held_out)


def save_pictures(folder: Path, evaluation: Evaluation, capture: Capture) -> None:
    """Writes truth, render and error (four times enlarged, white is large) side by side, a file a view.

    Args:
      folder: where to; made if needed.
      evaluation: of the capture's held-out views.
      capture: photographs.

    Raises:
      OSError: where a file cannot be written.

    Example:
      >>> save_pictures(Path("pictures"), evaluate(splats, capture), capture)
    """
    for view, image, i in zip(evaluation.views, evaluation.images, held_out_views(capture), strict=True):
        truth, error = capture.images[i], error_map(capture, int(i), image)
        save_image(folder / picture_name(view.name), np.concatenate([truth, image, error], 1))


def error_map(capture: Capture, view: int, image: np.ndarray) -> np.ndarray:
    """Mean absolute difference of the channels where pixels count, enlarged: uint8 [H, W, 3], white is large."""
    error = np.abs(capture.images[view].astype(np.float32) - image.astype(np.float32)).mean(-1, keepdims=True)
    if capture.masks is not None:
        error *= capture.masks[view][..., None]
    return np.repeat(np.clip(error * _ERROR_GAIN, 0, 255).astype(np.uint8), 3, -1)


def picture_name(view: str) -> str:
    """A file name for a view: folders become underscores, the ending becomes .png."""
    return str(Path(view).with_suffix("")).lstrip("./\\").replace("/", "_").replace("\\", "_") + ".png"


def as_json(evaluation: Evaluation) -> dict[str, Any]:
    """The figures as JSON values."""
    views = [{k: v for k, v in view._asdict().items() if v is not None} for view in evaluation.views]
    return {"psnr": evaluation.psnr, "ssim": evaluation.ssim, "views": views}


def aligned_note(evaluation: Evaluation, steps: int) -> str:
    """What an evaluation with aligned cameras came to, as a sentence."""
    return (
        f"With each held-out camera aligned to the scene in {steps} steps: PSNR {evaluation.psnr:.2f} dB, "
        f"SSIM {evaluation.ssim:.4f}."
    )
