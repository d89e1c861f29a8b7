""".spz files of all versions, against other programs' files of the same splats."""

import functools
import gzip
import struct
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.io.files import InputError
from jaxsplat.io.splats import load_splats, read_splats, save_splats
from jaxsplat.io.spz import _sh_signs
from jaxsplat.sh import spherical_harmonics
from tests.data import shared
from tests.io.compare import assert_near, taken
from tests.train.scenes import random_splats

HALF_STEP = {"means": 2**-13 + 1e-7, "quats": 0.005, "log_scales": 1 / 32, "logit_opacities": 0.5 / 255 + 1e-6,
             "sh_dc": 0.5 / 38.25 + 1e-6, "sh_rest": 1 / 256 + 1e-6}  # fmt: skip
BY_OTHERS = HALF_STEP | {"means": 2**-12 + 1e-7, "logit_opacities": 1 / 255, "sh_rest": 0.07}

compressed = functools.partial(gzip.compress, mtime=0)
"""The same bytes at any time."""


def header(version=3, count=1, degree=0, bits=12, flags=0, magic=b"NGSP"):
    return struct.pack("<4sIIBBBB", magic, version, count, degree, bits, flags, 0)


def loaded(tmp_path, data):
    (tmp_path / "a.spz").write_bytes(data)
    return read_splats(tmp_path / "a.spz")


def test_version_3_of_another_program_holds_the_splats_of_the_ply():
    folder = shared("data/splats/three_points")
    splats = load_splats(folder / "test-splat.3-points-from-train.ply")
    assert_near(load_splats(folder / "test-splat.3-points-from-train.spz"), splats, **BY_OTHERS)
    splats = load_splats(shared("data/splats/train-1000.ply"))
    other = load_splats(shared("data/splats/converted/train-1000.v3.spz"))
    assert_near(other, splats, **BY_OTHERS)
    for k in range(15):  # on a coarse grid, but every sign is right
        assert not (np.asarray(other.sh_rest[:, k] * splats.sh_rest[:, k]) < 0).any()


def test_version_4_holds_the_splats_of_the_compressed_ply():
    pytest.importorskip("zstandard", reason="the package for .spz version 4 is not installed")
    spz = read_splats(shared("data/splats/biker.spz"))
    assert spz.format == "SPZ version 4" and len(spz.splats.means) == 152_746
    ply = load_splats(shared("data/splats/biker.compressed.ply"))
    # .spz ends at a log scale of -10
    ply = ply._replace(log_scales=jnp.maximum(ply.log_scales, -10.0))
    limits = HALF_STEP | {"means": 1.3e-4, "quats": 0.01, "sh_dc": 0.0135}
    assert_near(spz.splats, ply, **limits)


