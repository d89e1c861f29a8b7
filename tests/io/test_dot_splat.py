""".splat files."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.io.files import InputError
from jaxsplat.io.splats import load_splats, save_splats
from tests.data import shared
from tests.io.compare import assert_near
from tests.train.scenes import random_splats

# 8 bits of the quaternion: at most half a step of 1/128 in each of four components
ROUNDED = {
    "quats": 0.017,
    "log_scales": 2e-6,
    "logit_opacities": 0.5 / 255 + 1e-6,
    "sh_dc": 0.5 / 255 / 0.2820947 + 1e-6,
}


def test_a_file_of_another_program_holds_the_splats_of_the_ply():
    folder = shared("data/splats/three_points")
    splats = load_splats(folder / "test-splat.3-points-from-train.ply")
    splats = splats._replace(sh_rest=splats.sh_rest[:, :0])
    limits = ROUNDED | {"quats": 0.02, "logit_opacities": 1 / 255, "sh_dc": 1 / 255 / 0.2820947}
    assert_near(load_splats(folder / "test-splat.3-points-from-train.splat"), splats, **limits)


def test_a_known_file_has_its_values():
    splats = load_splats(shared("data/splats/minimal/minimal.splat"))
    assert splats.means.tolist() == [[-1, 0, -1], [0, 0, -1], [-1, 0, 0], [0, 0, 0]]
    np.testing.assert_allclose(jnp.exp(splats.log_scales), 0.1, rtol=1e-6)
    np.testing.assert_allclose(1 / (1 + jnp.exp(-splats.logit_opacities)), 230 / 255, rtol=1e-5)


def test_what_is_written_is_read_again_within_half_a_step(tmp_path):
    splats = random_splats(200, rest=0)
    splats = splats._replace(sh_dc=jnp.clip(splats.sh_dc, -1.7, 1.7))
    save_splats(tmp_path / "a.splat", splats)
    assert (tmp_path / "a.splat").stat().st_size == 200 * 32
    assert_near(load_splats(tmp_path / "a.splat"), splats, **ROUNDED)


def test_a_real_file_is_written_again_with_the_same_positions_colors_and_opacities(tmp_path):
    original = shared("data/splats/chair_nerf_synthetic.splat")
    splats = load_splats(original)
    assert len(splats.means) == 111_650 and all(bool(jnp.isfinite(leaf).all()) for leaf in splats)
    save_splats(tmp_path / "a.splat", splats)
    before, after = (np.frombuffer(p.read_bytes(), np.uint8).reshape(-1, 32) for p in (original, tmp_path / "a.splat"))
    assert (before[:, :12] == after[:, :12]).all()
    assert (before[:, 24:28] == after[:, 24:28]).all()
    scales = [rows[:, 12:24].copy().view("<f4") for rows in (before, after)]
    np.testing.assert_allclose(scales[1], scales[0], rtol=2e-6)
    assert np.abs(before[:, 28:].astype(int) - after[:, 28:]).max() <= 1


def test_a_flat_splat_stays_flat_and_finite(tmp_path):
    row = np.zeros(8, "<f4")
    row[3:6] = 0.5, 0.0, -2.0
    (tmp_path / "a.splat").write_bytes(row.tobytes())
    splats = load_splats(tmp_path / "a.splat")
    assert jnp.isfinite(splats.log_scales).all()
    np.testing.assert_allclose(jnp.exp(splats.log_scales), [[0.5, 0.0, 2.0]], rtol=1e-6, atol=1e-30)


def test_a_truncated_file_says_the_numbers(tmp_path):
    (tmp_path / "a.splat").write_bytes(bytes(100))
    with pytest.raises(InputError, match="a.splat: 100 bytes are no whole number of rows of 32 bytes"):
        load_splats(tmp_path / "a.splat")
