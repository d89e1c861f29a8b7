"""Every kind of picture becomes 8-bit RGB or RGBA with the right values."""

import numpy as np
import pytest
from PIL import Image

from jaxsplat.io.files import InputError
from jaxsplat.io.images import composite, downscaled, image_header, load_image, save_image

GREY = np.array([[0, 50, 255], [7, 128, 200]], np.uint8)
COLOR = np.random.default_rng(0).integers(0, 256, (2, 3, 4), dtype=np.uint8)


def written(tmp_path, image, name="x.png", **settings):
    image.save(tmp_path / name, **settings)
    return load_image(tmp_path / name)


def test_grey_becomes_three_equal_channels(tmp_path):
    result = written(tmp_path, Image.fromarray(GREY))
    assert result.dtype == np.uint8 and result.shape == (2, 3, 3)
    assert (result == GREY[..., None]).all()


def test_16_bit_grey_is_scaled_and_not_clipped(tmp_path):
    deep = GREY.astype(np.uint16) * 257
    assert (written(tmp_path, Image.fromarray(deep)) == GREY[..., None]).all()


def test_palette_is_resolved(tmp_path):
    flat = np.repeat(np.array([[10, 200, 30], [250, 4, 90]], np.uint8)[:, None], 3, 1)
    assert (written(tmp_path, Image.fromarray(flat).quantize(4)) == flat).all()


def test_cmyk_is_converted(tmp_path):
    ink = np.zeros((8, 8, 4), np.uint8)
    ink[..., 0] = 255
    result = written(tmp_path, Image.fromarray(ink, "CMYK"), "x.jpg", quality=100)
    assert result.shape == (8, 8, 3)
    np.testing.assert_allclose(result[0, 0], [0, 255, 255], atol=3)


def test_alpha_is_kept(tmp_path):
    assert (written(tmp_path, Image.fromarray(COLOR)) == COLOR).all()
    grey_alpha = Image.fromarray(COLOR[..., :2], "LA")
    result = written(tmp_path, grey_alpha)
    assert (result[..., 3] == COLOR[..., 1]).all() and (result[..., :3] == COLOR[..., :1]).all()


def test_a_transparent_color_of_a_palette_becomes_alpha(tmp_path):
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.putdata([0, 1, 2])
    result = written(tmp_path, image, transparency=1)
    assert result.tolist() == [[[10, 20, 30, 255], [40, 50, 60, 0], [70, 80, 90, 255]]]


def test_composite_blends_over_the_background():
    result = composite(COLOR, np.array([1.0, 0.0, 0.5]))
    alpha = COLOR[..., 3:] / 255
    expected = COLOR[..., :3] * alpha + np.array([255, 0, 127.5]) * (1 - alpha)
    assert np.abs(result - expected).max() <= 0.5 + 1e-3


def test_downscaling_takes_the_mean_over_areas():
    image = np.arange(6 * 4 * 3, dtype=np.uint8).reshape(6, 4, 3)
    expected = image.reshape(3, 2, 2, 2, 3).mean((1, 3))
    assert np.abs(downscaled(image, 2) - expected).max() <= 0.51
    assert downscaled(image, 4).shape == (1, 1, 3)


def test_pictures_survive_writing(tmp_path):
    image = COLOR[..., :3]
    save_image(tmp_path / "deep" / "a.png", image)
    assert (load_image(tmp_path / "deep" / "a.png") == image).all()
    save_image(tmp_path / "b.png", image / 255.0)
    assert (load_image(tmp_path / "b.png") == image).all()
    assert image_header(tmp_path / "b.png")[:2] == (3, 2)


def test_values_out_of_range_are_clipped_when_written(tmp_path):
    save_image(tmp_path / "a.png", np.array([[[-1.0, 2.0, np.nan]]]))
    assert load_image(tmp_path / "a.png").tolist() == [[[0, 255, 0]]]


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n broken"])
def test_unreadable_files_are_named(tmp_path, content):
    (tmp_path / "bad one.png").write_bytes(content)
    with pytest.raises(InputError, match="bad one.png: unreadable image"):
        load_image(tmp_path / "bad one.png")


def test_a_truncated_picture_is_unreadable(tmp_path):
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="unreadable"):
        load_image(tmp_path / "a.png")
