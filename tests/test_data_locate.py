"""Which file a name means."""

import unicodedata
from pathlib import Path

import pytest

from jaxsplat.data.locate import Finder, locate

COMPOSED, APART = (unicodedata.normalize(form, "é.png") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(
    ("name", "files", "expected"),
    [
        ("a.JPG", ["a.jpg", "a.png"], "a.jpg"),
        ("a.jpg", ["A.JPG", "a.jpg"], "a.jpg"),
        ("a.tif", ["a.jpg", "a.png"], "a.png"),
        ("a", ["a.jpg", "a.json", "a.npy"], "a.jpg"),
        ("a", ["a", "a.png"], "a"),
        ("a.0", ["a.0.png", "a.png"], "a.0.png"),
        ("a", ["a.mask.png", "ab.png"], None),
        ("a.jpg", ["a.json"], None),
        (COMPOSED, [APART], APART),
        (APART, [COMPOSED], COMPOSED),
    ],
)
def test_the_closest_name_wins(tmp_path, name, files, expected):
    for file in files:
        (tmp_path / file).touch()
    assert Finder().find(tmp_path / name) == (None if expected is None else tmp_path / expected)


def test_a_folder_that_is_not_there_holds_nothing(tmp_path):
    assert Finder().find(tmp_path / "nowhere/a.png") is None


@pytest.mark.parametrize(
    ("folders", "downscale", "folder", "left"),
    [
        (["images", "images_2", "images_4"], 1, "images", 1),
        (["images", "images_2", "images_4"], 2, "images_2", 1),
        (["images", "images_2", "images_4"], 3, "images", 3),
        (["images", "images_2", "images_4"], 12, "images_4", 3),
        (["images_2", "images_4"], 1, "images_2", 1),
        (["images_4"], 8, "images_4", 2),
        (["images_4"], 6, "images_4", 1),
        (["images", "images_backup", "images_0"], 4, "images", 4),
    ],
)
def test_the_folder_that_saves_most_shrinking_is_used(tmp_path, folders, downscale, folder, left):
    for name in folders:
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub/a.png").touch()
    located = locate([tmp_path / "images/sub/a.png"], Finder(), downscale=downscale)
    assert located.paths == [tmp_path / folder / "sub/a.png"] and located.downscale == left
    assert (folder in located.note) == (folder != "images")


def test_no_pictures_are_no_failure():
    assert locate([], Finder(), downscale=2).paths == []
    assert locate([Path("nowhere/a.png")], Finder(), downscale=2).paths == [None]
