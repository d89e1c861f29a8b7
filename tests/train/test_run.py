"""The whole job on a small capture: results, resume, interrupts, and what must be refused."""

import dataclasses
import errno
import json
import os
import shutil
import signal

import numpy as np
import pytest

from jaxsplat.cli import main
from jaxsplat.data import load_capture
from jaxsplat.io.files import InputError
from jaxsplat.io.ply import load_ply
from jaxsplat.strategy import MCMC
from jaxsplat.train import TrainConfig, train_capture
from jaxsplat.train import run as run_module
from jaxsplat.train.checkpoint import load_settings
from jaxsplat.train.history import load_rows
from jaxsplat.train.poses import CameraRefinement
from tests.train.scenes import edit_transforms, trees_equal, write_capture

CONFIG = TrainConfig(
    steps=20, sh_degree=1, initial_points=100, strategy=MCMC(cap=120, refine_every=5, refine_start=0.0, noise=1e3)
)
UNFINISHED = {"config.json", "checkpoint.npz", "curves.csv"}
FILES = UNFINISHED | {"point_cloud.ply", "metrics.json", "pictures", "report.html"}


def quiet(_):
    pass


def train(folder, out, config=CONFIG, **settings):
    return train_capture(folder, out, config, tell=quiet, checkpoint_every=5, **settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_capture(tmp_path_factory.mktemp("capture") / "c")


@pytest.fixture(scope="module")
def finished(folder):
    out = folder.parent / "finished"
    return out, train(folder, out)


def test_a_run_leaves_splats_figures_and_pictures(finished):
    out, result = finished
    assert {path.name for path in out.iterdir()} == FILES
    figures = json.loads((out / "metrics.json").read_text())
    assert figures["psnr"] == result.evaluation.psnr and figures["steps"] == 20
    assert [view["name"] for view in figures["views"]] == ["images/000.png", "images/008.png"]
    assert len(load_ply(out / "point_cloud.ply").means) == figures["splats"]
    assert {path.name for path in (out / "pictures").iterdir()} == {"images_000.png", "images_008.png"}


class Recorder:
    """A watcher that keeps what it is shown."""

    def __init__(self):
        self.seen, self.captions, self.waits = [], [], 0

    def begin(self, capture, splats):
        self.cameras = capture.cameras
        self.seen.append(splats)

    def update(self, splats, *, caption):
        self.seen.append(splats)
        self.captions.append(caption)

    def wait_while_paused(self, stopped):
        assert not stopped()
        self.waits += 1


def test_an_interrupted_run_resumes_to_the_same_bits_watched_or_not(folder, finished, tmp_path, monkeypatch):
    out = tmp_path / "out"
    save = run_module.save_checkpoint

    def save_and_interrupt(path, state, settings):
        save(path, state, settings)
        if int(state.step) == 10:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(run_module, "save_checkpoint", save_and_interrupt)
    assert train(folder, out).evaluation is None
    assert {path.name for path in out.iterdir()} == UNFINISHED
    monkeypatch.undo()
    watcher = Recorder()
    result = train(folder, out, existing="resume", watcher=watcher)
    assert result.evaluation and result.evaluation.psnr == finished[1].evaluation.psnr
    assert (out / "point_cloud.ply").read_bytes() == (finished[0] / "point_cloud.ply").read_bytes()
    seconds = [train(folder, out, existing="resume").seconds, json.loads((out / "metrics.json").read_text())["seconds"]]
    assert min(seconds) >= 0.9 * result.seconds > 0, "a run that is done keeps the seconds that it took"
    rows, whole = (load_rows(folder / "curves.csv", until=20) for folder in (out, finished[0]))
    assert [row[:5] for row in rows] == [row[:5] for row in whole] and [row.step for row in rows] == list(range(1, 21))
    with np.load(out / "checkpoint.npz") as a, np.load(finished[0] / "checkpoint.npz") as b:
        assert all(np.array_equal(a[name], b[name]) for name in a.files if name != "settings")
    # What the watcher was shown is in the world of the capture, and stays as it was while the training goes on.
    last = load_ply(out / "point_cloud.ply")
    assert (watcher.seen[-1].means[: len(last.means)] == last.means).all()
    assert all(splats.means.shape == (120, 3) for splats in watcher.seen)
    assert watcher.waits == len(watcher.captions) >= 1 and watcher.captions[-1].startswith("step 20 of 20, ")
    assert len(watcher.cameras.names) == 10


def test_learned_cameras_are_written_in_the_world_of_the_capture_and_judged_with(folder, tmp_path, capsys):
    refinement = CameraRefinement(pose_rate=1e-5, intrinsics_rate=1e-3, align_steps=2)
    out = tmp_path / "out"
    result = train(folder, out, dataclasses.replace(CONFIG, steps=2, cameras=refinement))
    content = json.loads((out / "cameras.json").read_text())
    cameras = load_capture(folder).cameras
    assert [view["name"] for view in content["views"]] == list(cameras.names)
    for k, view in enumerate(content["views"]):
        np.testing.assert_allclose(view["viewmat"], cameras.viewmats[k], atol=2e-4)
        np.testing.assert_allclose(view["K"], cameras.Ks[k], atol=0.2)
        assert np.array_equal(np.float32(view["viewmat"]), cameras.viewmats[k]) == (k % 8 == 0), "held-out poses stay"
        assert not np.array_equal(np.float32(view["K"]), cameras.Ks[k])
    figures = json.loads((out / "metrics.json").read_text())
    assert figures["aligned"]["steps"] == 2 and figures["aligned"]["psnr"] > figures["psnr"] == result.evaluation.psnr
    capsys.readouterr()
    assert main(["eval", str(out), "--align-steps", "2"]) == 0, "with the cameras that were learned"
    printed = capsys.readouterr().out
    assert f"Mean of 2 views: PSNR {figures['psnr']:.2f} dB" in printed
    assert f"each held-out camera aligned to the scene in 2 steps: PSNR {figures['aligned']['psnr']:.2f} dB" in printed


def test_a_run_whose_splats_are_all_dead_says_so_and_ends_well(folder, tmp_path, capsys):
    dead = dataclasses.replace(CONFIG, steps=12, strategy=dataclasses.replace(CONFIG.strategy, min_opacity=0.99))
    assert train(folder, tmp_path / "out", dead).evaluation is not None
    assert "all splats are dead; no live one is left to make new ones of" in capsys.readouterr().err


def test_resuming_a_finished_run_evaluates_it_again(folder, finished):
    out, result = finished
    again = train(folder, out, existing="resume").evaluation
    assert again and again.psnr == result.evaluation.psnr


def test_resuming_with_other_settings_or_pictures_is_refused_and_named(folder, finished, tmp_path):
    with pytest.raises(InputError, match="config.steps was 20, now 21"):
        train(folder, finished[0], dataclasses.replace(CONFIG, steps=21), existing="resume")
    with pytest.raises(InputError, match="fingerprint was"):
        train(write_capture(tmp_path / "other", views=11), finished[0], existing="resume")
    with pytest.raises(InputError, match="no checkpoint.npz to resume from"):
        train(folder, tmp_path / "nowhere", existing="resume")


def test_resuming_with_other_held_out_views_is_refused(folder, tmp_path):
    capture, out = shutil.copytree(folder, tmp_path / "c"), tmp_path / "out"
    content = json.loads((capture / "transforms.json").read_text())
    (capture / "transforms.json").unlink()

    def hold_out(count):
        for name, frames in (("train", content["frames"][count:]), ("test", content["frames"][:count])):
            (capture / f"transforms_{name}.json").write_text(json.dumps({**content, "frames": frames}))

    config = dataclasses.replace(CONFIG, steps=2)
    hold_out(2)
    train(capture, out, config)
    hold_out(3)
    with pytest.raises(InputError, match="fingerprint was"):
        train(capture, out, config, existing="resume")


def test_named_views_are_evaluated_and_again_by_eval(folder, tmp_path, capsys):
    chosen = ["--held-out", "001.png", "004.png"]
    settings = ["--steps", "2", "--strategy", "fixed", "--initial-points", "50", "--sh-degree", "0"]
    assert main(["train", str(folder), "--out", str(tmp_path), *settings, *chosen]) == 0
    figures = json.loads((tmp_path / "metrics.json").read_text())
    assert [view["name"] for view in figures["views"]] == ["images/001.png", "images/004.png"]
    capsys.readouterr()
    assert main(["eval", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "images/001.png: PSNR" in said and "Mean of 2 views" in said


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(folder, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="exists and is not empty; give --resume to go on, or --overwrite"):
        train(folder, tmp_path)
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_overwriting_removes_earlier_results_and_nothing_else(folder, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "old.png").touch()
    train(folder, tmp_path, dataclasses.replace(CONFIG, steps=2), existing="overwrite")
    assert {path.name for path in tmp_path.iterdir()} == FILES | {"mine.txt"}
    assert not (tmp_path / "pictures" / "old.png").exists()


def test_bad_input_is_found_before_the_folder_is_made(tmp_path):
    folder = write_capture(tmp_path / "c")
    edit_transforms(folder, lambda content: content["frames"][3]["transform_matrix"][0].__setitem__(0, float("nan")))
    with pytest.raises(InputError, match="not finite"):
        train(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_keeps_the_last_whole_checkpoint(folder, tmp_path, monkeypatch):
    out = tmp_path / "out"
    real = os.fsync
    calls = []

    def full_at_the_second_checkpoint(handle):
        calls.append(handle)
        if len(calls) > 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", full_at_the_second_checkpoint)
    with pytest.raises(OSError, match="No space left on device.*checkpoint.npz"):
        train(folder, out)
    assert {path.name for path in out.iterdir()} == UNFINISHED
    assert load_settings(out / "checkpoint.npz")["config"]["steps"] == 20


def test_two_runs_with_one_seed_write_the_same_splats(folder, finished, tmp_path):
    train(folder, tmp_path / "out")
    assert trees_equal(load_ply(tmp_path / "out/point_cloud.ply"), load_ply(finished[0] / "point_cloud.ply"))
