"""Pictures one after another as a film."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

from jaxsplat.io.files import InputError, atomic_write

SUFFIXES = (".webp", ".gif", ".mp4")


def check_video_name(path: Path) -> None:
    """Raises InputError unless a film of this name can be written."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: a video must end in one of {', '.join(SUFFIXES)}")
    if path.suffix.lower() == ".mp4":
        try:
            import imageio_ffmpeg  # noqa: F401
        except ImportError:
            raise InputError(f"{path}: .mp4 needs 'pip install imageio-ffmpeg'; .webp needs nothing more") from None


def save_video(path: Path | str, images: Iterable[np.ndarray], *, fps: int = 30) -> None:
    """Writes a film, whole or not at all; the ending (.webp, .gif, .mp4) says the format.

    Args:
      path: file to write.
      images: uint8 [H, W, 3] each.
      fps: pictures a second.

    Raises:
      InputError: where the format is unknown or its encoder is not installed.
      OSError: where the file cannot be written.

    Example:
      >>> save_video("path.webp", images)
    """
    path = Path(path)
    check_video_name(path)
    if path.suffix.lower() == ".mp4":
        _save_mp4(path, images, fps)
        return
    first, *rest = (Image.fromarray(image) for image in images)
    form = path.suffix[1:].upper()
    with atomic_write(path) as file:
        first.save(file, form, save_all=True, append_images=rest, duration=round(1000 / fps), loop=0)


def _save_mp4(path: Path, images: Iterable[np.ndarray], fps: int) -> None:
    import imageio_ffmpeg

    frames = [_even(image) for image in images]
    height, width = frames[0].shape[:2]
    with tempfile.TemporaryDirectory() as folder:
        film = Path(folder) / "film.mp4"
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]
        command += ["-s", f"{width}x{height}", "-r", str(fps), "-i", "-", "-pix_fmt", "yuv420p", str(film)]
        # Run directly: the package's own writer forks, against which JAX's threads warn.
        done = subprocess.run(command, input=b"".join(frame.tobytes() for frame in frames), capture_output=True)
        if done.returncode:
            raise OSError(f"{path}: the encoder failed: {done.stderr.decode(errors='replace').strip()}")
        with atomic_write(path) as file:
            file.write(film.read_bytes())


def _even(image: np.ndarray) -> np.ndarray:
    """The usual encoding needs even sizes: a last odd row or column is dropped."""
    return image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2]
