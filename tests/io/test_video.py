"""Films hold all their pictures."""

import numpy as np
import pytest
from PIL import Image, ImageSequence

from jaxsplat.io.files import InputError
from jaxsplat.io.video import save_video

FRAMES = [np.full((21, 31, 3), 60 * i, np.uint8) for i in range(4)]


@pytest.mark.parametrize("suffix", [".webp", ".gif"])
def test_every_picture_is_in_the_film(tmp_path, suffix):
    save_video(tmp_path / f"a{suffix}", iter(FRAMES), fps=10)
    with Image.open(tmp_path / f"a{suffix}") as film:
        assert len(list(ImageSequence.Iterator(film))) == 4
        film.seek(3)
        np.testing.assert_allclose(np.asarray(film.convert("RGB")), 180, atol=4)


def test_mp4_is_written_where_its_encoder_is_installed(tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="the encoder for .mp4 is not installed")
    save_video(tmp_path / "a.mp4", FRAMES)
    assert b"ftyp" in (tmp_path / "a.mp4").read_bytes()[:16]


def test_other_endings_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"a.avi: a video must end in one of .webp, .gif, .mp4"):
        save_video(tmp_path / "a.avi", FRAMES)
