"""PlayCanvas's compressed PLY: 16 bytes a splat, in units of the range of its chunk of 256, and SH in 8 bits.

Layout: https://developer.playcanvas.com/user-manual/gaussian-splatting/formats/ply/#compressed-ply
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from jaxsplat.io.arrays import Rows, compact_rows, dc_from_rgb, rgb_from_dc
from jaxsplat.io.files import InputError, atomic_write
from jaxsplat.io.ply_format import Table, rest_coefficients, write_tables
from jaxsplat.io.quantize import (
    bytes_from_logits,
    from_smallest_three,
    logits_from_bytes,
    morton_order,
    smallest_three,
    to_bytes,
)
from jaxsplat.types import Splats

_CHUNK = 256
_VECTOR_BITS = (11, 10, 11)
_QUAT_BITS = (10, 10, 10)
_COLOR_BITS = (8, 8, 8, 8)
_PACKED = ["packed_position", "packed_rotation", "packed_scale", "packed_color"]
_RANGES = [
    f"{end}_{name}" for names in (("x", "y", "z"), ("scale_x", "scale_y", "scale_z"), ("r", "g", "b"))
    for end in ("min", "max") for name in names
]  # fmt: skip
_LOG_SCALE_LIMIT = 20.0  # the files' habit; exp(20) is no size of a splat
_SH_RANGE = 8.0  # coefficients lie in -4 .. 4
_SH_VALUES = ((np.arange(256) + 0.5) / 256.0 - 0.5) * _SH_RANGE
_SH_VALUES[[0, 255]] = -_SH_RANGE / 2, _SH_RANGE / 2


def unpack(path: Path | str, elements: dict[str, dict[str, np.ndarray]]) -> Rows:
    """Splats of the elements `chunk`, `vertex` and, with SH, `sh`.

    Raises:
      InputError: naming what is missing.
    """
    vertex, chunk = elements["vertex"], elements.get("chunk", {})
    names = _RANGES if any(name in chunk for name in _RANGES[12:]) else _RANGES[:12]  # older files have no colours
    missing = [name for name in _PACKED if name not in vertex] + [name for name in names if name not in chunk]
    if missing:
        raise InputError(f"{path}: a compressed PLY that lacks the properties {', '.join(missing)}")
    count = len(vertex[_PACKED[0]])
    chunks = len(chunk["min_x"])
    if chunks * _CHUNK < count:
        raise InputError(f"{path}: {chunks} chunks of {_CHUNK} splats, fewer than its {count} splats")
    ranges = np.stack([chunk[name] for name in names], 1).astype(np.float64)
    ranges = ranges[np.arange(count) // _CHUNK].reshape(count, len(names) // 6, 2, 3)
    words = [vertex[name].astype(np.uint32) for name in _PACKED]
    color = _split(words[3], _COLOR_BITS)
    rgb = color[:, :3]
    if ranges.shape[1] == 3:  # else colours in 0..1
        rgb = _between(ranges[:, 2], rgb)
    coefficients = elements.get("sh", {})
    if coefficients and len(next(iter(coefficients.values()))) != count:
        raise InputError(f"{path}: {len(next(iter(coefficients.values())))} rows of SH for {count} splats")
    rest = rest_coefficients(path, coefficients, count)
    return Rows(
        means=_between(ranges[:, 0], _split(words[0], _VECTOR_BITS)),
        quats=from_smallest_three(words[1] >> 30, _split(words[1], _QUAT_BITS) * 2.0 - 1.0),
        log_scales=_between(ranges[:, 1], _split(words[2], _VECTOR_BITS)),
        logit_opacities=logits_from_bytes(words[3] & 255),
        sh_dc=dc_from_rgb(rgb),
        sh_rest=_SH_VALUES[rest.astype(np.uint8)],
    )


def save_compressed_ply(path: Path | str, splats: Splats) -> None:
    """Writes PlayCanvas's compressed PLY. The splats are reordered, so that those of a chunk are neighbours.

    Args:
      path: file to write, whole or not at all.
      splats: N rows, no batch axes. SH coefficients beyond -4 .. 4 are clamped, the other values are rounded.

    Raises:
      InputError: where rows are not finite or have no rotation, with their number.
      OSError: where the file cannot be written.
      ValueError: where the shapes disagree.

    Example:
      >>> save_compressed_ply("scene.compressed.ply", splats)
    """
    rows = compact_rows(path, "save_compressed_ply", splats)
    order = morton_order(rows.means)
    rows = Rows(*(leaf[order] for leaf in rows))
    count = len(order)
    log_scales = np.clip(rows.log_scales, -_LOG_SCALE_LIMIT, _LOG_SCALE_LIMIT)
    rgb = rgb_from_dc(rows.sh_dc)
    chunk = np.arange(count) // _CHUNK
    starts = np.arange(0, count, _CHUNK)
    ranges, packed = [], []
    for values in (rows.means, log_scales, rgb):
        ends = [np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)] if count else [values, values]
        ranges += ends
        low, extent = ends[0][chunk], (ends[1] - ends[0])[chunk]
        packed.append((values - low) / np.where(extent > 0, extent, 1.0))
    index, others = smallest_three(rows.quats)
    opacity = bytes_from_logits(rows.logit_opacities)
    words = [
        _join(packed[0], _VECTOR_BITS),
        _join(others * 0.5 + 0.5, _QUAT_BITS) | (index.astype(np.uint32) << 30),
        _join(packed[1], _VECTOR_BITS),
        _join(np.concatenate([packed[2], opacity[:, None] / 255.0], 1), _COLOR_BITS),
    ]
    tables = [
        Table("chunk", _RANGES, ["float"] * len(_RANGES), np.concatenate(ranges, 1).astype("<f4")),
        Table("vertex", _PACKED, ["uint"] * 4, np.stack(words, 1).astype("<u4")),
    ]
    rest = rows.sh_rest.transpose(0, 2, 1).reshape(count, 3 * rows.sh_rest.shape[1])
    if rest.shape[1]:
        names = [f"f_rest_{i}" for i in range(rest.shape[1])]
        levels = to_bytes(np.floor((rest / _SH_RANGE + 0.5) * 256.0))
        tables.append(Table("sh", names, ["uchar"] * len(names), levels))
    with atomic_write(path) as file:
        write_tables(file, tables)


def _split(words: np.ndarray, bits: tuple[int, ...]) -> np.ndarray:
    """[N, len(bits)] float64 in 0..1: the fields of each word, the last in its lowest bits."""
    shifts = [sum(bits[k + 1 :]) for k in range(len(bits))]
    return np.stack([(words >> s & (2**b - 1)) / (2.0**b - 1.0) for s, b in zip(shifts, bits, strict=True)], 1)


def _join(values: np.ndarray, bits: tuple[int, ...]) -> np.ndarray:
    words = np.zeros(len(values), np.uint32)
    for k, b in enumerate(bits):
        words |= to_bytes(values[:, k] * (2.0**b - 1.0), largest=2**b - 1).astype(np.uint32) << sum(bits[k + 1 :])
    return words


def _between(ends: np.ndarray, share: np.ndarray) -> np.ndarray:
    return ends[:, 0] + (ends[:, 1] - ends[:, 0]) * share
