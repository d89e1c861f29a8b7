"""convert, info and export on the command line."""

import os
import subprocess
import sys

import jax.numpy as jnp
import pytest

from jaxsplat.cli import main
from jaxsplat.io.splats import load_splats, save_splats
from tests.io.compare import taken
from tests.train.scenes import random_splats, trees_equal


@pytest.fixture
def scene(tmp_path):
    save_splats(tmp_path / "in.ply", random_splats(30, rest=8))
    return tmp_path / "in.ply"


def test_convert_writes_the_format_of_the_ending_and_says_what_is_left_out(scene, tmp_path, capsys):
    assert main(["convert", str(scene), str(tmp_path / "out.splat")]) == 0
    printed = capsys.readouterr().out
    assert "SH degrees above 0 left out: in.ply has 2." in printed
    assert "30 splats of SH degree 0" in printed and "960 bytes" in printed
    assert (tmp_path / "out.splat").stat().st_size == 960


def test_convert_to_ply_keeps_every_bit(scene, tmp_path, capsys):
    assert main(["convert", str(scene), str(tmp_path / "out.ply")]) == 0
    assert (tmp_path / "out.ply").read_bytes() == scene.read_bytes()
    assert "left out" not in capsys.readouterr().out
    assert main(["convert", str(scene), str(tmp_path / "low.ply"), "--sh-degree", "1"]) == 0
    assert load_splats(tmp_path / "low.ply").sh_rest.shape == (30, 3, 3)


def test_a_file_is_replaced_only_on_demand(scene, tmp_path, capsys):
    (tmp_path / "out.spz").write_bytes(b"mine")
    assert main(["convert", str(scene), str(tmp_path / "out.spz")]) == 1
    assert "out.spz: exists; give --overwrite" in capsys.readouterr().err
    assert (tmp_path / "out.spz").read_bytes() == b"mine"
    assert main(["convert", str(scene), str(tmp_path / "out.spz"), "--overwrite"]) == 0
    assert main(["convert", str(scene), str(scene), "--sh-degree", "0", "--overwrite"]) == 0
    assert load_splats(scene).sh_rest.shape == (30, 0, 3)


def test_info_says_what_a_file_holds(scene, capsys):
    assert main(["info", str(scene)]) == 0
    printed = capsys.readouterr().out
    for words in ("format     PLY", "splats     30", "SH degree  2", "opacity", "largest scale"):
        assert words in printed


def test_the_mark_of_anti_aliasing_is_carried_over_or_said_to_be_lost(scene, tmp_path, capsys):
    def converted(source, name, *more):
        assert main(["convert", str(source), str(tmp_path / name), *more]) == 0
        assert main(["info", str(tmp_path / name)]) == 0
        return capsys.readouterr().out

    assert "Trained with anti-aliasing.\n" in converted(scene, "a.spz", "--antialiased", "True")
    assert "Trained with anti-aliasing.\n" in converted(tmp_path / "a.spz", "b.sog")
    assert "anti-aliasing" not in converted(tmp_path / "b.sog", "c.sog", "--antialiased", "False")
    assert "b.ply has no place to say that it was trained with anti-aliasing" in converted(tmp_path / "b.sog", "b.ply")


def test_a_reader_that_goes_away_gets_no_traceback(scene):
    command = [sys.executable, "-m", "jaxsplat", "info", str(scene)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_export_says_how_many_were_dropped(scene, tmp_path, capsys):
    splats = load_splats(scene)
    save_splats(scene, splats._replace(means=splats.means.at[0].set(jnp.nan)))
    out = tmp_path / "out.ply"
    assert (
        main(["export", str(scene), str(out), "--prune.box", "-9", "-9", "-9", "9", "9", "9", "--prune.count", "20"])
        == 0
    )
    printed = capsys.readouterr().out
    for line in (
        "Dropped 1: not finite or without rotation.",
        "Dropped 0: outside the box -9 -9 -9 9 9 9.",
        "Dropped 9: beyond the count of 20.",
        "Kept 20 of 30 splats.",
    ):
        assert line in printed
    assert len(load_splats(out).means) == 20


def test_export_makes_a_scene_fit_for_a_compact_format(scene, tmp_path, capsys):
    splats = load_splats(scene)
    save_splats(scene, splats._replace(quats=splats.quats.at[4].set(0.0)))
    assert main(["convert", str(scene), str(tmp_path / "out.spz")]) == 1
    assert "cannot hold 1 of 30 splats" in capsys.readouterr().err
    assert main(["export", str(scene), str(tmp_path / "out.spz")]) == 0
    assert len(load_splats(tmp_path / "out.spz").means) == 29


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "nowhere.ply", "out.spz"], "nowhere.ply: no such file"),
        (["convert", "in.ply", "out.obj"], "out.obj: a file of splats must end in one of"),
        (["convert", "in.ply", "out.ply", "--sh-degree", "5"], "--sh-degree must be 0 to 4, got 5"),
        (["export", "in.ply", "out.ply", "--prune.min-opacity", "2"], "min_opacity must lie in 0..1"),
        (["info", "bad.ply"], "bad.ply: no splats, perhaps a mesh"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_file(scene, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.ply").write_bytes(b"ply\nformat ascii 1.0\nelement vertex 0\nproperty float x\nend_header\n")
    before = sorted(os.listdir())
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(os.listdir()) == before


def test_a_full_disk_leaves_no_file(scene, tmp_path, monkeypatch, capsys):
    def full(_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    assert main(["convert", str(scene), str(tmp_path / "out.spz")]) == 1
    assert "out.spz: No space left" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["in.ply"]


def test_any_format_can_be_rendered(tmp_path):
    from tests.train.scenes import write_capture

    capture = write_capture(tmp_path / "capture", views=2)
    save_splats(tmp_path / "a.spz", random_splats(30))
    assert main(["render", str(tmp_path / "a.spz"), "--cameras", str(capture), "--out", str(tmp_path / "o")]) == 0
    assert len(list((tmp_path / "o").iterdir())) == 2


def test_rows_keep_their_order(scene, tmp_path):
    splats = load_splats(scene)
    assert main(["export", str(scene), str(tmp_path / "out.ply"), "--prune.box", "-9", "-9", "-9", "0", "9", "9"]) == 0
    keep = (splats.means[:, 0] <= 0).nonzero()[0]
    assert trees_equal(load_splats(tmp_path / "out.ply"), taken(splats, keep))
