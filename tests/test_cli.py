"""The command line: exit codes, one-line errors, and the commands that use what training leaves."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageSequence

import jaxsplat.train
from jaxsplat.cli import main
from jaxsplat.io.ply import save_ply
from tests.train.scenes import edit_transforms, random_splats, write_capture

SMALL = ["--steps", "4", "--sh-degree", "1", "--initial-points", "60", "--cap", "60"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    base = tmp_path_factory.mktemp("cli")
    folder = write_capture(base / "capture")
    assert main(["train", str(folder), "--out", str(base / "out"), "--downscale", "2", "--antialiased", *SMALL]) == 0
    return folder, base / "out"


def test_eval_reproduces_the_figures_of_the_training(trained, tmp_path, capsys):
    _, out = trained
    assert main(["eval", str(out), "--out", str(tmp_path)]) == 0
    assert "Mean of 2 views: PSNR" in capsys.readouterr().out
    figures = json.loads((tmp_path / "metrics.json").read_text())
    assert figures["views"] == json.loads((out / "metrics.json").read_text())["views"]
    assert (tmp_path / "pictures" / "images_008.png").is_file()


def test_lenses_are_trained_through_unless_distortion_is_to_be_removed(tmp_path, capsys):
    folder = write_capture(tmp_path / "c", k1=-0.2)
    for option, said in (("--no-undistort", False), ("--undistort", True)):
        out = tmp_path / option
        arguments = ["train", str(folder), "--out", str(out), *SMALL, *([option] if said else [])]
        assert main(arguments) == 0
        assert ("Lens distortion removed" in capsys.readouterr().out) == said
        assert main(["eval", str(out), "--out", str(tmp_path / "eval")]) == 0
        views = [json.loads((path / "metrics.json").read_text())["views"] for path in (out, tmp_path / "eval")]
        assert views[0] == views[1]


def test_render_from_the_cameras_equals_the_pictures_of_the_training(trained, tmp_path):
    folder, out = trained
    arguments = ["render", str(out / "point_cloud.ply"), "--cameras", str(folder), "--out", str(tmp_path)]
    assert main([*arguments, "--downscale", "2"]) == 0
    assert len(list(tmp_path.iterdir())) == 10
    rendered = np.asarray(Image.open(tmp_path / "images_008.png"))
    side_by_side = np.asarray(Image.open(out / "pictures" / "images_008.png"))
    assert np.array_equal(rendered, side_by_side[:, 12:24])


def test_render_flies_along_a_path_and_writes_a_film(trained, tmp_path):
    folder, out = trained
    arguments = ["render", str(out), "--cameras", str(folder / "transforms.json"), "--out", str(tmp_path)]
    assert main([*arguments, "--path", "5", "--video", "flight.webp"]) == 0
    with Image.open(tmp_path / "flight.webp") as film:
        assert len(list(ImageSequence.Iterator(film))) == 5 and film.size == (24, 20)
    assert (tmp_path / "0004.png").is_file()


@pytest.mark.parametrize("kind", ["ellipse", "spiral"])
def test_render_flies_around_the_scene(trained, tmp_path, kind):
    folder, out = trained
    arguments = ["render", str(out), "--cameras", str(folder), "--out", str(tmp_path), "--path", "2", "--flight", kind]
    assert main(arguments) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0000.png", "0001.png"]


def test_the_strategy_and_its_settings_are_chosen_by_name(tmp_path, capsys):
    folder = write_capture(tmp_path / "capture")
    base = ["train", str(folder), "--steps", "3", "--sh-degree", "0", "--initial-points", "40"]
    assert main([*base, "--out", str(tmp_path / "a"), "--strategy", "default", "--default.absgrad", "--cap", "70"]) == 0
    config = json.loads((tmp_path / "a" / "config.json").read_text())["config"]
    assert config["strategy_kind"] == "Default"
    assert config["strategy"]["absgrad"] is True and config["strategy"]["cap"] == 70
    with pytest.raises(SystemExit) as exit_:
        main([*base, "--out", str(tmp_path / "b"), "--strategy", "random"])
    assert exit_.value.code == 2
    assert "invalid choice 'random'" in capsys.readouterr().err
    assert main([*base, "--out", str(tmp_path / "c"), "--cap", "0"]) == 1
    assert "strategy.cap must be at least 1, got 0" in capsys.readouterr().err


def test_any_splat_file_can_be_compared_with_a_capture(trained, tmp_path, capsys):
    save_ply(tmp_path / "other.ply", random_splats(5))
    assert main(["eval", str(tmp_path / "other.ply")]) == 1
    assert "no config.json says what it was trained from; give --capture" in capsys.readouterr().err
    assert main(["eval", str(tmp_path / "other.ply"), "--capture", str(trained[0])]) == 0


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda f: (f / "transforms.json").write_text('{"frames": [}'), "transforms.json: malformed JSON at line 1"),
        (lambda f: edit_transforms(f, lambda c: c.pop("frames")), "field 'frames' must be a list"),
        (lambda f: edit_transforms(f, lambda c: c.update(fl_x=None)), "needs fl_x or camera_angle_x"),
        (lambda f: [p.unlink() for p in (f / "images").iterdir()], "none of the 10 listed images can be used"),
    ],
)
def test_bad_input_is_one_line_on_standard_error_and_exit_code_1(tmp_path, capsys, break_it, message):
    folder = write_capture(tmp_path / "c")
    break_it(folder)
    assert main(["train", str(folder), "--out", str(tmp_path / "out"), *SMALL]) == 1
    error = capsys.readouterr().err
    assert message in error and error.startswith("jaxsplat: error: ") and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_existing_folder_is_refused(trained, capsys):
    folder, out = trained
    assert main(["train", str(folder), "--out", str(out), *SMALL]) == 1
    assert "give --resume to go on, or --overwrite" in capsys.readouterr().err
    assert main(["train", str(folder), "--out", str(out), "--resume", "--overwrite", *SMALL]) == 1


def test_a_place_that_cannot_be_written_is_named(trained, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["train", str(trained[0]), "--out", str(tmp_path / "file" / "out"), *SMALL]) == 1
    assert "file" in capsys.readouterr().err


def test_wrong_arguments_exit_with_2(capsys):
    with pytest.raises(SystemExit) as error:
        main(["train"])
    assert error.value.code == 2
    assert "--out" in capsys.readouterr().err


def test_a_missing_package_says_how_to_install_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.delitem(sys.modules, "jaxsplat.train.commands", raising=False)
    monkeypatch.delattr(jaxsplat.train, "commands", raising=False)
    assert main(["demo"]) == 1
    assert "tyro is not installed; run: pip install 'jaxsplat[train]'" in capsys.readouterr().err


def test_demo_makes_a_capture_trains_it_and_leaves_everything(tmp_path, capsys):
    arguments = ["demo", "--out", str(tmp_path), "--size", "32", "--views", "9", "--steps", "10"]
    assert main(arguments) == 0
    assert "Held-out views: PSNR" in capsys.readouterr().out
    assert (tmp_path / "result" / "point_cloud.ply").is_file() and (tmp_path / "capture/transforms.json").is_file()
    assert main(arguments) == 0, "a second demo replaces the first"


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "jaxsplat", "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert "train" in done.stdout
