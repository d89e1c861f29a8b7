"""How a run went: a row of figures now and then, in a CSV file that any program plots."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import NamedTuple

from jaxsplat.io.files import InputError, atomic_write

_ROWS = 200
"""About so many rows a run."""


class Row(NamedTuple):
    """Means since the row before.

    Attributes:
      step: steps done.
      loss: everything that is minimised.
      psnr: of the training views, in dB.
      splats: in use.
      denied: splats not made because of the cap.
      seconds: of training so far.
    """

    step: int
    loss: float
    psnr: float
    splats: int
    denied: int
    seconds: float


class History:
    """Collects rows, at steps that do not depend on the machine's speed.

    Example:
      >>> history = History(steps=3500)
      >>> history.add(17, loss=0.1, psnr=20.0, splats=50_000, denied=0, seconds=1.5)
      >>> save_rows("curves.csv", history.rows)
    """

    def __init__(self, *, steps: int, rows: tuple[Row, ...] = ()) -> None:
        """Begins after earlier rows, if any."""
        self.every = max(1, steps // _ROWS)
        self.steps = steps
        self.rows = list(rows)
        self._step = rows[-1].step if rows else 0
        self._done = self._step
        self.seconds_before = rows[-1].seconds if rows else 0.0
        self._loss = self._psnr = 0.0
        self._denied = 0

    def add(self, step: int, *, loss: float, psnr: float, splats: int, denied: int, seconds: float) -> None:
        """Takes the means up to `step` since the last call; `seconds` counts from the start of this process's part."""
        size = step - self._done
        self._loss += size * loss
        self._psnr += size * psnr
        self._denied += denied
        self._done = step
        if step % self.every == 0 or step == self.steps:
            total = max(step - self._step, 1)
            self.rows.append(
                Row(step, self._loss / total, self._psnr / total, splats, self._denied, self.seconds_before + seconds)
            )
            self._step, self._loss, self._psnr, self._denied = step, 0.0, 0.0, 0

    def resume_at(self, step: int) -> None:
        """Forgets what came before `step` without a row: the process that knew it is gone."""
        self._step = self._done = step


def save_rows(path: Path | str, rows: list[Row]) -> None:
    """Writes rows as CSV, whole or not at all.

    Args:
      path: file to write.
      rows: in order.

    Raises:
      OSError: where the file cannot be written.

    Example:
      >>> save_rows("curves.csv", history.rows)
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    for row in rows:
        writer.writerow((
            row.step, f"{row.loss:.6g}", f"{row.psnr:.4f}", row.splats, row.denied, f"{row.seconds:.2f}"
        ))  # fmt: skip
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


def load_rows(path: Path | str, *, until: int) -> tuple[Row, ...]:
    """Reads the rows up to a step; none where the file does not exist.

    Args:
      path: file to read.
      until: last step to read.

    Returns:
      The rows.

    Raises:
      InputError: where the file is no such CSV.

    Example:
      >>> load_rows("curves.csv", until=1000)[-1].step
      1000
    """
    path = Path(path)
    if not path.is_file():
        return ()
    try:
        with path.open(newline="") as file:
            rows = [
                Row(
                    int(line["step"]), float(line["loss"]), float(line["psnr"]),
                    int(line["splats"]), int(line["denied"]), float(line["seconds"]),
                )
                for line in csv.DictReader(file)
            ]  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not the curves of a run ({error!r})") from None
    return tuple(row for row in rows if row.step <= until)
