"""Triangle meshes from files: whatever trimesh reads, OBJ, PLY and glTF among it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxsplat.io.files import InputError


class Mesh(NamedTuple):
    """A triangle mesh, as NumPy arrays.

    Attributes:
      verts: [V, 3] float32. A vertex at a seam of the texture is there several times.
      faces: [F, 3] int32.
      colors: [V, 3] float32 in 0..1 of the vertices, or None.
      uvs: [V, 2] float32 texture coordinates, (0, 0) at the lower left, or None.
      texture: [TH, TW, 3] float32 in 0..1, or None.
    """

    verts: np.ndarray
    faces: np.ndarray
    colors: np.ndarray | None
    uvs: np.ndarray | None
    texture: np.ndarray | None


def load_mesh(path: Path | str) -> Mesh:
    """Reads a mesh; faces of more corners are triangulated, the parts of a scene joined.

    Args:
      path: file to read; its ending tells the format.

    Returns:
      `Mesh`.

    Raises:
      InputError: where the file cannot be read, has no faces, or has faces whose corners do not exist.
      ImportError: without trimesh, which the extra `meshes` installs.

    Example:
      >>> load_mesh("cow.obj").faces.shape
      (5856, 3)
    """
    # Imported here: only this function needs it.
    import trimesh

    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    try:
        mesh: Any = trimesh.load(str(path), force="mesh", process=False)
    # The readers of the many formats raise whatever they stumble over.
    except Exception as error:
        raise InputError(f"{path}: unreadable mesh ({type(error).__name__}: {error})") from None
    verts, faces = np.asarray(mesh.vertices, np.float32), np.asarray(mesh.faces, np.int32)
    if faces.ndim != 2 or not len(faces):
        raise InputError(f"{path}: the file has no faces, {len(verts)} vertices")
    if faces.min() < 0 or faces.max() >= len(verts):
        raise InputError(
            f"{path}: faces have corners {faces.min()} to {faces.max()}, but there are {len(verts)} vertices"
        )
    visual = mesh.visual
    colors = np.asarray(visual.vertex_colors)[:, :3] / np.float32(255) if visual.kind == "vertex" else None
    uvs = getattr(visual, "uv", None)
    material = getattr(visual, "material", None)
    image = getattr(material, "baseColorTexture", None) or getattr(material, "image", None)
    return Mesh(
        verts,
        faces,
        colors,
        None if uvs is None else np.asarray(uvs, np.float32),
        None if uvs is None or image is None else np.asarray(image.convert("RGB"), np.float32) / np.float32(255),
    )
