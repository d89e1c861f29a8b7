"""Small meshes: random triangles, spheres, and the golden files of meshes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tests.data import shared

GOLDEN = (
    "sphere_k1_hard", "sphere_k2_noperspective", "sphere_k4_blur", "sphere_cull", "soup_k3_plain", "soup_k8_batch2",
)  # fmt: skip


class GoldenMesh(NamedTuple):
    """One file: the corners of the faces, the settings of the call, what must come out, and cotangents."""

    face_verts: np.ndarray
    first_faces: np.ndarray
    face_counts: np.ndarray
    settings: dict[str, Any]
    pix_to_face: np.ndarray
    outputs: tuple[np.ndarray, ...]
    cotangents: tuple[np.ndarray, ...]
    gradient: np.ndarray


def golden(name: str) -> GoldenMesh:
    """Reads a golden file, or skips the test if it is not there."""
    with np.load(shared(f"golden/mesh_{name}.npz")) as file:
        d = dict(file)
    flags = {key: bool(d[key]) for key in ("perspective_correct", "clip_barycentric_coords", "cull_backfaces")}
    sizes = {key: int(d[key]) for key in ("width", "height", "faces_per_pixel")}
    return GoldenMesh(
        d["face_verts"], d["mesh_to_face_first_idx"].astype(np.int32), d["num_faces_per_mesh"].astype(np.int32),
        {**flags, **sizes, "blur_radius": float(d["blur_radius"]), "convention": "pytorch3d"},
        d["pix_to_face"], tuple(d[key] for key in ("zbuf", "bary_coords", "dists")),
        tuple(d[f"cotangent_{key}"] for key in ("zbuf", "bary_coords", "dists")), d["grad_face_verts"],
    )  # fmt: skip


def soup(count: int, *, width: int, height: int, seed: int = 0, size: float = 12.0) -> np.ndarray:
    """[F, 3, 3] random triangles in pixels, in front of the camera, with well different depths."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform([0, 0, 2], [width, height, 6], (count, 1, 3))
    return centres + rng.normal(size=(count, 3, 3)) * [size, size, 0.3]


def sphere(level: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices [V, 3] and faces [F, 3] of a unit sphere: a subdivided icosahedron, counter-clockwise from outside."""
    g = (1 + 5**0.5) / 2
    verts = [(0, 1, g), (0, -1, g), (0, 1, -g), (0, -1, -g)]
    verts = [v[k:] + v[:k] for k in range(3) for v in verts]
    points = np.array(verts) / np.linalg.norm(verts[0])
    pairs = np.linalg.norm(points[:, None] - points[None], axis=-1) < 1.1
    faces = [
        (i, j, k) if np.linalg.det(points[[i, j, k]]) > 0 else (i, k, j)
        for i in range(12) for j in range(i + 1, 12) for k in range(j + 1, 12)
        if pairs[i, j] and pairs[j, k] and pairs[i, k]
    ]  # fmt: skip
    triangles = points[np.array(faces)]
    for _ in range(level):
        a, b, c = triangles[:, 0], triangles[:, 1], triangles[:, 2]
        ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
        triangles = np.concatenate([np.stack(t, 1) for t in ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))])
        triangles /= np.linalg.norm(triangles, axis=-1, keepdims=True)
    verts, index = np.unique(np.round(triangles.reshape(-1, 3), 9), axis=0, return_inverse=True)
    return verts.astype(np.float32), index.reshape(-1, 3).astype(np.int32)
