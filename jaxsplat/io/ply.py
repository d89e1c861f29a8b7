"""Splat files and point clouds as .ply, in the layout of the original 3D Gaussian splatting that every viewer reads."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxsplat import _check
from jaxsplat.io.files import InputError, atomic_write
from jaxsplat.io.ply_format import read_vertices
from jaxsplat.sh import rgb_to_sh
from jaxsplat.types import Splats

_REST_SIZES = {3 * (degree + 1) ** 2 - 3 for degree in range(5)}


class PointCloud(NamedTuple):
    """Coloured points.

    Attributes:
      points: [P, 3] float32 positions, in world units.
      colors: [P, 3] float32 in 0..1; mid grey where the file has none.
    """

    points: np.ndarray
    colors: np.ndarray


def load_ply(path: Path | str) -> Splats:
    """Reads splats from a .ply file of any property order, byte order and SH degree.

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
    columns = read_vertices(path)
    has_colors = all(name in columns for name in ("red", "green", "blue"))
    color_names = ["f_dc_0", "f_dc_1", "f_dc_2"]
    needed = ["x", "y", "z", "opacity", *(f"scale_{i}" for i in range(3)), *(f"rot_{i}" for i in range(4))]
    missing = [name for name in needed if name not in columns]
    if not has_colors:
        missing += [name for name in color_names if name not in columns]
    if missing:
        raise InputError(
            f"{path}: no splats, perhaps a mesh or a point cloud: it lacks the properties {', '.join(missing)}"
        )
    if all(name in columns for name in color_names):
        sh_dc = _stack(columns, color_names)
    else:
        sh_dc = np.asarray(rgb_to_sh(jnp.asarray(_rgb(columns))))
    rest = sum(name.startswith("f_rest_") for name in columns)
    if rest not in _REST_SIZES or any(f"f_rest_{i}" not in columns for i in range(rest)):
        raise InputError(
            f"{path}: {rest} properties f_rest_*, expected f_rest_0 onwards and one of {sorted(_REST_SIZES)}"
        )
    count = len(columns["x"])
    sh_rest = _stack(columns, [f"f_rest_{i}" for i in range(rest)]).reshape(count, 3, rest // 3)
    return Splats(
        means=jnp.asarray(_stack(columns, ["x", "y", "z"])),
        quats=jnp.asarray(_stack(columns, [f"rot_{i}" for i in range(4)])),
        log_scales=jnp.asarray(_stack(columns, [f"scale_{i}" for i in range(3)])),
        logit_opacities=jnp.asarray(columns["opacity"].astype(np.float32)),
        sh_dc=jnp.asarray(sh_dc[:, None, :]),
        sh_rest=jnp.asarray(sh_rest.transpose(0, 2, 1)),
    )


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
    _check.shapes(
        "save_ply",
        means=(splats.means, "N 3"),
        quats=(splats.quats, "N 4"),
        log_scales=(splats.log_scales, "N 3"),
        logit_opacities=(splats.logit_opacities, "N"),
        sh_dc=(splats.sh_dc, "N 1 3"),
        sh_rest=(splats.sh_rest, "N R 3"),
    )
    means, quats, log_scales, logits, sh_dc, sh_rest = (np.asarray(leaf, np.float32) for leaf in splats)
    count = len(means)
    rest = sh_rest.transpose(0, 2, 1).reshape(count, 3 * sh_rest.shape[1])
    names = [
        "x",
        "y",
        "z",
        "nx",
        "ny",
        "nz",
        "f_dc_0",
        "f_dc_1",
        "f_dc_2",
        *(f"f_rest_{i}" for i in range(rest.shape[1])),
    ]
    names += ["opacity", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"]
    parts = (means, np.zeros_like(means), sh_dc[:, 0], rest, logits[:, None], log_scales, quats)
    table = np.concatenate(parts, 1).astype("<f4")
    properties = "".join(f"property float {name}\n" for name in names)
    header = f"ply\nformat binary_little_endian 1.0\nelement vertex {count}\n{properties}end_header\n"
    with atomic_write(path) as file:
        file.write(header.encode())
        file.write(table.tobytes())


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
    known = all(name in columns for name in ("red", "green", "blue"))
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
    fields = [(name, "<f4") for name in "xyz"] + [(name, "u1") for name in ("red", "green", "blue")]
    table = np.zeros(len(cloud.points), np.dtype(fields))
    for i, name in enumerate("xyz"):
        table[name] = cloud.points[:, i]
    for i, name in enumerate(("red", "green", "blue")):
        table[name] = np.round(np.clip(cloud.colors[:, i], 0.0, 1.0) * 255.0)
    kinds = "".join(f"property {'float' if kind == '<f4' else 'uchar'} {name}\n" for name, kind in fields)
    with atomic_write(path) as file:
        header = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(table)}\n{kinds}end_header\n"
        file.write(header.encode())
        file.write(table.tobytes())


def _stack(columns: dict[str, np.ndarray], names: list[str]) -> np.ndarray:
    if not names:
        return np.zeros((len(columns["x"]), 0), np.float32)
    return np.stack([columns[name].astype(np.float32) for name in names], 1)


def _rgb(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Colours in 0..1: whole numbers are scaled by their type's range, floats are taken as they are."""
    kind = columns["red"].dtype
    scale = 1.0 if kind.kind == "f" else float(np.iinfo(kind).max)
    return _stack(columns, ["red", "green", "blue"]) / np.float32(scale)
