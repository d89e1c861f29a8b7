"""poses_bounds.npy, as LLFF writes it: one row a picture, in the order of the pictures' names."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxsplat.data.frame import Camera, Frame, Source, viewmat_from_opengl
from jaxsplat.data.locate import ENDINGS
from jaxsplat.io.files import InputError

POSES = "poses_bounds.npy"
_COLUMNS = 17


def load_llff(folder: Path) -> Source:
    """Reads poses and names; row i belongs to the i-th picture by name, of `images` or the first of `images_2` ....

    Args:
      folder: with poses_bounds.npy and the folder of pictures.

    Returns:
      One frame a picture.

    Raises:
      InputError: where the file is damaged, or there are not as many pictures as rows.

    Example:
      >>> load_llff(Path("tankard")).frames[0].camera.fl_x
      10547.24
    """
    path = folder / POSES
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path}: unreadable array ({error})") from None
    if rows.ndim != 2 or rows.shape[1] != _COLUMNS or rows.dtype.kind != "f":
        raise InputError(f"{path}: expected floating-point numbers [V, {_COLUMNS}], got {rows.dtype}{list(rows.shape)}")
    places = [p for p in (folder / "images", *sorted(folder.glob("images_*"))) if p.is_dir()]
    if not places:
        raise InputError(f"{folder}: there is no folder images (or images_2 ...) beside {POSES}")
    names = sorted(p.name for p in places[0].iterdir() if p.suffix.lower() in ENDINGS and ".mask" not in p.suffixes)
    if len(names) != len(rows):
        raise InputError(f"{places[0]}: {len(names)} pictures, but {path.name} has {len(rows)} rows")
    frames = tuple(_frame(path, folder, name, i, row) for i, (name, row) in enumerate(zip(names, rows, strict=True)))
    return Source(POSES, path, frames, None)


def _frame(path: Path, folder: Path, name: str, index: int, row: np.ndarray) -> Frame:
    where = f"{path}: row {index} ({name!r})"
    matrix = row[:15].reshape(3, 5)
    down, right, back, center, (height, width, focal) = matrix.T
    if not np.isfinite(row).all() or min(height, width, focal) <= 0:
        raise InputError(f"{where}: expected finite numbers and a positive size and focal length, got {row.tolist()}")
    pose = viewmat_from_opengl(where, np.stack([right, -down, back, center], 1))
    camera = Camera(fl_x=float(focal), fl_y=float(focal), w=float(width), h=float(height))
    return Frame(name, folder / "images" / name, pose, camera, where)
