"""Figures and pictures of held-out views."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxsplat.data import load_capture
from jaxsplat.train import evaluate, make_renderer
from jaxsplat.train.evaluate import picture_name, save_pictures
from tests.train.scenes import random_splats, write_capture


def captured(tmp_path, splats, *, distortion=None, **settings):
    """A capture whose photographs are renders of the splats, through a lens where there is distortion."""
    capture = load_capture(write_capture(tmp_path / "c", **(distortion or {})), undistort=False)
    render = make_renderer(width=24, height=20, **settings)
    cameras = jax.tree.map(jnp.asarray, (capture.cameras.viewmats, capture.cameras.Ks, capture.cameras.lens))
    images = render(splats, *cameras)
    return dataclasses.replace(capture, images=np.round(np.asarray(images) * 255).astype(np.uint8))


def test_the_true_scene_is_limited_by_rounding_only(tmp_path):
    splats = random_splats(50)
    result = evaluate(splats, captured(tmp_path, splats))
    assert result.psnr > 55 and result.ssim > 0.999
    assert [view.name for view in result.views] == ["images/000.png", "images/008.png"]


@pytest.mark.parametrize("antialiased", [False, True])
def test_small_splats_are_evaluated_as_they_were_trained(tmp_path, antialiased):
    splats = random_splats(50)._replace(log_scales=jnp.full((50, 3), -5.0))
    capture = captured(tmp_path, splats, antialiased=antialiased)
    assert evaluate(splats, capture, antialiased=antialiased).psnr > 50
    assert evaluate(splats, capture, antialiased=not antialiased).psnr < 40


def test_photographs_are_compared_through_their_lens(tmp_path):
    splats = random_splats(50)
    capture = captured(tmp_path, splats, distortion={"k1": -0.2, "p1": 0.05})
    assert evaluate(splats, capture).psnr > 55
    straight = dataclasses.replace(capture, cameras=capture.cameras._replace(lens=None))
    assert evaluate(splats, straight).psnr < 40


def test_psnr_is_that_of_the_picture(tmp_path):
    capture = captured(tmp_path, random_splats(50))
    result = evaluate(random_splats(50, seed=1), capture)
    error = result.images[1].astype(float) / 255 - capture.images[8] / 255
    np.testing.assert_allclose(result.views[1].psnr, -10 * np.log10((error**2).mean()), atol=0.05)
    np.testing.assert_allclose(result.psnr, np.mean([view.psnr for view in result.views]), rtol=1e-6)


def test_hidden_pixels_change_no_figure(tmp_path):
    capture = captured(tmp_path, random_splats(50))
    splats = random_splats(50, seed=1)
    masks = np.ones((10, 20, 24), bool)
    masks[:, 12:, 5:] = False
    spoiled = np.where(masks[..., None], capture.images, 255 - np.asarray(capture.images))
    results = [
        evaluate(splats, dataclasses.replace(capture, images=images, masks=masks))
        for images in (np.asarray(capture.images), spoiled)
    ]
    assert results[0].views == results[1].views
    error = (results[0].images[1].astype(float) - capture.images[8])[masks[8]] / 255
    np.testing.assert_allclose(results[0].views[1].psnr, -10 * np.log10((error**2).mean()), atol=0.05)
    assert evaluate(splats, dataclasses.replace(capture, images=spoiled)).views != results[0].views
    save_pictures(tmp_path / "pictures", results[0], dataclasses.replace(capture, masks=masks))
    _, _, shown = np.split(np.asarray(Image.open(tmp_path / "pictures" / "images_008.png")), 3, 1)
    assert shown.any() and not shown[~masks[8]].any()


def test_pictures_show_truth_render_and_error_side_by_side(tmp_path):
    capture = captured(tmp_path, random_splats(50))
    result = evaluate(random_splats(50, seed=1), capture)
    save_pictures(tmp_path / "pictures", result, capture)
    picture = np.asarray(Image.open(tmp_path / "pictures" / "images_008.png"))
    truth, render, error = np.split(picture, 3, 1)
    assert (truth == capture.images[8]).all() and (render == result.images[1]).all()
    expected = np.abs(truth.astype(float) - render).mean(-1) * 4
    np.testing.assert_allclose(error[..., 0], np.clip(expected, 0, 255), atol=1.01)


def test_names_of_views_become_file_names():
    assert picture_name("../a b/ü.JPG") == "a b_ü.png"
    assert picture_name("train/r_0") == "train_r_0.png"
