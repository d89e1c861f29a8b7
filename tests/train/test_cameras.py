"""Cameras after a training: learned ones in the world of the capture, held-out ones aligned."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.data.normalize import Normalization
from jaxsplat.io.files import InputError, save_json
from jaxsplat.train import evaluate
from jaxsplat.train.cameras import aligned_capture, cameras_as_json, learned_capture, with_cameras
from jaxsplat.train.poses import no_deltas, refined_viewmats
from tests.train.scenes import random_splats
from tests.train.test_evaluate import captured


@pytest.mark.parametrize("distortion", [None, {"k1": -0.2}])
def test_alignment_finds_held_out_cameras_and_leaves_the_others(tmp_path, distortion):
    splats = random_splats(50)
    capture = captured(tmp_path, splats, distortion=distortion)
    true = capture.cameras.viewmats
    shift = jnp.asarray(np.random.default_rng(0).normal(size=(2, 10, 3)) * 0.02, jnp.float32)
    wrong = np.asarray(refined_viewmats(jnp.asarray(true), shift[0], 3.0 * shift[1]))
    moved = dataclasses.replace(capture, cameras=capture.cameras._replace(viewmats=wrong))
    found = aligned_capture(splats, moved, steps=100)
    assert evaluate(splats, moved).psnr < 35 < 45 < evaluate(splats, found).psnr
    error = np.abs(found.cameras.viewmats - true).max((1, 2))
    held_out = capture.held_out
    assert (error[held_out] < 0.2 * np.abs(wrong - true).max((1, 2))[held_out]).all()
    assert np.array_equal(found.cameras.viewmats[~held_out], wrong[~held_out])


def test_learned_motion_is_in_units_of_the_normalized_scene(tmp_path):
    capture = captured(tmp_path, random_splats(5))
    deltas = no_deltas(8)
    normal = Normalization(np.array([1.0, -2.0, 0.5]), 2.5)
    cameras = learned_capture(capture, deltas, normal).cameras
    np.testing.assert_allclose(cameras.viewmats, capture.cameras.viewmats, atol=1e-5)
    deltas = deltas._replace(
        translations=deltas.translations.at[0, 2].set(0.1), log_focals=jnp.log(jnp.array([2.0, 1]))
    )
    cameras = learned_capture(capture, deltas, normal).cameras
    moved = cameras.viewmats - capture.cameras.viewmats
    np.testing.assert_allclose(moved[1, 2, 3], 0.25, atol=1e-5)  # view 0 is held out
    assert np.abs(moved[[0, 2, 8]]).max() < 1e-5
    np.testing.assert_allclose(cameras.Ks[:, 0, 0], 2 * capture.cameras.Ks[:, 0, 0])


def test_cameras_of_a_file_follow_the_size_of_the_pictures(tmp_path):
    capture = captured(tmp_path, random_splats(5))
    save_json(tmp_path / "cameras.json", cameras_as_json(capture.cameras._replace(width=48, height=40)))
    cameras = with_cameras(capture, tmp_path / "cameras.json").cameras
    np.testing.assert_allclose(cameras.Ks[:, :2], 0.5 * capture.cameras.Ks[:, :2])
    assert np.array_equal(cameras.viewmats, capture.cameras.viewmats)
    save_json(tmp_path / "other.json", {"width": 48, "height": 40, "views": []})
    with pytest.raises(InputError, match="other.json: does not hold the cameras of this capture"):
        with_cameras(capture, tmp_path / "other.json")
