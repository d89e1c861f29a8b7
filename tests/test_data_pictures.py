"""Masks, and pictures that are read when they are needed within a bound on memory."""

import threading

import numpy as np
import pytest
from PIL import Image

from jaxsplat.data import load_capture
from jaxsplat.data.pictures import Canvas, Images, Picture, PictureStore, load_mask
from jaxsplat.io.files import InputError
from tests.colmap import orbit, write_model, write_pictures
from tests.data import shared
from tests.train.scenes import edit_transforms, write_capture

MASK = np.zeros((20, 24), np.uint8)
MASK[4:15, 6:19] = 255


def save_mask(path, mask=MASK):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(mask).save(path)


@pytest.mark.parametrize(
    "name",
    ["masks/003.png", "masks/003.png.png", "masks/003.PNG", "images/003.mask.png", "images/003.png.mask.png"],
)
def test_masks_are_found_by_name_and_views_without_one_count_whole(tmp_path, name):
    folder = write_capture(tmp_path / "c", views=4)
    save_mask(folder / name)
    capture = load_capture(folder)
    assert len(capture.images) == 4 and capture.masks is not None
    assert (capture.masks[3] == (MASK > 0)).all() and all(capture.masks[i].all() for i in range(3))
    expected = "1 of 4 images have a mask; what it hides counts neither in training nor in metrics."
    assert capture.notes == (expected,)


def test_a_view_that_its_mask_hides_from_edge_to_edge_is_left_out_and_named(tmp_path):
    folder = write_capture(tmp_path / "c", views=5)
    save_mask(folder / "masks/000.png", np.zeros((20, 24), np.uint8))
    save_mask(folder / "masks/003.png")
    capture = load_capture(folder)
    assert capture.cameras.names == ("images/001.png", "images/002.png", "images/003.png", "images/004.png")
    assert capture.held_out.tolist() == [True, False, False, False] and len(capture.cameras.viewmats) == 4
    assert [int(mask.sum()) for mask in capture.masks] == [480, 480, (MASK > 0).sum(), 480]
    pictures = [np.asarray(Image.open(folder / name)) for name in capture.cameras.names]
    assert all((a == b).all() for a, b in zip(capture.images, pictures, strict=True))
    assert capture.notes[-1] == ("Masks hide 1 of 5 images from edge to edge; they are left out: images/000.png.")
    for view in range(5):
        save_mask(folder / f"masks/{view:03}.png", np.zeros((20, 24), np.uint8))
    with pytest.raises(InputError, match="0 usable images leave 0 for training.* Masks hide 5 of 5 images"):
        load_capture(folder)


def test_masks_follow_sub_folders_and_sizes(tmp_path):
    names = ["a/0.jpg", "a/1.jpg", "b/0.jpg", "b/1.jpg"]
    write_model(tmp_path / "sparse/0", images=orbit(names))
    write_pictures(tmp_path / "images", names)
    write_pictures(tmp_path / "images_2", names, (12, 10))
    save_mask(tmp_path / "masks/b/0.png")
    save_mask(tmp_path / "masks_2/a/1.png", MASK[::2, ::2])
    whole, half = load_capture(tmp_path), load_capture(tmp_path, downscale=2)
    assert [bool(mask.all()) for mask in whole.masks] == [True, True, False, True]
    assert [bool(mask.all()) for mask in half.masks] == [True, False, False, True]
    assert (half.masks[1] == (MASK[::2, ::2] > 0)).all()


def test_a_mask_that_the_file_names_must_be_there(tmp_path):
    folder = write_capture(tmp_path / "c", views=4)
    edit_transforms(folder, lambda c: c["frames"][2].update(mask_path="m/x.png"))
    with pytest.raises(InputError, match=r"frame 2 \('images/002.png'\): the mask .*x.png is missing"):
        load_capture(folder)
    save_mask(folder / "m/x.png")
    assert load_capture(folder).masks[2].sum() == (MASK > 0).sum()


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (np.array([[0, 127, 128, 255]], np.uint8), [False, False, True, True]),
        (np.array([[0, 1, 1, 0]], np.uint8), [False, True, True, False]),
        (np.array([[0, 255]], np.uint8), [False, False, True, True]),
        (np.array([[0, 0, 40000, 65535]], np.uint16), [False, False, True, True]),
        (
            np.array([[[0] * 3 + [255], [255] * 4, [255] * 3 + [0], [9] * 3 + [255]]], np.uint8),
            [False, True, False, False],
        ),
    ],
)
def test_bright_pixels_of_a_mask_count(tmp_path, mask, expected):
    save_mask(tmp_path / "m.png", mask)
    assert load_mask(tmp_path / "m.png", 1, 4).tolist() == [expected]


