"""The .splat format of antimatter15's viewer: 32 bytes a splat, no header, no SH beyond the colour.

A row is the position and the three scales in float32, then 8-bit red, green, blue, opacity, and a quaternion wxyz whose
components are stored as 128 q + 128.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxsplat.io.arrays import Rows, SplatFile, compact_rows, dc_from_rgb, rgb_from_dc, to_splats
from jaxsplat.io.files import InputError, atomic_write
from jaxsplat.io.quantize import bytes_from_logits, logits_from_bytes, to_bytes
from jaxsplat.types import Splats

_ROW = np.dtype([("means", "<f4", 3), ("scales", "<f4", 3), ("rgba", "u1", 4), ("quats", "u1", 4)])
_SMALLEST_SCALE = np.finfo(np.float32).tiny


def read_dot_splat(path: Path | str, data: bytes) -> SplatFile:
    """Splats of the bytes of a .splat file; a scale of 0 becomes the smallest number whose logarithm is finite.

    Raises:
      InputError: where the size is no multiple of a row.
    """
    if len(data) % _ROW.itemsize:
        raise InputError(f"{path}: {len(data)} bytes are no whole number of rows of {_ROW.itemsize} bytes; truncated?")
    table = np.frombuffer(data, _ROW)
    rows = Rows(
        means=table["means"],
        quats=(table["quats"].astype(np.float32) - 128.0) / 128.0,
        log_scales=np.log(np.maximum(np.abs(table["scales"]), _SMALLEST_SCALE)),
        logit_opacities=logits_from_bytes(table["rgba"][:, 3]),
        sh_dc=dc_from_rgb(table["rgba"][:, :3] / 255.0),
        sh_rest=np.zeros((len(table), 0, 3), np.float32),
    )
    return SplatFile(to_splats(rows), ".splat")


def save_dot_splat(path: Path | str, splats: Splats) -> None:
    """Writes a .splat file. Colours are clamped to 0..1; colours, opacities and rotations are rounded to 8 bits.

    Args:
      path: file to write, whole or not at all.
      splats: N rows of degree 0, no batch axes.

    Raises:
      InputError: where rows are not finite or have no rotation, with their number.
      OSError: where the file cannot be written.
      ValueError: where the shapes disagree.

    Example:
      >>> save_dot_splat("scene.splat", splats)
    """
    rows = compact_rows(path, "save_dot_splat", splats)
    table = np.empty(len(rows.means), _ROW)
    table["means"] = rows.means
    table["scales"] = np.exp(np.clip(rows.log_scales.astype(np.float64), -87.0, 88.0))
    table["rgba"][:, :3] = to_bytes(rgb_from_dc(rows.sh_dc) * 255.0)
    table["rgba"][:, 3] = bytes_from_logits(rows.logit_opacities)
    table["quats"] = to_bytes(rows.quats * 128.0 + 128.0)
    with atomic_write(path) as file:
        file.write(table.tobytes())
