"""Curves of a run: means between rows at fixed steps, written and read back."""

import pytest

from jaxsplat.io.files import InputError
from jaxsplat.train.history import History, load_rows, save_rows


def filled(sizes, *, history=None, until=None):
    """Losses that equal the step, in calls of the given sizes."""
    history = History(steps=1000) if history is None else history
    step = history.rows[-1].step if history.rows else 0
    for size in sizes:
        mean = step + (size + 1) / 2
        step += size
        history.add(step, loss=mean, psnr=2 * mean, splats=step, denied=1, seconds=step / 10)
        if step == until:
            break
    return history


def test_rows_are_means_that_do_not_depend_on_the_calls():
    rows = filled([5, 5]).rows
    assert [row.step for row in rows] == [5, 10] and [row.loss for row in rows] == [3, 8]
    uneven = filled([1, 3, 1, 2, 3]).rows
    assert [row[:4] for row in uneven] == [row[:4] for row in rows]
    assert [row.denied for row in uneven] == [3, 2]


def test_the_last_step_always_has_a_row():
    history = History(steps=7)
    history.add(7, loss=1.0, psnr=2.0, splats=3, denied=0, seconds=1.0)
    assert history.rows[-1].step == 7


def test_rows_come_back_and_a_resumed_run_goes_on_from_them(tmp_path):
    save_rows(tmp_path / "curves.csv", filled([5, 5, 5]).rows)
    assert (tmp_path / "curves.csv").read_text().splitlines()[:2] == [
        "step,loss,psnr,splats,denied,seconds",
        "5,3,6.0000,5,1,0.50",
    ]
    rows = load_rows(tmp_path / "curves.csv", until=12)
    assert [row.step for row in rows] == [5, 10] and rows[1].psnr == 16.0
    history = History(steps=1000, rows=rows)
    history.resume_at(12)
    history.add(13, loss=13.0, psnr=1.0, splats=1, denied=0, seconds=1.0)
    history.add(15, loss=14.5, psnr=1.0, splats=1, denied=0, seconds=2.0)
    assert history.rows[-1].step == 15 and history.rows[-1].loss == 14.0
    assert history.rows[-1].seconds == pytest.approx(3.0)


def test_a_missing_file_is_no_rows_and_a_wrong_one_is_named(tmp_path):
    assert load_rows(tmp_path / "none.csv", until=5) == ()
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="other.csv: not the curves of a run"):
        load_rows(tmp_path / "other.csv", until=5)
