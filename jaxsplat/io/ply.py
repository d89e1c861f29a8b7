"""Splat files and point clouds as .ply, in the layout of the original 3D Gaussian splatting that every viewer reads."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxsplat.io.arrays import Rows, SplatFile, dc_from_rgb, to_rows, to_splats
from jaxsplat.io.compressed_ply import unpack
from jaxsplat.io.files import InputError, atomic_write
from jaxsplat.io.ply_format import Table, read_elements, read_vertices, rest_coefficients, write_tables
from jaxsplat.io.quantize import to_bytes
from jaxsplat.types import Splats

_DC = ["f_dc_0", "f_dc_1", "f_dc_2"]
_RGB = ["red", "green", "blue"]
_SCALES = ["scale_0", "scale_1", "scale_2"]
_QUATS = ["rot_0", "rot_1", "rot_2", "rot_3"]
_GEOMETRY = ["x", "y", "z", "opacity", *_SCALES, *_QUATS]


class PointCloud(NamedTuple):
    """Coloured points.

    Attributes:
      points: [P, 3] float32 positions, in world units.
      colors: [P, 3] float32 in 0..1; mid grey where the file has none.
    """

    points: np.ndarray
    colors: np.ndarray


def load_ply(path: Path | str) -> Splats:
    """Reads splats from a .ply file of any property order, byte order and SH degree, PlayCanvas's compressed form too.

    Args:
      path: file to read.

    Returns:
      The stored values, float32, unchanged: quaternions of any norm, logits of any size.

    Raises:
      InputError: where the file is damaged, or holds no splats (naming the properties that are missing).

    Example:
      >>> splats = load_ply("point_cloud.ply")
      >>> splats.means.shape
      (1000, 3)
    """
    return read_ply(path).splats


def read_ply(path: Path | str) -> SplatFile:
    """Reads splats as `load_ply` does, and says what else the file holds."""
    elements = read_elements(path, "chunk", "vertex", "sh")
    columns = elements.get("vertex")
    if columns is None:
        raise InputError(f"{path}: has no element 'vertex'")
    if "packed_position" in columns:
        return SplatFile(to_splats(unpack(path, elements)), "PlayCanvas compressed PLY")
    missing = [name for name in _GEOMETRY if name not in columns]
    colors = _DC if all(name in columns for name in _DC) else _RGB
    if any(name not in columns for name in colors):
        missing += [name for name in _DC if name not in columns]
    if missing:
        raise InputError(
            f"{path}: no splats, perhaps a mesh or a point cloud: it lacks the properties {', '.join(missing)}"
        )
    rows = Rows(
        means=_stack(columns, ["x", "y", "z"]),
        quats=_stack(columns, _QUATS),
        log_scales=_stack(columns, _SCALES),
        logit_opacities=columns["opacity"].astype(np.float32),
        sh_dc=_stack(columns, _DC) if colors is _DC else dc_from_rgb(_rgb(columns)),
        sh_rest=rest_coefficients(path, columns, len(columns["x"])),
    )
    used = {*_GEOMETRY, *colors, "nx", "ny", "nz"}
    others = [name for name in columns if name not in used and not name.startswith("f_rest_")]
    notes = (f"Properties that are no part of a splat: {', '.join(others)}.",) if others else ()
    return SplatFile(to_splats(rows), "PLY", notes)


def save_ply(path: Path | str, splats: Splats) -> None:
    """Writes splats in the layout of the original 3DGS: SH channel by channel, values before their activations.

    Args:
      path: file to write, whole or not at all.
      splats: N rows, no batch axes.

    Raises:
      OSError: where the file cannot be written.
      ValueError: where the shapes disagree.

    Example:
      >>> save_ply("point_cloud.ply", splats)
    """
    rows = to_rows("save_ply", splats)
    count = len(rows.means)
    rest = rows.sh_rest.transpose(0, 2, 1).reshape(count, 3 * rows.sh_rest.shape[1])
    names = ["x", "y", "z", "nx", "ny", "nz", *_DC, *(f"f_rest_{i}" for i in range(rest.shape[1]))]
    names += ["opacity", *_SCALES, *_QUATS]
    normals = np.zeros_like(rows.means)
    parts = (rows.means, normals, rows.sh_dc, rest, rows.logit_opacities[:, None], rows.log_scales, rows.quats)
    table = Table("vertex", names, ["float"] * len(names), np.concatenate(parts, 1).astype("<f4"))
    with atomic_write(path) as file:
        write_tables(file, [table])


def load_points(path: Path | str) -> PointCloud:
    """Reads a point cloud from a .ply file.

    Args:
      path: file to read.

    Returns:
      Positions and colours; points that are not finite are left out.

    Raises:
      InputError: where the file is damaged or has no x, y, z.

    Example:
      >>> load_points("sparse_pc.ply").points.shape
      (7862, 3)
    """
    columns = read_vertices(path)
    missing = [name for name in ("x", "y", "z") if name not in columns]
    if missing:
        raise InputError(f"{path}: no points: it lacks the properties {', '.join(missing)}")
    points = _stack(columns, ["x", "y", "z"])
    known = all(name in columns for name in _RGB)
    colors = _rgb(columns) if known else np.full_like(points, 0.5)
    finite = np.isfinite(points).all(1)
    return PointCloud(points[finite], colors[finite])


def save_points(path: Path | str, cloud: PointCloud) -> None:
    """Writes a point cloud with 8-bit colours.

    Args:
      path: file to write, whole or not at all.
      cloud: points and colours.

    Raises:
      OSError: where the file cannot be written.

    Example:
      >>> save_points("points3d.ply", PointCloud(points, colors))
    """
    positions = np.ascontiguousarray(cloud.points, "<f4").view("u1").reshape(len(cloud.points), 12)
    table = np.concatenate([positions, to_bytes(cloud.colors * 255.0)], 1)
    with atomic_write(path) as file:
        write_tables(file, [Table("vertex", ["x", "y", "z", *_RGB], ["float"] * 3 + ["uchar"] * 3, table)])


def _stack(columns: dict[str, np.ndarray], names: list[str]) -> np.ndarray:
    if not names:
        return np.zeros((len(columns["x"]), 0), np.float32)
    return np.stack([columns[name].astype(np.float32) for name in names], 1)


def _rgb(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Colours in 0..1: whole numbers are scaled by their type's range, floats are taken as they are."""
    kind = columns["red"].dtype
    scale = 1.0 if kind.kind == "f" else float(np.iinfo(kind).max)
    return _stack(columns, _RGB) / np.float32(scale)
