"""One way to read any format and one to write it."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.io.files import InputError
from jaxsplat.io.splats import load_splats, read_splats, save_splats
from tests.data import shared
from tests.io.compare import taken
from tests.train.scenes import random_splats, trees_equal

COMPACT = ["a.spz", "a.splat", "a.compressed.ply", "a.sog"]


@pytest.mark.parametrize("name", ["a.ply", *COMPACT])
def test_the_content_says_the_format_whatever_the_name(tmp_path, name):
    save_splats(tmp_path / name, random_splats(5), sh_degree=0)
    other = tmp_path / ("renamed.splat" if name == "a.splat" else "renamed")
    (tmp_path / name).rename(other)
    assert load_splats(other).means.shape == (5, 3)


def test_upper_case_endings_are_known(tmp_path):
    save_splats(tmp_path / "A.SPZ", random_splats(5))
    assert (tmp_path / "A.SPZ").read_bytes().startswith(b"\x1f\x8b")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.ksplat", b"\x00\x01\x00\x00", r"begins with b'\\x00\\x01\\x00\\x00', which is no known format"),
        ("a.ply", b"", "begins with b'', which is no known format"),
        ("a.obj", b"v 0 0 0\n", "begins with b'v 0 ', which is no known format"),
    ],
)
def test_unknown_content_is_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name}: {message}"):
        load_splats(tmp_path / name)


def test_missing_files_and_folders_of_something_else_are_named(tmp_path):
    with pytest.raises(InputError, match="x.ply: no such file"):
        load_splats(tmp_path / "x.ply")
    with pytest.raises(InputError, match="a folder without meta.json"):
        load_splats(tmp_path)


def test_unknown_endings_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(
        InputError, match=r"a.obj: a file of splats must end in one of .compressed.ply, .ply, .splat, .spz, .sog"
    ):
        save_splats(tmp_path / "a.obj", random_splats(5))
    assert not list(tmp_path.iterdir())


def test_coefficients_are_never_left_out_silently(tmp_path):
    splats = random_splats(5, rest=24)
    with pytest.raises(InputError, match="holds SH up to degree 0, the splats have degree 4; give sh_degree=0"):
        save_splats(tmp_path / "a.splat", splats)
    with pytest.raises(InputError, match="holds SH up to degree 3, the splats have degree 4"):
        save_splats(tmp_path / "a.compressed.ply", splats)
    assert not list(tmp_path.iterdir())
    save_splats(tmp_path / "a.ply", splats, sh_degree=2)
    assert trees_equal(load_splats(tmp_path / "a.ply"), splats._replace(sh_rest=splats.sh_rest[:, :8]))


@pytest.mark.parametrize("name", COMPACT)
@pytest.mark.parametrize(
    "change",
    [
        lambda s: s._replace(means=s.means.at[3, 1].set(jnp.nan)),
        lambda s: s._replace(log_scales=s.log_scales.at[3, 1].set(-jnp.inf)),
        lambda s: s._replace(quats=s.quats.at[3].set(0.0)),
        lambda s: s._replace(logit_opacities=s.logit_opacities.at[3].set(jnp.nan)),
        lambda s: s._replace(sh_dc=s.sh_dc.at[3].set(jnp.inf)),
    ],
)
def test_rows_that_compact_formats_cannot_hold_are_counted(tmp_path, name, change):
    with pytest.raises(InputError, match=f"{name}: this format cannot hold 1 of 5 splats"):
        save_splats(tmp_path / name, change(random_splats(5)), sh_degree=0)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", COMPACT)
def test_infinite_logits_and_quaternions_of_any_length_are_fine(tmp_path, name):
    splats = random_splats(3, rest=0)
    splats = splats._replace(
        means=jnp.array([[0.0, 0, 0], [1, 1, 1], [2, 2, 2]]),
        logit_opacities=jnp.array([-jnp.inf, 0.0, jnp.inf]),
        quats=jnp.array([[1e-30, 0, 0, 0], [0, 1e30, 0, 0], [0, 0, 0, 1e-44]]),
    )
    save_splats(tmp_path / name, splats)
    found = load_splats(tmp_path / name)
    order = np.argsort(np.asarray(found.means[:, 0]))
    np.testing.assert_allclose(np.abs(np.asarray(found.quats))[order], np.eye(4)[[0, 1, 3]], atol=0.009)
    assert (np.diff(np.asarray(found.logit_opacities)[order]) > 5).all()


@pytest.mark.parametrize("name", ["a.ply", *COMPACT])
def test_wrong_shapes_are_refused_by_name(tmp_path, name):
    with pytest.raises(ValueError, match="means must have shape"):
        save_splats(tmp_path / name, random_splats(2, rest=0)._replace(means=jnp.zeros((1, 2, 3))))
    assert not list(tmp_path.iterdir())


def test_properties_that_are_no_part_of_a_splat_are_told(tmp_path):
    save_splats(tmp_path / "a.ply", random_splats(1))
    data = (tmp_path / "a.ply").read_bytes().replace(b"property float nx", b"property float id")
    (tmp_path / "a.ply").write_bytes(data)
    assert read_splats(tmp_path / "a.ply").notes == ("Properties that are no part of a splat: id.",)


def test_formats_convert_into_each_other(tmp_path):
    splats = taken(load_splats(shared("data/splats/train-1000.ply")), np.arange(50))
    path = tmp_path / "0.ply"
    save_splats(path, splats)
    for name in ("1.spz", "2.compressed.ply", "3.sog", "4.splat", "5.ply"):
        save_splats(tmp_path / name, load_splats(path), sh_degree=0)
        path = tmp_path / name
    found = load_splats(path)
    assert found.means.shape == (50, 3)
    np.testing.assert_allclose(np.sort(found.means, 0), np.sort(splats.means, 0), atol=0.03)


@pytest.mark.parametrize("name", ["a.spz", "a.sog"])
def test_the_mark_of_anti_aliasing_survives_where_it_has_a_place(tmp_path, name):
    for antialiased in (True, False):
        save_splats(tmp_path / name, random_splats(3), antialiased=antialiased)
        assert read_splats(tmp_path / name).antialiased == antialiased
    save_splats(tmp_path / "a.ply", random_splats(3), antialiased=True)
    assert not read_splats(tmp_path / "a.ply").antialiased
