"""Pictures as arrays: any file that Pillow reads becomes 8-bit RGB or RGBA."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from jaxsplat.io.files import InputError, atomic_write


def load_image(path: Path | str) -> np.ndarray:
    """Reads a picture; greyscale, palette, CMYK and 16-bit files are converted.

    Pixels come as they are stored: a rotation tag is not applied, because camera poses refer to the stored pixels.

    Args:
      path: file to read.

    Returns:
      uint8 [H, W, 3], or [H, W, 4] where the file has an alpha channel (not premultiplied).

    Raises:
      InputError: where the file cannot be read as a picture.

    Example:
      >>> load_image("photo.png").shape
      (480, 270, 3)
    """
    try:
        with Image.open(path) as image:
            image.load()
            return _to_8_bit(image)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: unreadable image ({error})") from None


class ImageHeader(NamedTuple):
    """What a picture says of itself.

    Attributes:
      width: in pixels, as stored.
      height: in pixels.
      has_alpha: whether pixels may be transparent.
    """

    width: int
    height: int
    has_alpha: bool


def image_header(path: Path | str) -> ImageHeader:
    """Reads size and kind of a picture without its pixels.

    Args:
      path: file to read.

    Returns:
      The header.

    Raises:
      InputError: where the file cannot be read as a picture.

    Example:
      >>> image_header("photo.png").width
      270
    """
    try:
        with Image.open(path) as image:
            return ImageHeader(*image.size, _has_alpha(image))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path}: unreadable image ({error})") from None


def _has_alpha(image: Image.Image) -> bool:
    return image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info


def _to_8_bit(image: Image.Image) -> np.ndarray:
    if image.mode.startswith("I"):
        # 16-bit greyscale: Pillow's own conversion would clip at 255 instead of scaling.
        grey = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
        return np.repeat(((grey + 128) // 257).astype(np.uint8)[..., None], 3, -1)
    if image.mode == "F":
        raise ValueError("floating-point pixels have no agreed range")
    return np.asarray(image.convert("RGBA" if _has_alpha(image) else "RGB"))


def composite(image: np.ndarray, background: np.ndarray) -> np.ndarray:
    """Puts an RGBA picture on a background; an RGB picture comes back as it is.

    Args:
      image: uint8 [H, W, 3 or 4].
      background: [3] colour in 0..1.

    Returns:
      uint8 [H, W, 3].

    Example:
      >>> composite(load_image("chair.png"), np.ones(3))
    """
    if image.shape[-1] == 3:
        return image
    alpha = image[..., 3:].astype(np.float32) / 255.0
    color = image[..., :3] * alpha + 255.0 * background.astype(np.float32) * (1.0 - alpha)
    return np.round(color).astype(np.uint8)


def downscaled(image: np.ndarray, factor: int) -> np.ndarray:
    """Shrinks a picture by an integer factor: the mean over the area of each new pixel.

    Args:
      image: uint8 [H, W, 3] or [H, W].
      factor: at least 1. Where it does not divide the size, the new size is rounded down and the areas are stretched.

    Returns:
      uint8 [H // factor, W // factor, 3], or without the last axis.

    Example:
      >>> downscaled(np.zeros((960, 540, 3), np.uint8), 2).shape
      (480, 270, 3)
    """
    if factor == 1:
        return image
    height, width = image.shape[:2]
    size = (max(width // factor, 1), max(height // factor, 1))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BOX))


def to_uint8(image: np.ndarray) -> np.ndarray:
    """Rounds values in 0..1 to 0..255 and clips the others."""
    return np.round(np.clip(np.nan_to_num(image), 0.0, 1.0) * 255.0).astype(np.uint8)


def save_image(path: Path | str, image: np.ndarray) -> None:
    """Writes a picture, whole or not at all; the ending says the format.

    Args:
      path: file to write.
      image: [H, W, 3], uint8 or floating-point in 0..1.

    Raises:
      OSError: where the file cannot be written.

    Example:
      >>> save_image("render.png", render)
    """
    path = Path(path)
    pixels = image if image.dtype == np.uint8 else to_uint8(image)
    form = Image.registered_extensions().get(path.suffix.lower())
    if form is None:
        raise InputError(f"{path}: unknown picture format {path.suffix!r}")
    with atomic_write(path) as file:
        Image.fromarray(pixels).save(file, format=form)
