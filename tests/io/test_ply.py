"""Splat files in every dress that other programs give them."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.io.files import InputError
from jaxsplat.io.ply import PointCloud, load_ply, load_points, save_ply, save_points
from tests.data import shared
from tests.train.scenes import random_splats, trees_equal

NEEDED = ["x", "y", "z", "opacity", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"]
COLOR = ["f_dc_0", "f_dc_1", "f_dc_2"]


def ply(names, rows, *, form="binary_little_endian", kinds=None, newline="\n", extra=""):
    """A PLY with one element, as bytes."""
    kinds = kinds or ["float"] * len(names)
    lines = ["ply", f"format {form} 1.0", "comment a remark: element vertex 7", f"element vertex {len(rows)}"]
    lines += [f"property {kind} {name}" for kind, name in zip(kinds, names, strict=True)]
    header = newline.join([*lines, *([extra] if extra else []), "end_header", ""]).encode()
    if form == "ascii":
        return header + "\n".join(" ".join(str(v) for v in row) for row in rows).encode()
    order = "<" if "little" in form else ">"
    codes = {"float": "f4", "double": "f8", "uchar": "u1", "int": "i4"}
    table = np.array([tuple(r) for r in rows], [(f"f{i}", order + codes[k]) for i, k in enumerate(kinds)])
    return header + table.tobytes()


def loaded(tmp_path, data):
    (tmp_path / "a.ply").write_bytes(data)
    return load_ply(tmp_path / "a.ply")


@pytest.mark.parametrize("rest", [0, 3, 8, 15, 24])
def test_what_is_written_is_read_again_bit_for_bit(tmp_path, rest):
    splats = random_splats(7, rest=rest)
    save_ply(tmp_path / "a.ply", splats)
    assert trees_equal(load_ply(tmp_path / "a.ply"), splats)


def test_a_file_of_the_original_program_is_reproduced_byte_for_byte(tmp_path):
    original = shared("data/splats/train-1000.ply")
    save_ply(tmp_path / "a.ply", load_ply(original))
    assert (tmp_path / "a.ply").read_bytes() == original.read_bytes()


def test_sh_coefficients_are_stored_channel_by_channel(tmp_path):
    splats = random_splats(2, rest=3)
    save_ply(tmp_path / "a.ply", splats)
    header, body = (tmp_path / "a.ply").read_bytes().split(b"end_header\n")
    names = [line.split()[-1].decode() for line in header.splitlines() if line.startswith(b"property")]
    row = np.frombuffer(body, "<f4").reshape(2, -1)[1]
    assert row[names.index("f_rest_0")] == splats.sh_rest[1, 0, 0]
    assert row[names.index("f_rest_1")] == splats.sh_rest[1, 1, 0]
    assert row[names.index("f_rest_3")] == splats.sh_rest[1, 0, 1]


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian", "binary_big_endian"])
def test_ascii_and_both_byte_orders_give_the_same_values(tmp_path, form):
    names = [*reversed(NEEDED), *COLOR]
    rows = np.random.default_rng(0).normal(size=(3, len(names))).astype(np.float32)
    splats = loaded(tmp_path, ply(names, rows, form=form))
    np.testing.assert_allclose(splats.means, rows[:, [10, 9, 8]], rtol=1e-6)
    np.testing.assert_allclose(splats.quats, rows[:, [3, 2, 1, 0]], rtol=1e-6)
    np.testing.assert_allclose(splats.sh_dc[:, 0], rows[:, 11:], rtol=1e-6)
    assert splats.sh_rest.shape == (3, 0, 3)


def test_crlf_headers_extra_properties_and_other_types_are_read(tmp_path):
    names = ["label", *NEEDED, *COLOR]
    kinds = ["int", "double", *["float"] * (len(names) - 2)]
    rows = [[5, *range(1, len(names))], [6, *range(11, len(names) + 10)]]
    splats = loaded(tmp_path, ply(names, rows, kinds=kinds, newline="\r\n"))
    assert splats.means.tolist() == [[1, 2, 3], [11, 12, 13]]
    assert splats.logit_opacities.tolist() == [4, 14]


def test_list_properties_are_skipped(tmp_path):
    names = [*NEEDED, *COLOR]
    values = np.arange(len(names), dtype="<f4").tobytes()
    header = ply(names, [], extra="property list uchar int marks").replace(b"\nelement vertex 0", b"\nelement vertex 2")
    body = values + b"\x02" + np.array([8, 9], "<i4").tobytes() + values + b"\x00"
    splats = loaded(tmp_path, header + body)
    assert splats.means.tolist() == [[0, 1, 2], [0, 1, 2]]


def test_elements_before_the_vertices_are_skipped(tmp_path):
    data = ply([*NEEDED, *COLOR], [range(14)])
    data = data.replace(b"element vertex 1", b"element chunk 1\nproperty list uchar uchar c\nelement vertex 1", 1)
    head, body = data.split(b"end_header\n")
    assert loaded(tmp_path, head + b"end_header\n" + b"\x03abc" + body).means.tolist() == [[0, 1, 2]]


def test_8_bit_colors_become_coefficients(tmp_path):
    names = [*NEEDED, "red", "green", "blue"]
    data = ply(names, [[0] * 11 + [255, 0, 51]], kinds=["float"] * 11 + ["uchar"] * 3)
    shown = 0.5 + 0.28209479177387814 * np.asarray(loaded(tmp_path, data).sh_dc[0, 0])
    np.testing.assert_allclose(shown, [1.0, 0.0, 0.2], atol=1e-6)


def test_floating_point_colors_are_in_the_unit_range(tmp_path):
    data = ply([*NEEDED, "red", "green", "blue"], [[0] * 11 + [1.0, 0.0, 0.2]])
    shown = 0.5 + 0.28209479177387814 * np.asarray(loaded(tmp_path, data).sh_dc[0, 0])
    np.testing.assert_allclose(shown, [1.0, 0.0, 0.2], atol=1e-6)
    np.testing.assert_allclose(load_points(tmp_path / "a.ply").colors, [[1.0, 0.0, 0.2]], atol=1e-6)


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian"])
def test_a_truncated_file_says_the_numbers(tmp_path, form):
    data = ply([*NEEDED, *COLOR], [range(14)] * 4, form=form)
    with pytest.raises(InputError, match="promises 4 rows of element 'vertex', the file ends after 3"):
        loaded(tmp_path, data[:-5])


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian"])
def test_a_count_larger_than_the_data_says_the_numbers(tmp_path, form):
    data = ply([*NEEDED, *COLOR], [range(14)] * 4, form=form).replace(
        b"\nelement vertex 4", b"\nelement vertex 4000000000"
    )
    with pytest.raises(InputError, match="promises 4000000000 rows of element 'vertex', the file ends after 4"):
        loaded(tmp_path, data)


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian"])
def test_a_list_that_ends_behind_the_file_says_the_numbers(tmp_path, form):
    names = [*NEEDED, *COLOR]
    data = ply(names, [range(14)], form=form, extra="property list char uchar marks")
    with pytest.raises(InputError, match="promises 1 rows of element 'vertex', the file ends after 0"):
        loaded(tmp_path, data + (b" 3 1" if form == "ascii" else b"\x03\x01"))


def test_a_list_of_negative_length_is_damage(tmp_path):
    data = ply([*NEEDED, *COLOR], [range(14)], extra="property list char uchar marks")
    with pytest.raises(InputError, match="ends after 0"):
        loaded(tmp_path, data + b"\xff" + bytes(100))
    data = ply([*NEEDED, *COLOR], [range(14)], form="ascii", extra="property list char uchar marks")
    with pytest.raises(InputError, match="has a list of length 'abc'"):
        loaded(tmp_path, data + b" abc 1")


@pytest.mark.parametrize("name", ["minimal_ascii.ply", "minimal_binary.ply"])
def test_real_files_of_another_order_and_without_normals_are_twins(name):
    splats = load_ply(shared("data/splats/minimal") / name)
    twin = load_ply(shared("data/splats/minimal/minimal_binary.ply"))
    assert splats.means.shape == (3, 3) and splats.sh_rest.shape == (3, 0, 3)
    for found, expected in zip(splats, twin, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_real_mesh_and_a_real_point_cloud_say_what_is_missing(tmp_path):
    save_points(tmp_path / "p.ply", PointCloud(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)))
    with pytest.raises(InputError, match=r"p.ply: no splats.* lacks the properties opacity, scale_0.*rot_3$"):
        load_ply(tmp_path / "p.ply")
    mesh = ply(["x", "y", "z"], [[0, 0, 0]] * 3, extra="element face 1\nproperty list uchar int vertex_indices")
    (tmp_path / "m.ply").write_bytes(mesh + b"\x03" + bytes(12))
    with pytest.raises(InputError, match="m.ply: no splats.* lacks the properties opacity.*f_dc_2$"):
        load_ply(tmp_path / "m.ply")


def test_a_mesh_or_point_cloud_says_what_is_missing(tmp_path):
    with pytest.raises(InputError, match="no splats, perhaps a mesh or a point cloud: it lacks.* opacity, scale_0"):
        loaded(tmp_path, ply(["x", "y", "z"], [[1, 2, 3]]))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a PLY file"),
        (b"solid cube\n", "not a PLY file"),
        (b"ply\nformat ascii 1.0\n", "no line 'end_header'"),
        (b"ply\nelement vertex 0\nend_header\n", "no line 'format'"),
        (b"ply\nformat ascii 1.0\nelement vertex many\nend_header\n", "header line 'element vertex many'"),
        (b"ply\nformat ascii 1.0\nelement vertex -3\nend_header\n", "header line 'element vertex -3'"),
        (b"ply\nformat ascii 1.0\nproperty quaternion q\nend_header\n", "header line 'property quaternion q'"),
        (b"ply\nformat ascii 1.0\nelement face 0\nend_header\n", "no element 'vertex'"),
        (b"ply\nformat ascii 1.0\nelement vertex 1\nproperty float x\nend_header\nabc\n", "what is no number"),
    ],
)
def test_damaged_files_are_refused_with_the_reason(tmp_path, data, message):
    with pytest.raises(InputError, match=message):
        loaded(tmp_path, data)


def test_an_incomplete_set_of_coefficients_is_refused(tmp_path):
    names = [*NEEDED, *COLOR, "f_rest_0", "f_rest_1"]
    with pytest.raises(InputError, match="2 properties f_rest_"):
        loaded(tmp_path, ply(names, [range(16)]))


def test_no_splats_at_all_is_a_file_too(tmp_path):
    save_ply(tmp_path / "a.ply", random_splats(0))
    assert load_ply(tmp_path / "a.ply").means.shape == (0, 3)


def test_batched_splats_are_refused_by_name(tmp_path):
    splats = random_splats(2)
    with pytest.raises(ValueError, match="save_ply: means must have shape"):
        save_ply(tmp_path / "a.ply", splats._replace(means=jnp.zeros((1, 2, 3))))
    assert not list(tmp_path.iterdir())


def test_points_survive_and_those_that_are_not_finite_are_left_out(tmp_path):
    points = np.array([[1, 2, 3], [np.nan, 0, 0], [4, 5, 6]], np.float32)
    colors = np.array([[0, 0.2, 1], [0, 0, 0], [1, 1, 0.4]], np.float32)
    save_points(tmp_path / "p.ply", PointCloud(points, colors))
    cloud = load_points(tmp_path / "p.ply")
    assert (cloud.points == points[[0, 2]]).all()
    np.testing.assert_allclose(cloud.colors, colors[[0, 2]], atol=1e-6)


def test_points_without_colors_are_grey(tmp_path):
    (tmp_path / "p.ply").write_bytes(ply(["z", "y", "x"], [[3, 2, 1]]))
    cloud = load_points(tmp_path / "p.ply")
    assert cloud.points.tolist() == [[1, 2, 3]] and cloud.colors.tolist() == [[0.5, 0.5, 0.5]]
