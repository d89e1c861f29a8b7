"""Meshes from files."""

from __future__ import annotations

import numpy as np
import pytest

from jaxsplat.io import InputError, load_mesh
from tests.data import shared


def test_the_cow_has_its_texture_and_its_seams():
    cow = load_mesh(shared("data/meshes/cow_mesh/cow.obj"))
    assert cow.faces.shape == (5856, 3) and len(np.unique(cow.verts, axis=0)) == 2930
    assert cow.uvs is not None and cow.texture is not None and cow.colors is None
    assert cow.uvs.shape == (len(cow.verts), 2) and cow.texture.shape == (1024, 1024, 3)
    lines = shared("data/meshes/cow_mesh/cow.obj").read_text().splitlines()
    corner = next(line for line in lines if line.startswith("f ")).split()[1].split("/")
    first = [line for line in lines if line.startswith("v ")][int(corner[0]) - 1]
    np.testing.assert_allclose(cow.verts[cow.faces[0, 0]], [float(x) for x in first.split()[1:4]], rtol=1e-6)
    uv = [line for line in lines if line.startswith("vt ")][int(corner[1]) - 1]
    np.testing.assert_allclose(cow.uvs[cow.faces[0, 0]], [float(x) for x in uv.split()[1:3]], rtol=1e-6)


@pytest.mark.parametrize(("name", "verts", "faces"), [("teapot", 1292, 2464), ("bunny", 2503, 4968)])
def test_meshes_without_texture(name, verts, faces):
    mesh = load_mesh(shared(f"data/meshes/{name}.obj"))
    assert mesh.verts.shape == (verts, 3) and mesh.faces.shape == (faces, 3)
    assert mesh.colors is None and mesh.uvs is None and mesh.texture is None


def test_quads_are_split_and_colors_kept(tmp_path):
    path = tmp_path / "quad.ply"
    header = "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    header += "property uchar red\nproperty uchar green\nproperty uchar blue\nelement face 1\n"
    header += "property list uchar int vertex_indices\nend_header\n"
    path.write_text(header + "0 0 0 255 0 0\n1 0 0 0 255 0\n1 1 0 0 0 255\n0 1 0 51 51 51\n4 0 1 2 3\n")
    mesh = load_mesh(path)
    assert mesh.faces.shape == (2, 3) and mesh.colors is not None
    np.testing.assert_allclose(mesh.colors[[0, 3]], [[1, 0, 0], [0.2, 0.2, 0.2]], atol=1e-6)


def test_bad_files_are_named(tmp_path):
    with pytest.raises(InputError, match=r"missing\.obj: no such file"):
        load_mesh(tmp_path / "missing.obj")
    points = tmp_path / "points.obj"
    points.write_text("v 0 0 0\nv 1 0 0\n")
    with pytest.raises(InputError, match=r"points\.obj"):
        load_mesh(points)
    text = tmp_path / "text.gltf"
    text.write_text("not a mesh")
    with pytest.raises(InputError, match=r"text\.gltf: unreadable mesh"):
        load_mesh(text)
    wrong = tmp_path / "wrong.obj"
    wrong.write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n")
    with pytest.raises(InputError, match=r"wrong\.obj"):
        load_mesh(wrong)
