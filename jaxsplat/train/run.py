"""The main job: a folder of photographs in, a folder of results out."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxsplat.data.capture import Capture, load_capture
from jaxsplat.data.pictures import DEFAULT_MEMORY, Alpha
from jaxsplat.io.files import InputError, load_json, save_json
from jaxsplat.io.ply import save_ply
from jaxsplat.train.cameras import aligned_capture, cameras_as_json, learned_capture
from jaxsplat.train.checkpoint import load_checkpoint, load_settings, save_checkpoint, stored_rows
from jaxsplat.train.config import TrainConfig
from jaxsplat.train.evaluate import Evaluation, aligned_note, as_json, evaluate, save_pictures
from jaxsplat.train.history import History, load_rows, save_rows
from jaxsplat.train.loop import Job, Summary, prepare, train_steps, world_splats
from jaxsplat.train.progress import Progress
from jaxsplat.train.report import save_report
from jaxsplat.train.state import TrainState, with_rows
from jaxsplat.train.watch import Watcher, shown_splats

CONFIG, CHECKPOINT, SPLATS, METRICS, PICTURES, CURVES, REPORT, CAMERAS = (
    "config.json", "checkpoint.npz", "point_cloud.ply", "metrics.json", "pictures", "curves.csv", "report.html",
    "cameras.json",
)  # fmt: skip

Existing = Literal["refuse", "overwrite", "resume"]


class Result(NamedTuple):
    """How a run ended.

    Attributes:
      evaluation: on the held-out views; None where the run was interrupted.
      seconds: of training, compilation included; of a resumed run, those before too.
    """

    evaluation: Evaluation | None
    seconds: float


def train_capture(
    path: Path,
    out: Path,
    config: TrainConfig,
    *,
    downscale: int = 1,
    alpha: Alpha = "blend",
    memory: int = DEFAULT_MEMORY,
    undistort: bool = False,
    held_out: Sequence[str] = (),
    existing: Existing = "refuse",
    checkpoint_every: int = 1000,
    tell: Callable[[str], None] = print,
    watcher: Watcher | None = None,
) -> Result:
    """Trains a capture and leaves point_cloud.ply, metrics.json, pictures, a report, curves, config.json, a checkpoint.

    The input is read and checked before the folder is made. An interrupt (Ctrl-C) ends the run after the steps in
    flight, with a checkpoint.

    Args:
      path: capture.
      out: folder of results.
      config: settings.
      downscale: integer factor by which the photographs are shrunk.
      alpha: what their transparency means: the background shows through, or the pixel does not count.
      memory: bound in bytes on the pictures that are kept. The result does not depend on it.
      undistort: remove lens distortion from the photographs, instead of projecting splats through the lens.
      held_out: names of the views to evaluate on; by default as in `load_capture`.
      existing: what to do where `out` holds something: refuse, overwrite the results, or go on from the checkpoint.
      checkpoint_every: steps between checkpoints.
      tell: prints a line.
      watcher: is told about twice a second how the scene looks, and may pause the training.

    Returns:
      The figures.

    Raises:
      InputError: about the capture, the folder or the checkpoint.
      OSError: where a file cannot be written.

    Example:
      >>> train_capture(Path("captures/fox"), Path("out"), TrainConfig(), downscale=2).evaluation.psnr
    """
    _check_folder(out, existing)
    capture = load_capture(
        path,
        downscale=downscale,
        background=config.background,
        alpha=alpha,
        memory=memory,
        undistort=undistort,
        held_out=held_out,
    )
    background = (float(capture.background[0]), float(capture.background[1]), float(capture.background[2]))
    config = dataclasses.replace(config, background=background)
    settings = {
        **_settings(path, downscale, alpha, config, capture),
        "undistort": undistort,
        "held_out": list(held_out),
    }
    if existing == "resume":
        _check_same_run(out, settings)
    job = prepare(capture, config)
    _introduce(capture, job, tell)
    history = History(steps=config.steps)
    if existing == "resume":
        job = job._replace(state=_resumed(out, job.state, config))
        history = History(steps=config.steps, rows=load_rows(out / CURVES, until=int(job.state.step)))
        history.resume_at(int(job.state.step))
    if watcher is not None:
        watcher.begin(capture, shown_splats(job.state, job.normalization))
    if existing != "resume":
        _clear(out)
        save_json(out / CONFIG, settings)
    state, seconds, interrupted = _train(job, config, out, settings, checkpoint_every, history, watcher)
    seconds += history.seconds_before
    if interrupted:
        tell(f"Interrupted after {int(state.step)} steps; continue with --resume.")
        return Result(None, seconds)
    evaluation = _finish(state, job, capture, config, out, settings, history, seconds, tell)
    if denied := sum(row.denied for row in history.rows):
        tell(f"The cap of {config.strategy.cap:,} splats denied {denied:,} new ones; --cap raises it.")
    tell(
        f"Held-out views: PSNR {evaluation.psnr:.2f} dB, SSIM {evaluation.ssim:.4f} over {len(evaluation.views)}; "
        f"{int(state.num_splats):,} splats, {seconds:.0f} s of training. Results in {out}."
    )
    return Result(evaluation, seconds)


def _finish(
    state: TrainState,
    job: Job,
    capture: Capture,
    config: TrainConfig,
    out: Path,
    settings: dict[str, Any],
    history: History,
    seconds: float,
    tell: Callable[[str], None],
) -> Evaluation:
    """Writes the splats and everything that is judged by the held-out views."""
    splats = world_splats(state, job.normalization)
    save_ply(out / SPLATS, splats)
    look = {"antialiased": config.antialiased, "backend": config.backend}
    if state.extras is not None and state.extras.values.cameras is not None:
        capture = learned_capture(capture, state.extras.values.cameras, job.normalization)
        save_json(out / CAMERAS, cameras_as_json(capture.cameras))
    evaluation = evaluate(splats, capture, **look)
    save_pictures(out / PICTURES, evaluation, capture)
    figures = {"steps": int(state.step), "splats": int(state.num_splats), "seconds": seconds, **as_json(evaluation)}
    notes = [*capture.notes, *job.notes]
    if steps := config.cameras.align_steps:
        moved = evaluate(splats, aligned_capture(splats, capture, steps=steps, **look), **look)
        figures["aligned"] = {"steps": steps, **as_json(moved)}
        notes.append(aligned_note(moved, steps))
        tell(notes[-1])
    save_json(out / METRICS, figures)
    title = Path(settings["capture"]).stem
    save_report(
        out / REPORT,
        title=f"{title}: {len(splats.means):,} splats after {int(state.step):,} steps",
        evaluation=evaluation,
        capture=capture,
        splats=splats,
        rows=history.rows,
        settings=settings,
        seconds=seconds,
        notes=notes,
    )
    return evaluation


def _train(
    job: Job,
    config: TrainConfig,
    out: Path,
    settings: dict[str, Any],
    checkpoint_every: int,
    history: History,
    watcher: Watcher | None,
) -> tuple[TrainState, float, bool]:
    """Trains with a live line and checkpoints; says how long it took and whether it was interrupted."""
    done = saved = int(job.state.step)
    full = any(row.denied for row in history.rows)
    progress = Progress(total=config.steps, done=done)
    began = time.monotonic()

    def save(state: TrainState) -> None:
        save_rows(out / CURVES, history.rows)
        save_checkpoint(out / CHECKPOINT, state, settings)

    with _interrupts() as stop:

        def report(state: TrainState, summary: Summary) -> bool:
            nonlocal saved, full
            done, splats = int(state.step), int(state.num_splats)
            loss, psnr, denied = float(summary.loss), float(summary.psnr), int(summary.denied)
            progress.update(done, loss=loss, psnr=psnr, splats=splats)
            history.add(done, loss=loss, psnr=psnr, splats=splats, denied=denied, seconds=time.monotonic() - began)
            if int(summary.stuck):
                progress.note(
                    f"step {done}: all splats are dead; no live one is left to make new ones of, nothing was done."
                )
            if denied and not full:
                full = True
                progress.note(
                    f"step {done}: the cap of {config.strategy.cap:,} splats is reached; more were asked for."
                )
            if not np.isfinite(loss):
                raise FloatingPointError(f"the loss is {loss} near step {done}")
            if done % checkpoint_every == 0 and done < config.steps:
                save(state)
                saved = done
            if watcher is not None:
                caption = f"step {done:,} of {config.steps:,}, {int(state.num_splats):,} splats"
                watcher.update(shown_splats(state, job.normalization), caption=caption)
                watcher.wait_while_paused(lambda: bool(stop))
            return not stop

        pauses = (checkpoint_every, history.every)
        state = train_steps(job.state, job.views, config, report=report, pause_every=pauses)
        seconds = time.monotonic() - began
        progress.close()
        done = int(state.step)
        if done != saved or not (out / CHECKPOINT).exists():
            save(state)
    return state, seconds, done < config.steps


def _resumed(out: Path, first: TrainState, config: TrainConfig) -> TrainState:
    """The state of the checkpoint, whose arrays may have grown since the first one."""
    rows = stored_rows(out / CHECKPOINT)
    if config.strategy.grows and rows > first.splats.means.shape[0]:
        first = with_rows(first, rows, config)
    return load_checkpoint(out / CHECKPOINT, first)


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collects the first Ctrl-C or termination; a second Ctrl-C ends at once (all files stay whole)."""
    seen: list[int] = []

    def handle(number: int, _: FrameType | None) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    try:
        old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: the caller's own handlers stay
        old = {}
    try:
        yield seen
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _check_folder(out: Path, existing: Existing) -> None:
    if existing == "resume":
        if not (out / CHECKPOINT).is_file():
            raise InputError(f"{out}: no {CHECKPOINT} to resume from")
    elif out.exists() and not out.is_dir():
        raise InputError(f"{out}: exists and is no folder")
    elif existing == "refuse" and out.exists() and any(out.iterdir()):
        raise InputError(f"{out}: exists and is not empty; give --resume to go on, or --overwrite to start again")


