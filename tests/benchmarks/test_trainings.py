"""Tables of trainings: what is found, what is repeated, and what the cells say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks import captures, options, trainings
from benchmarks.trainings import Training, measure
from jaxsplat.data import load_capture
from tests.train.scenes import write_capture


def test_a_training_on_record_is_repeated_only_with_other_options(tmp_path: Path, monkeypatch) -> None:
    done: list[tuple[str, ...]] = []

    def measured(training: Training, out: Path) -> dict[str, float]:
        done.append((training.name, *training.options))
        return {"psnr": float(len(done))}

    monkeypatch.setattr(trainings, "_measured", measured)
    first, second = Training("a/fixed", tmp_path / "a", ("--steps", "5")), Training("b", tmp_path / "b", ())
    record = tmp_path / "record.json"
    assert measure([first], tmp_path, record)["a/fixed"]["psnr"] == 1.0
    figures = measure([first, second], tmp_path, record)
    assert (figures["a/fixed"]["psnr"], figures["b"]["psnr"]) == (1.0, 2.0)
    measure([first._replace(options=("--steps", "6"))], tmp_path, record)
    assert done == [("a/fixed", "--steps", "5"), ("b",), ("a/fixed", "--steps", "6")]


def test_a_training_that_fails_is_told_and_what_was_measured_before_stays(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        measure([Training("x", tmp_path / "nowhere", ())], tmp_path / "out", tmp_path / "record.json")
    assert not (tmp_path / "record.json").exists()


def test_captures_are_found_and_shrunk_by_powers_of_two(tmp_path: Path, capsys) -> None:
    write_capture(tmp_path / "small")
    write_capture(tmp_path / "large", size=(96, 40))
    (tmp_path / "neither").mkdir()
    found = captures.captures(tmp_path, 24)
    sizes = {path.name: (factor, cameras.width, cameras.height) for path, (factor, cameras) in found.items()}
    assert sizes == {"large": (4, 24, 10), "small": (1, 24, 20)}
    assert "left out: " in capsys.readouterr().err


def test_of_few_pictures_others_are_held_out_in_each_training_and_one_of_the_castle_never(tmp_path: Path) -> None:
    for name, views in (("many", 20), ("few", 11), ("fewer", 3)):
        write_capture(tmp_path / name, views=views)
    found = {path: cameras for path, (_, cameras) in captures.captures(tmp_path, 24).items()}
    own = {path.name: captures.own_options(path, cameras) for path, cameras in found.items()}
    names = [f"images/{k:03}.png" for k in range(11)]
    few = (*captures.FEW_OPTIONS, "--held-out")
    assert own == {
        "many": [()],
        "few": [(*few, *names[k::8]) for k in (0, 2, 4, 6)],
        "fewer": [(*few, names[0]), (*few, names[2])],
    }
    cameras = found[tmp_path / "few"]._replace(names=("100_7100.JPG", *names[1:]))
    first = captures.own_options(Path("sceaux_castle"), cameras)[0]
    assert first == (*captures.FEW_OPTIONS, *captures.OPTIONS["sceaux_castle"], "--held-out", names[1], names[9])


def test_the_mean_of_several_trainings_counts_every_held_out_view_once() -> None:
    costs = {"wall_seconds": 1.0, "processor_seconds": 2.0, "peak_bytes": 3}
    runs = [
        {"psnr": 20.0, "ssim": 0.5, "splats": 10, "views": 1, **costs},
        {"psnr": 26.0, "ssim": 0.8, "splats": 20, "views": 2, **costs},
    ]
    assert captures.mean(runs) == pytest.approx({"psnr": 24.0, "ssim": 0.7, "splats": 15.0, "views": 3, **costs})


def test_the_table_shows_the_gain_over_the_fixed_set(tmp_path: Path) -> None:
    found = captures.captures(write_capture(tmp_path / "c").parent, 24)
    run = {
        "ssim": 0.9,
        "splats": 1000,
        "views": 2,
        "wall_seconds": 10.0,
        "processor_seconds": 15.0,
        "peak_bytes": 2**30,
    }
    psnr = {"fixed": 20.0, "default": 21.5, "mcmc": 19.0}
    lines = captures.rows(found, {f"c/{name}": {**run, "psnr": value} for name, value in psnr.items()})
    assert len(lines) == 5
    assert lines[2] == "| c, 24x20, 2 held out | fixed | 20.00 |  | 0.900 | 1,000 | 10 | 15 | 1.00 |"
    assert lines[3].startswith("|  | default | 21.50 | +1.50 |") and lines[4].startswith("|  | mcmc | 19.00 | -1.00 |")


def test_a_case_spoils_the_pictures_to_learn_from_and_keeps_the_others_true(tmp_path: Path) -> None:
    clean = write_capture(tmp_path / "clean", views=options.VIEWS, size=(options.SIZE, options.SIZE))
    spoilt = options.spoilt(tmp_path / "spoilt", clean, options.pass_by)
    before, after = load_capture(clean), load_capture(spoilt)
    differs = np.array([bool((a != b).any()) for a, b in zip(before.images, after.images, strict=True)])
    assert (differs == ~before.held_out).all()
    assert after.masks is not None
    hidden = [~np.asarray(mask) for mask in after.masks]
    assert all((np.asarray(b) == a)[~h].all() for a, b, h in zip(before.images, after.images, hidden, strict=True))
    assert hidden[1].sum() == 900
    edited = spoilt / "images" / "001.png"
    Image.new("RGB", (options.SIZE, options.SIZE)).save(edited)
    options.spoilt(spoilt, clean, options.pass_by)
    assert not np.asarray(Image.open(edited)).any(), "a folder that is there stays as it is"


def test_the_table_of_options_compares_the_asked_figures() -> None:
    cases = [case for case in options.CASES if case.name in ("poses", "poses_aligned")]
    figures = {
        f"{case.name}/{which}": {"psnr": 20.0 + gain, "aligned_psnr": 22.0 + 2 * gain}
        for case in cases for which, gain in (("without", 0.0), ("with", 1.0))
    }  # fmt: skip
    plain, aligned = options.rows(cases, figures)[2:]
    assert plain.endswith("| 20.00 | 21.00 | +1.00 |") and aligned.endswith("| 22.00 | 24.00 | +2.00 |")