def test_version_2_stores_three_components_of_the_rotation():
    splats = load_splats(shared("data/splats/minimal/minimal-v2.spz"))
    assert splats.means.tolist() == [[-1, 0, 1], [0, 0, 1], [-1, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(splats.quats, [[1, 0, 0, 0]] * 4, atol=1 / 255 + 1e-6)
    np.testing.assert_allclose(jnp.exp(splats.log_scales), 0.1, rtol=0.03)


def test_version_1_has_half_precision_positions(tmp_path):
    body = np.array([1.5, -2.25, 1000.0], "<f2").tobytes() + bytes([255, 128, 128, 128, 160, 160, 160, 128, 128, 128])
    splats = loaded(tmp_path, compressed(header(version=1) + body)).splats
    assert splats.means.tolist() == [[1.5, 2.25, -1000.0]]
    assert splats.log_scales.tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("rest", [0, 3, 8, 15, 24])
def test_what_is_written_is_read_again_within_half_a_step(tmp_path, rest):
    splats = random_splats(200, rest=rest)
    splats = splats._replace(log_scales=jnp.clip(splats.log_scales, -9.9, 5.8), sh_dc=jnp.clip(splats.sh_dc, -3.3, 3.3))
    save_splats(tmp_path / "a.spz", splats)
    assert_near(load_splats(tmp_path / "a.spz"), splats, **HALF_STEP)


def test_writing_again_changes_nothing(tmp_path):
    save_splats(tmp_path / "a.spz", random_splats(50))
    save_splats(tmp_path / "b.spz", load_splats(tmp_path / "a.spz"))
    a, b = (load_splats(tmp_path / name) for name in ("a.spz", "b.spz"))
    assert_near(a, b, quats=0.004)
    assert all((x == y).all() for name, x, y in zip(a._fields, a, b, strict=True) if name != "quats")


def test_large_scenes_take_coarser_steps_instead_of_overflowing(tmp_path):
    splats = random_splats(3)._replace(means=jnp.array([[3000.0, -5, 7], [0, 0, 0], [1, 2, -300_000]]))
    save_splats(tmp_path / "a.spz", splats)
    np.testing.assert_allclose(load_splats(tmp_path / "a.spz").means, splats.means, atol=2**-5)
    with pytest.raises(InputError, match=r"cannot hold a coordinate of 1e\+07"):
        save_splats(tmp_path / "b.spz", splats._replace(means=splats.means * 1e7 / 300_000))


def test_turning_the_axes_turns_the_harmonics():
    directions = jax.random.normal(jax.random.key(0), (24, 3))
    for k, sign in enumerate(_sh_signs(24)[:, 0]):
        coefficients = jnp.zeros((24, 25, 1)).at[:, k + 1].set(1.0)
        turned = spherical_harmonics(4, directions * jnp.array([[1.0, -1.0, -1.0]]), coefficients)
        np.testing.assert_allclose(turned, sign * spherical_harmonics(4, directions, coefficients), atol=1e-5)


def test_what_else_the_file_says_is_told(tmp_path):
    body = bytes(9) + bytes([255]) + bytes([128] * 6) + bytes(4)
    found = loaded(tmp_path, compressed(header(flags=3) + body))
    assert found.antialiased and found.notes == ("Extensions of other programs.",)
    found = loaded(tmp_path, compressed(header(flags=0) + body))
    assert not found.antialiased and not found.notes


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (compressed(header(count=7) + bytes(20)), "7 splats need 156 bytes, the file holds 36"),
        (compressed(header(degree=5)), "SH degree 5, expected 0 to 4"),
        (compressed(header(version=9)), ".spz version 9"),
        (compressed(b"hello"), "compressed by gzip, but no .spz"),
        (compressed(header() + bytes(range(200)))[:40], "damaged .spz"),
        (b"\x1f\x8b" + bytes(30), "damaged .spz"),
        (header(version=2) + bytes(64), ".spz version 2 without compression"),
        (header(version=4), "ends within the header"),
        (header(version=4) + bytes(16), "0 streams in 32 bytes"),
        (header(version=4) + bytes(16) + bytes(200), "0 streams"),
    ],
    ids=lambda value: value if isinstance(value, str) else "file",
)
def test_damaged_files_are_refused_with_the_reason(tmp_path, data, message):
    with pytest.raises(InputError, match=f"a.spz: .*{message}"):
        loaded(tmp_path, data)


def test_a_payload_without_compression_is_refused():
    with pytest.raises(InputError, match="minimal-raw.spz: .spz version 2 without compression"):
        load_splats(shared("data/splats/minimal/minimal-raw.spz"))


@pytest.mark.parametrize("keep", [40, 120, 100_000, 2_242_955])
def test_a_truncated_version_4_says_the_numbers(tmp_path, keep):
    pytest.importorskip("zstandard", reason="the package for .spz version 4 is not installed")
    data = shared("data/splats/biker.spz").read_bytes()
    with pytest.raises(InputError, match=r"streams in 40 bytes|need \d+ bytes, the file has"):
        loaded(tmp_path, data[:keep])


def test_damage_inside_a_stream_of_version_4_is_noticed(tmp_path):
    pytest.importorskip("zstandard", reason="the package for .spz version 4 is not installed")
    data = bytearray(shared("data/splats/biker.spz").read_bytes())
    data[112:116] = bytes(4)  # the mark of the first stream; the format has no checksum
    with pytest.raises(InputError, match="damaged .spz"):
        loaded(tmp_path, bytes(data))


def test_version_4_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InputError, match="pip install zstandard"):
        load_splats(shared("data/splats/biker.spz"))


def test_no_splats_at_all_is_a_file_too(tmp_path):
    save_splats(tmp_path / "a.spz", random_splats(0))
    assert load_splats(tmp_path / "a.spz").sh_rest.shape == (0, 3, 3)


def test_some_rows_of_a_real_scene_survive(tmp_path):
    splats = taken(load_splats(shared("data/splats/train-1000.ply")), np.arange(100))
    save_splats(tmp_path / "a.spz", splats)
    assert_near(load_splats(tmp_path / "a.spz"), splats, **HALF_STEP)