def _clear(out: Path) -> None:
    """Removes the results of an earlier run, and nothing else."""
    for name in (CONFIG, CHECKPOINT, SPLATS, METRICS, CURVES, REPORT, CAMERAS):
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / PICTURES, ignore_errors=True)


def _settings(path: Path, downscale: int, alpha: Alpha, config: TrainConfig, capture: Capture) -> dict[str, Any]:
    digest = hashlib.sha256()
    for array in (capture.cameras.viewmats, capture.cameras.Ks, capture.held_out):
        digest.update(np.ascontiguousarray(array).tobytes())
    for file in capture.files:
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return {
        "capture": str(path.resolve()),
        "downscale": downscale,
        "alpha": alpha,
        "fingerprint": digest.hexdigest(),
        "config": {
            **json.loads(json.dumps(dataclasses.asdict(config))),
            "strategy_kind": type(config.strategy).__name__,
        },
    }


def _check_same_run(out: Path, settings: dict[str, Any]) -> None:
    """The run goes on only with the same photographs and settings; otherwise its result would be neither of the two."""
    old, new = _flat(load_settings(out / CHECKPOINT)), _flat(settings)
    ignored = {"capture"}  # the folder may have moved; the fingerprint tells
    differing = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key) and key not in ignored]
    if differing:
        shown = ", ".join(f"{key} was {old.get(key)}, now {new.get(key)}" for key in differing[:5])
        raise InputError(f"{out}: --resume needs the settings of the run: {shown}")


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _introduce(capture: Capture, job: Job, tell: Callable[[str], None]) -> None:
    cameras = capture.cameras
    training = int((~capture.held_out).sum())
    tell(
        f"{capture.kind}: {len(cameras.names)} images of {cameras.width}x{cameras.height}, {training} for training, "
        f"{len(cameras.names) - training} held out."
    )
    for note in (*capture.notes, *job.notes):
        tell(note)


def saved_settings(folder: Path) -> dict[str, Any] | None:
    """The config.json of a run's folder, or None where there is none."""
    path = folder / CONFIG
    return load_json(path) if path.is_file() else None