def test_after_shrinking_and_straightening_only_pixels_that_show_nothing_hidden_count(tmp_path):
    folder = write_capture(tmp_path / "c", views=4, size=(48, 40), k1=-0.2)
    pictures = np.zeros((40, 48, 3), np.uint8)
    hidden = np.zeros((40, 48), bool)
    hidden[10:23, 17:30] = True
    pictures[hidden] = 255
    for path in (folder / "images").iterdir():
        Image.fromarray(pictures + np.uint8(0)).save(path)
        save_mask(folder / "masks" / path.name, np.where(hidden, 0, 255).astype(np.uint8))
    # A black capture is refused, so one pixel of one picture, far from the hidden part, is lit.
    pictures[38, 2] = 9
    Image.fromarray(pictures).save(folder / "images/000.png")
    for downscale in (1, 3):
        capture = load_capture(folder, downscale=downscale)
        counted = capture.images[1][capture.masks[1]]
        assert counted.max() <= 1, "no trace of the hidden white"
        assert 0.8 < capture.masks[1].mean() < 0.95


def test_real_masks_are_found_in_the_folder_of_their_size():
    capture = load_capture(shared("data/captures/mary_rose_tankard"), downscale=8)
    assert capture.masks is not None and capture.masks.shape == (69, 432, 432)
    assert "69 of 69 images have a mask" in capture.notes[-1]
    assert 0.05 < np.mean([mask.mean() for mask in capture.masks]) < 0.6


def counting_store(capacity, views=10):
    """A store of 2x2 pictures that says which of them were read."""
    read = []

    def picture(view):
        read.append(view)
        return Picture(np.full((2, 2, 3), view, np.uint8), None, None)

    size = Canvas(2, 2, False, False)
    return PictureStore(picture, size, views=views, memory=3 * 12 * capacity), read


def test_pictures_are_read_when_they_are_indexed_and_kept_within_the_bound():
    store, read = counting_store(3)
    images = Images(store, "pixels")
    assert images.shape == (10, 2, 2, 3) and len(images) == 10 and read == []
    assert [images[i].max() for i in (4, 5, 4, 6)] == [4, 5, 4, 6]
    assert read == [4, 5, 6]
    assert images[7].max() == 7 and images[4].max() == 4 and read == [4, 5, 6, 7], "the one used longest ago goes"
    assert images[5].max() == 5 and read == [4, 5, 6, 7, 5]
    assert images.capacity == 3


def test_choosing_views_reads_nothing():
    store, read = counting_store(3)
    images = Images(store, "pixels")[np.array([8, 2, 9])]
    assert images.shape == (3, 2, 2, 3) and read == [] and images[1].max() == 2
    assert images[np.array([True, False, True])].shape[0] == 2 and images[1:][0].max() == 2
    assert np.asarray(images)[:, 0, 0, 0].tolist() == [8, 2, 9]
    assert np.asarray(images, np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="always a copy"):
        np.array(images, copy=False)


def test_reading_ahead_is_done_by_threads_and_once():
    store, read = counting_store(4)
    images = Images(store, "pixels")
    images.prefetch(range(10))
    assert [images[i].max() for i in range(4)] == [0, 1, 2, 3]
    assert sorted(read) == [0, 1, 2, 3]


def test_many_threads_may_ask_at_once():
    store, _ = counting_store(2)
    images, wrong = Images(store, "pixels"), []

    def ask(seed):
        for view in np.random.default_rng(seed).integers(0, 10, 200):
            wrong.extend([view] if images[int(view)].max() != view else [])

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_is_kept_cannot_be_changed_by_who_reads_it(tmp_path):
    capture = load_capture(write_capture(tmp_path / "c"))
    with pytest.raises(ValueError, match="read-only"):
        capture.images[0][0, 0] = 0


def test_a_picture_that_ends_too_early_is_named_when_it_is_read(tmp_path):
    folder = write_capture(tmp_path / "c")
    path = folder / "images/005.png"
    path.write_bytes(path.read_bytes()[:-40])
    capture = load_capture(folder)
    with pytest.raises(InputError, match="005.png: unreadable image"):
        capture.images[5]
