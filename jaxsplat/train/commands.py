"""The commands of the command line, as dataclasses that tyro turns into arguments."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro

from jaxsplat._ffi import keep_freed_memory
from jaxsplat.data.capture import load_cameras, load_capture
from jaxsplat.data.demo import make_demo_capture
from jaxsplat.data.pictures import DEFAULT_MEMORY, Alpha
from jaxsplat.io.commands import Convert, Info
from jaxsplat.io.files import InputError, save_json
from jaxsplat.io.images import save_image, to_uint8
from jaxsplat.io.sog import META
from jaxsplat.io.splats import read_splats
from jaxsplat.io.video import check_video_name, save_video
from jaxsplat.lpips import make_lpips
from jaxsplat.optim import LearningRates
from jaxsplat.strategy import MCMC, Default, Fixed
from jaxsplat.train.cameras import aligned_capture, with_cameras
from jaxsplat.train.config import TrainConfig
from jaxsplat.train.evaluate import aligned_note, as_json, evaluate, picture_name, save_pictures
from jaxsplat.train.export import Export
from jaxsplat.train.path import Flight, camera_path
from jaxsplat.train.render import make_renderer
from jaxsplat.train.run import CAMERAS, METRICS, PICTURES, SPLATS, Existing, saved_settings, train_capture
from jaxsplat.viewer.command import HOST, PORT, TrainingViewer, serve
from jaxsplat.viewer.frame import Up

Settings = Annotated[TrainConfig, tyro.conf.arg(name="")]
Input = tyro.conf.Positional[Path]
INTERRUPTED = 130


@dataclasses.dataclass(frozen=True)
class Train:
    """Train splats from a folder of photographs with known cameras (transforms.json, COLMAP, Blender or LLFF)."""

    capture: Input
    """Folder of the capture, its .json file, or the folder of a COLMAP model."""
    out: Path
    """Folder for the results."""
    downscale: int = 1
    """Shrink the photographs by this factor."""
    alpha: Alpha = "blend"
    """What transparency means: the background shows through (blend), or the pixel does not count (mask)."""
    memory: float = DEFAULT_MEMORY / 2**30
    """Bound in GiB on the photographs that are kept in memory; others are read again as they are needed."""
    undistort: bool = False
    """Remove lens distortion from the photographs, instead of projecting splats through the lens."""
    held_out: tuple[str, ...] = ()
    """Names of the photographs to evaluate on; by default what the files say, or every eighth."""
    resume: bool = False
    """Go on from the checkpoint in the folder of results, with the same settings."""
    overwrite: bool = False
    """Replace the results of an earlier run."""
    checkpoint_every: int = 1000
    """Steps between checkpoints."""
    strategy: Literal["mcmc", "default", "fixed"] = "mcmc"
    """How splats move, die and multiply: MCMC, adaptive density control, or not at all."""
    cap: int | None = None
    """Most splats; by default that of the strategy."""
    mcmc: MCMC = dataclasses.field(default_factory=MCMC)
    default: Default = dataclasses.field(default_factory=Default)
    viewer: bool = False
    """Show the scene in a web browser while it is trained."""
    viewer_port: int = PORT
    """Port of the viewer; the next free one where it is in use."""
    config: Settings = dataclasses.field(default_factory=TrainConfig)

    def __call__(self) -> int:
        """Runs the command; returns the exit code."""
        if self.resume and self.overwrite:
            raise InputError("give either --resume or --overwrite, not both")
        strategy = {"mcmc": self.mcmc, "default": self.default, "fixed": Fixed()}[self.strategy]
        if self.cap is not None:
            strategy = dataclasses.replace(strategy, cap=self.cap)
        existing: Existing = "resume" if self.resume else "overwrite" if self.overwrite else "refuse"
        with contextlib.ExitStack() as stack:
            watcher = None
            if self.viewer:
                watcher = stack.enter_context(TrainingViewer(self.viewer_port, self.config.antialiased))
            result = train_capture(
                self.capture,
                self.out,
                dataclasses.replace(self.config, strategy=strategy),
                downscale=self.downscale,
                alpha=self.alpha,
                memory=int(self.memory * 2**30),
                undistort=self.undistort,
                held_out=self.held_out,
                existing=existing,
                checkpoint_every=self.checkpoint_every,
                watcher=watcher,
            )
        return INTERRUPTED if result.evaluation is None else 0


@dataclasses.dataclass(frozen=True)
class Render:
    """Render splats from the cameras of a capture, or along a smooth path through them."""

    scene: Input
    """A file of splats (.ply, .splat, .spz, .sog), or the folder of results of a training."""
    cameras: Path
    """Folder of a capture, or its .json file."""
    out: Path
    """Folder for the pictures."""
    downscale: int = 1
    """Shrink the pictures by this factor."""
    path: int = 0
    """Render this many frames of a flight, instead of the cameras themselves."""
    flight: Flight = "through"
    """Fly through the cameras, on an ellipse around the scene, or on a spiral about the middle of the cameras."""
    video: Path | None = None
    """Also write a film of this name (.webp, .gif, .mp4) into the folder."""
    fps: int = 30
    """Pictures a second of the film."""
    background: tuple[float, float, float] | None = None
    """Colour in 0..1; by default that of the training, or black."""
    antialiased: bool | None = None
    """Whether to render with anti-aliasing compensation; by default as in the training or as the file says."""

    def __call__(self) -> int:
        """Runs the command; returns the exit code."""
        if self.video is not None:
            check_video_name(self.video)
        ply, trained = _scene(self.scene)
        splats, _, _, antialiased = read_splats(ply)
        cameras = load_cameras(self.cameras, downscale=self.downscale)
        if self.path:
            cameras = camera_path(cameras, self.path, flight=self.flight)
        render = make_renderer(
            width=cameras.width,
            height=cameras.height,
            background=_first(self.background, trained.get("background"), (0.0, 0.0, 0.0)),
            antialiased=_first(self.antialiased, trained.get("antialiased"), antialiased),
        )
        frames = []
        for name, viewmat, K in zip(cameras.names, cameras.viewmats, cameras.Ks, strict=True):
            frames.append(to_uint8(np.asarray(render(splats, viewmat[None], K[None])[0])))
            save_image(self.out / picture_name(name), frames[-1])
        if self.video is not None:
            save_video(self.out / self.video, frames, fps=self.fps)
        print(f"{len(frames)} pictures of {cameras.width}x{cameras.height} in {self.out}.")
        return 0


@dataclasses.dataclass(frozen=True)
class Eval:
    """Compare splats with the held-out photographs of a capture: PSNR and SSIM."""

    scene: Input
    """A file of splats (.ply, .splat, .spz, .sog), or the folder of results of a training."""
    capture: Path | None = None
    """Capture; by default that of the training."""
    downscale: int | None = None
    """Shrink the photographs by this factor; by default as in the training."""
    out: Path | None = None
    """Folder for metrics.json and the pictures."""
    antialiased: bool | None = None
    """Whether to render with anti-aliasing compensation; by default as in the training or as the file says."""
    lpips: bool = False
    """Also say how different the views look to a network (LPIPS, AlexNet)."""
    align_steps: int = 0
    """Also say how good the views are after so many steps that move each of their cameras to its best place."""

    def __call__(self) -> int:
        """Runs the command; returns the exit code."""
        ply, trained = _scene(self.scene)
        path = _first(self.capture, trained.get("capture"), None)
        if path is None:
            raise InputError(f"{self.scene}: no config.json says what it was trained from; give --capture")
        background = trained.get("background")
        capture = load_capture(
            path,
            downscale=_first(self.downscale, trained.get("downscale"), 1),
            background=tuple(background) if background else None,
            alpha=_first(trained.get("alpha"), "blend"),
            undistort=_first(trained.get("undistort"), False),
            held_out=_first(trained.get("held_out"), ()) if self.capture is None else (),
        )
        if self.capture is None and (ply.parent / CAMERAS).is_file():
            capture = with_cameras(capture, ply.parent / CAMERAS)
        splats, _, _, antialiased = read_splats(ply)
        antialiased = _first(self.antialiased, trained.get("antialiased"), antialiased)
        lpips = _lpips() if self.lpips else None
        evaluation = evaluate(splats, capture, antialiased=antialiased, lpips=lpips)
        for view in evaluation.views:
            more = "" if view.lpips is None else f", LPIPS {view.lpips:.4f}"
            print(f"{view.name}: PSNR {view.psnr:.2f} dB, SSIM {view.ssim:.4f}{more}")
        print(f"Mean of {len(evaluation.views)} views: PSNR {evaluation.psnr:.2f} dB, SSIM {evaluation.ssim:.4f}")
        figures = {"splats": len(splats.means), **as_json(evaluation)}
        if lpips is not None:
            figures["lpips"] = float(np.mean([view.lpips for view in evaluation.views if view.lpips is not None]))
            print(f"Mean LPIPS {figures['lpips']:.4f}")
        if self.align_steps > 0:
            moved = aligned_capture(splats, capture, steps=self.align_steps, antialiased=antialiased)
            moved = evaluate(splats, moved, antialiased=antialiased)
            figures["aligned"] = {"steps": self.align_steps, **as_json(moved)}
            print(aligned_note(moved, self.align_steps))
        if self.out is not None:
            save_json(self.out / METRICS, figures)
            save_pictures(self.out / PICTURES, evaluation, capture)
        return 0


@dataclasses.dataclass(frozen=True)
class View:
    """Look at a scene in a web browser; the pictures are rendered here."""

    scene: Input
    """A file of splats (.ply, .splat, .spz, .sog), or the folder of results of a training."""
    cameras: Path | None = None
    """Capture whose cameras can be chosen, and where the view begins."""
    up: Up | None = None
    """The axis that points up; by default that of the cameras, or -y without any."""
    background: tuple[float, float, float] | None = None
    """Colour in 0..1; by default that of the training, or black."""
    antialiased: bool | None = None
    """Whether to render with anti-aliasing compensation; by default as in the training or as the file says."""
    port: int = PORT
    """Port to listen on; the next free one where it is in use."""
    host: str = HOST
    """Address to listen on; with 0.0.0.0 other machines can look on too."""

    def __call__(self) -> int:
        """Runs the command until it is interrupted; returns the exit code."""
        ply, trained = _scene(self.scene)
        splats, _, _, antialiased = read_splats(ply)
        serve(
            splats,
            self.cameras,
            background=_first(self.background, trained.get("background"), (0.0, 0.0, 0.0)),
            antialiased=_first(self.antialiased, trained.get("antialiased"), antialiased),
            up=self.up,
            host=self.host,
            port=self.port,
        )
        return 0


@dataclasses.dataclass(frozen=True)
class Demo:
    """Make a small capture by ray tracing, train it for about a minute, and show how good it is."""

    out: Path = Path("jaxsplat-demo")
    """Folder for the capture and the results; an earlier demo in it is replaced."""
    size: int = 128
    """Width and height of the photographs."""
    views: int = 40
    """Number of photographs."""
    steps: int = 2000
    """Training steps."""
    seed: int = 0
    """Of every random number."""

    def __call__(self) -> int:
        """Runs the command; returns the exit code."""
        capture = self.out / "capture"
        print(f"Ray tracing {self.views} photographs of {self.size}x{self.size} ...")
        shutil.rmtree(capture, ignore_errors=True)
        make_demo_capture(capture, size=self.size, views=self.views, seed=self.seed)
        config = TrainConfig(steps=self.steps, seed=self.seed, strategy=MCMC(cap=20_000), rates=LearningRates())
        result = train_capture(capture, self.out / "result", config, existing="overwrite")
        return INTERRUPTED if result.evaluation is None else 0


Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Render, tyro.conf.subcommand("render")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[View, tyro.conf.subcommand("view")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Convert, tyro.conf.subcommand("convert")]
    | Annotated[Info, tyro.conf.subcommand("info")]
    | Annotated[Export, tyro.conf.subcommand("export")]
)


def run(arguments: list[str] | None) -> int:
    """Parses the arguments and runs the command; returns the exit code."""
    command: Any = tyro.cli(
        Command,  # pyright: ignore[reportArgumentType]
        prog="jaxsplat",
        description="Gaussian splatting in JAX: from photographs to a scene, on a CPU.",
        args=arguments,
    )
    keep_freed_memory()
    return command()


def _scene(path: Path) -> tuple[Path, dict[str, Any]]:
    """The file of splats, and what the config.json beside it says about its training."""
    ply = path / SPLATS if path.is_dir() and not (path / META).is_file() else path
    settings = saved_settings(ply.parent) or {}
    config = settings.get("config", {})
    return ply, {**settings, **{key: config.get(key) for key in ("background", "antialiased")}}


def _lpips() -> Callable[[jax.Array, jax.Array], jax.Array]:
    try:
        return make_lpips()
    except ModuleNotFoundError as error:
        raise InputError(str(error)) from None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)
