"""PlayCanvas's compressed PLY."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.io.files import InputError
from jaxsplat.io.ply import load_ply
from jaxsplat.io.quantize import morton_order
from jaxsplat.io.splats import load_splats, read_splats, save_splats
from tests.data import shared
from tests.io.compare import assert_near, taken
from tests.train.scenes import random_splats


def written(tmp_path, splats):
    """The splats as they are read again, and as they were, in the order of the file."""
    save_splats(tmp_path / "a.compressed.ply", splats)
    return load_ply(tmp_path / "a.compressed.ply"), taken(splats, morton_order(np.asarray(splats.means)))


def half_step(splats):
    """Of each field, for the range of all splats; that of a chunk is at most as large."""
    extent = [float(np.ptp(np.asarray(leaf), 0).max()) for leaf in (splats.means, splats.log_scales, splats.sh_dc)]
    return {
        "means": extent[0] / 2046 + 1e-5, "log_scales": extent[1] / 2046 + 1e-5, "sh_dc": extent[2] / 510 + 1e-5,
        "quats": 0.005, "logit_opacities": 0.5 / 255 + 1e-6, "sh_rest": 1 / 64 + 1e-6,
    }  # fmt: skip


@pytest.mark.parametrize("rest", [0, 3, 8, 15])
@pytest.mark.parametrize("count", [1, 256, 600])
def test_what_is_written_is_read_again_within_half_a_step(tmp_path, rest, count):
    found, splats = written(tmp_path, random_splats(count, rest=rest))
    assert_near(found, splats, **half_step(splats))


def test_coefficients_beyond_the_range_are_clamped(tmp_path):
    splats = random_splats(3)
    found, _ = written(tmp_path, splats._replace(sh_rest=jnp.where(splats.sh_rest > 0, 9.0, -9.0)))
    assert np.unique(np.asarray(found.sh_rest)).tolist() == [-4.0, 4.0]


def test_neighbours_share_a_chunk_so_that_steps_are_small(tmp_path):
    splats = random_splats(4096, rest=0)
    found, splats = written(tmp_path, splats)
    error = np.abs(np.asarray(found.means - splats.means)).mean()
    assert error < 0.5 * np.ptp(np.asarray(splats.means)) / 4092


def test_a_real_scene_keeps_its_values(tmp_path):
    found, splats = written(tmp_path, load_splats(shared("data/splats/train-1000.ply")))
    assert_near(found, splats, **half_step(splats))


def test_a_real_file_is_recognised_by_its_content(tmp_path):
    result = read_splats(shared("data/splats/biker.compressed.ply"))
    assert result.format == "PlayCanvas compressed PLY" and len(result.splats.means) == 152_746
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in result.splats)


def test_older_files_without_a_range_of_colors_have_them_in_the_unit_range(tmp_path):
    header = "ply\nformat binary_little_endian 1.0\nelement chunk 1\n"
    header += "".join(f"property float {end}_{s}{a}\n" for s in ("", "scale_") for end in ("min", "max") for a in "xyz")
    header += "element vertex 1\n" + "".join(
        f"property uint packed_{name}\n" for name in ("position", "rotation", "scale", "color")
    )
    ranges = np.array([1, 2, 3, 5, 6, 7, -4, -4, -4, -2, -2, -2], "<f4")
    words = np.array([2047 << 21 | 2047, 512 << 20 | 512 << 10 | 512, 2047, 255 << 24 | 51 << 8 | 128], "<u4")
    data = header.encode() + b"end_header\n" + ranges.tobytes() + words.tobytes()
    (tmp_path / "a.ply").write_bytes(data)
    splats = load_ply(tmp_path / "a.ply")
    assert splats.means.tolist() == [[5, 2, 7]]
    assert splats.log_scales.tolist() == [[-4, -4, -2]]
    np.testing.assert_allclose(splats.quats, [[1, 0, 0, 0]], atol=1e-3)
    np.testing.assert_allclose(0.5 + 0.28209479 * splats.sh_dc[0, 0], [1.0, 0.0, 0.2], atol=1e-6)
    (tmp_path / "b.ply").write_bytes(data.replace(b"packed_scale", b"packed_sizes"))
    with pytest.raises(InputError, match="b.ply: a compressed PLY that lacks the properties packed_scale"):
        load_ply(tmp_path / "b.ply")


def test_a_range_that_is_not_whole_is_refused(tmp_path):
    save_splats(tmp_path / "a.compressed.ply", random_splats(3))
    data = (tmp_path / "a.compressed.ply").read_bytes().replace(b"float min_g", b"float min_q")
    (tmp_path / "b.ply").write_bytes(data)
    with pytest.raises(InputError, match="b.ply: a compressed PLY that lacks the properties min_g"):
        load_ply(tmp_path / "b.ply")


def test_too_few_chunks_and_a_truncated_file_say_the_numbers(tmp_path):
    save_splats(tmp_path / "a.compressed.ply", random_splats(300))
    data = (tmp_path / "a.compressed.ply").read_bytes()
    (tmp_path / "b.ply").write_bytes(data[:-1])
    with pytest.raises(InputError, match="promises 300 rows of element 'sh', the file ends after 299"):
        load_ply(tmp_path / "b.ply")
    start = data.index(b"end_header\n") + 11
    cut = data[:start].replace(b"element chunk 2", b"element chunk 1") + data[start + 72 :]
    (tmp_path / "c.ply").write_bytes(cut)
    with pytest.raises(InputError, match="1 chunks of 256 splats, fewer than its 300 splats"):
        load_ply(tmp_path / "c.ply")


def test_no_splats_at_all_is_a_file_too(tmp_path):
    save_splats(tmp_path / "a.compressed.ply", random_splats(0))
    assert load_splats(tmp_path / "a.compressed.ply").means.shape == (0, 3)
