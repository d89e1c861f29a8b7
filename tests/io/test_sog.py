"""SOG scenes, bundled and as a folder."""

import io
import json
import shutil
import zipfile

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy.spatial import KDTree

from jaxsplat.io.files import InputError
from jaxsplat.io.splats import load_splats, read_splats, save_splats
from tests.data import shared
from tests.io.compare import assert_near, taken
from tests.train.scenes import random_splats


@pytest.fixture
def folder(tmp_path):
    """A copy of a real scene, to be damaged."""
    shutil.copytree(shared("data/splats/playbot_5_0_sog"), tmp_path / "sog")
    for path in (tmp_path / "sog").iterdir():
        path.chmod(0o644)
    (tmp_path / "sog").chmod(0o755)
    return tmp_path / "sog"


def edit(folder, change):
    meta = json.loads((folder / "meta.json").read_text())
    change(meta)
    (folder / "meta.json").write_text(json.dumps(meta))


def webp(array):
    file = io.BytesIO()
    Image.fromarray(array.astype(np.uint8)).save(file, "WEBP", lossless=True, exact=True)
    return file.getvalue()


def test_every_value_of_a_small_scene_is_where_the_format_puts_it(tmp_path):
    book = np.linspace(-1, 1, 256)
    meta = {
        "version": 2, "count": 3, "antialias": True,
        "means": {"mins": [-1.0, 0, 0], "maxs": [1.0, 2, 0], "files": ["l", "u"]},
        "scales": {"codebook": (book - 3).tolist(), "files": ["s"]},
        "quats": {"files": ["q"]}, "sh0": {"codebook": book.tolist(), "files": ["c"]},
        "shN": {"bands": 1, "count": 2, "codebook": (2 * book).tolist(), "files": ["n", "i"]},
    }  # fmt: skip
    pixels = {
        "l": [[[255, 0, 0], [0, 1, 0]], [[0, 0, 0], [0, 0, 0]]], "u": [[[255, 0, 0], [0, 128, 0]], [[0] * 3] * 2],
        "s": [[[0, 255, 51], [0] * 3], [[0] * 3] * 2],
        "q": [[[255, 127, 128, 252], [0, 128, 127, 255]], [[128] * 3 + [254]] * 2],
        "c": [[[0, 255, 51, 255], [0, 0, 0, 0]], [[0, 0, 0, 128]] * 2], "i": [[[1, 0, 0], [0, 1, 0]], [[0] * 3] * 2],
        "n": [[[k % 256 if row < 4 else 200 + k % 3, 0, 255] for k in range(192)] for row in range(5)],
    }  # fmt: skip
    with zipfile.ZipFile(tmp_path / "a.sog", "w") as archive:
        archive.writestr("meta.json", json.dumps(meta))
        for name, values in pixels.items():
            archive.writestr(name, webp(np.array(values)))
    splats, form, notes, antialiased = read_splats(tmp_path / "a.sog")
    assert form == "SOG version 2" and antialiased and not notes
    e = np.e - 1
    y = np.expm1(2 * 32769 / 65535)
    np.testing.assert_allclose(splats.means, [[e, 0, 0], [-e, y, 0], [-e, 0, 0]], rtol=1e-5)
    np.testing.assert_allclose(splats.log_scales[0], [-4, -2, -3.6], rtol=1e-5)
    half = 0.5**0.5
    np.testing.assert_allclose(splats.quats, [[half, half, 0, 0], [-half, 0, 0, half], [0, 0, 1, 0]], atol=0.006)
    np.testing.assert_allclose(splats.sh_dc[0, 0], [-1, 1, -0.6], rtol=1e-5)
    opacities = 1 / (1 + np.exp(-np.asarray(splats.logit_opacities)))
    np.testing.assert_allclose(opacities, [254.75 / 255, 0.25 / 255, 128 / 255], rtol=1e-4)
    np.testing.assert_allclose(splats.sh_rest[0], 2 * book[[[3, 0, 255], [4, 0, 255], [5, 0, 255]]], rtol=1e-5)
    np.testing.assert_allclose(splats.sh_rest[1, :, 0], 2 * book[200:203], rtol=1e-5)


def test_a_real_bundle_is_read():
    splats = load_splats(shared("data/splats/monkey_0001.sog"))
    assert splats.means.shape == (31_658, 3) and splats.sh_rest.shape == (31_658, 0, 3)
    assert float(np.ptp(np.asarray(splats.sh_dc), 0).max()) == 0.0, "it has one colour"


def test_a_real_scene_lies_on_surfaces():
    """A trained splat is thin across the surface: its shortest axis is the normal of its neighbours."""
    splats = load_splats(shared("data/splats/playbot_5_0_sog"))
    means, quats, sizes = (np.asarray(x, np.float64) for x in (splats.means, splats.quats, splats.log_scales))
    w, x, y, z = quats.T
    axes = np.stack([
        np.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)], 1),
        np.stack([2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)], 1),
        np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], 1),
    ], 1)  # fmt: skip
    flat = np.flatnonzero(np.sort(sizes, 1)[:, 1] - sizes.min(1) > 1.5)
    shortest = axes[flat, sizes[flat].argmin(1)]
    _, near = KDTree(means).query(means[flat], 24)
    offsets = means[near] - means[near].mean(1, keepdims=True)
    normals = np.linalg.eigh(offsets.transpose(0, 2, 1) @ offsets)[1][..., 0]
    assert np.median(np.abs((shortest * normals).sum(1))) > 0.9  # 0.5 for random directions


