"""Checkpoints are exact, whole, and refuse what does not fit."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.io.files import InputError
from jaxsplat.strategy import MCMC
from jaxsplat.train import TrainConfig, init_state, load_checkpoint, save_checkpoint
from jaxsplat.train.checkpoint import load_settings
from tests.train.scenes import trees_equal


def state(cap=20, seed=0):
    points = np.random.default_rng(seed).normal(size=(10, 3)).astype(np.float32)
    return init_state(TrainConfig(strategy=MCMC(cap=cap), seed=seed), points, np.abs(points) % 1)


def test_a_state_comes_back_bit_for_bit(tmp_path):
    saved = state(seed=3)._replace(step=jnp.int32(17))
    save_checkpoint(tmp_path / "c.npz", saved, {"a": [1, "ü"]})
    loaded = load_checkpoint(tmp_path / "c.npz", state(seed=0))
    assert trees_equal(loaded, saved) and loaded.step.dtype == jnp.int32
    assert load_settings(tmp_path / "c.npz") == {"a": [1, "ü"]}


def test_an_interrupted_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    save_checkpoint(tmp_path / "c.npz", state(), {})
    before = (tmp_path / "c.npz").read_bytes()

    def broken(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path / "c.npz", state(seed=1), {})
    assert (tmp_path / "c.npz").read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_a_checkpoint_of_another_shape_names_the_array(tmp_path):
    save_checkpoint(tmp_path / "c.npz", state(cap=12), {})
    with pytest.raises(InputError, match=r"splats.means should be float32\[15, 3\], got float32\[12, 3\]"):
        load_checkpoint(tmp_path / "c.npz", state(cap=15))


def test_a_damaged_or_missing_checkpoint_is_named(tmp_path):
    save_checkpoint(tmp_path / "c.npz", state(), {})
    data = (tmp_path / "c.npz").read_bytes()
    (tmp_path / "c.npz").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="c.npz: damaged checkpoint"):
        load_checkpoint(tmp_path / "c.npz", state())
    with pytest.raises(InputError, match="d.npz: no such file"):
        load_settings(tmp_path / "d.npz")
    np.savez(tmp_path / "e.npz", x=np.zeros(3))
    with pytest.raises(InputError, match="no checkpoint of this program: it lacks settings"):
        load_settings(tmp_path / "e.npz")