def test_a_folder_and_its_meta_are_the_same_scene(folder):
    splats = load_splats(folder)
    assert splats.sh_rest.shape == (3000, 8, 3)
    assert float(splats.means[:, 1].max()) < 0.04 and float(splats.means[:, 1].min()) < -0.7, "it stands, and y is down"
    again = load_splats(folder / "meta.json")
    assert (again.means == splats.means).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=3), "SOG version 3; version 2 can be read"),
        (lambda m: m.pop("version"), "SOG version None"),
        (lambda m: m.pop("quats"), "no usable field 'quats.files', got None"),
        (lambda m: m.update(count=4000), "means: 3136 pixels for 4000 splats"),
        (lambda m: m.update(count=-1), "'count' must be at least 0, got -1"),
        (lambda m: m["scales"].update(codebook=[1.0]), "'scales.codebook' must be 256 numbers, got 1 values"),
        (lambda m: m["means"].update(files=["means_l.webp"]), "has no part file 1 of means"),
        (lambda m: m["shN"].update(bands=3), "SH centroids is 512 wide, expected 960"),
        (lambda m: m["shN"].update(bands=0), "'shN.bands' must be 1, 2 or 3"),
        (lambda m: m["quats"].update(files=["sh0.webp"]), "pixels hold no rotation"),
        (lambda m: m["sh0"].update(files=["playbot.txt"]), "playbot.txt: unreadable image"),
    ],
)
def test_damaged_scenes_are_refused_with_the_reason(folder, change, message):
    edit(folder, change)
    with pytest.raises(InputError, match=message):
        load_splats(folder)


def test_a_truncated_bundle_and_a_bundle_of_something_else_are_refused(tmp_path):
    (tmp_path / "a.sog").write_bytes(shared("data/splats/monkey_0001.sog").read_bytes()[:1000])
    with pytest.raises(InputError, match="a.sog: no .sog file"):
        load_splats(tmp_path / "a.sog")
    with zipfile.ZipFile(tmp_path / "b.sog", "w") as archive:
        archive.writestr("readme", "")
    with pytest.raises(InputError, match="b.sog: has no part meta.json"):
        load_splats(tmp_path / "b.sog")
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(InputError, match="meta.json is no JSON"):
        load_splats(tmp_path)


def in_order_of(means, other):
    """The row of `other` that is nearest to each of `means`, once each."""
    rows = KDTree(np.asarray(other)).query(np.asarray(means))[1]
    assert len(set(rows.tolist())) == len(rows)
    return rows


@pytest.mark.parametrize("rest", [0, 3, 8, 15])
def test_what_is_written_is_read_again_within_half_a_step(tmp_path, rest):
    splats = random_splats(200, rest=rest)
    save_splats(tmp_path / "a.sog", splats)
    found = load_splats(tmp_path / "a.sog")
    found = taken(found, in_order_of(splats.means, found.means))
    assert_near(
        splats, found, means=2e-4, quats=0.015, log_scales=0.01, logit_opacities=0.502 / 255, sh_dc=0.03, sh_rest=0.006
    )


def test_few_different_values_survive_exactly_and_bytes_do_not_depend_on_the_run(tmp_path):
    splats = random_splats(90, rest=3)
    levels = jnp.linspace(-1.0, 1.0, 200)
    splats = splats._replace(
        log_scales=levels[jnp.arange(270) % 200].reshape(90, 3) - 3,
        sh_dc=levels[jnp.arange(270) % 190].reshape(90, 1, 3),
        sh_rest=levels[jnp.arange(810) % 180].reshape(90, 3, 3),
    )
    for name in ("a.sog", "b.sog"):
        save_splats(tmp_path / name, splats)
    assert (tmp_path / "a.sog").read_bytes() == (tmp_path / "b.sog").read_bytes()
    found = load_splats(tmp_path / "a.sog")
    found = taken(found, in_order_of(splats.means, found.means))
    assert_near(splats, found, means=2e-4, quats=0.015, logit_opacities=0.502 / 255)


def test_transparent_splats_keep_their_colors(tmp_path):
    splats = random_splats(9, rest=0)._replace(logit_opacities=jnp.full(9, -jnp.inf))
    save_splats(tmp_path / "a.sog", splats)
    found = load_splats(tmp_path / "a.sog")
    np.testing.assert_array_equal(taken(found, in_order_of(splats.means, found.means)).sh_dc, splats.sh_dc)


def test_no_splats_and_one_are_files_too(tmp_path):
    for count in (0, 1):
        splats = random_splats(count)
        save_splats(tmp_path / f"{count}.sog", splats)
        assert_near(
            splats,
            load_splats(tmp_path / f"{count}.sog")._replace(sh_rest=splats.sh_rest),
            quats=0.015,
            logit_opacities=0.502 / 255,
        )


def test_a_real_bundle_is_written_again_with_the_same_values(tmp_path):
    splats = load_splats(shared("data/splats/playbot_5_0_sog"))
    save_splats(tmp_path / "a.sog", splats)
    found = load_splats(tmp_path / "a.sog")
    again = taken(found, in_order_of(splats.means, found.means))
    assert_near(splats, again, means=1e-5, quats=0.015, log_scales=1e-5, logit_opacities=1e-6, sh_dc=1e-6, sh_rest=1e-6)
