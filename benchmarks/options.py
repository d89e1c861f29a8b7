"""What each option of training gains where it is needed: `python -m benchmarks.options --out FOLDER`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from scipy.spatial.transform import Rotation

from benchmarks.trainings import Training, measure
from jaxsplat.data.demo import make_cameras, make_demo_capture, make_scene, photograph
from jaxsplat.io.ply import load_points, save_points

SIZE, VIEWS, HOLD_OUT, FEW = 96, 32, 8, 8
RNG_SEED = 5
HEAD = ("where", "option", "without, dB", "with, dB", "gain")


class Case(NamedTuple):
    """A capture that needs an option.

    Attributes:
      name: of its folder.
      trouble: in words.
      spoil: changes the folder of a demo capture.
      option: that helps.
      base: options of both trainings.
      aligned: compare the figures of aligned cameras.
      bare: changes the capture of the training without, where that is another one.
    """

    name: str
    trouble: str
    spoil: Callable[[Path], None]
    option: tuple[str, ...]
    base: tuple[str, ...] = ()
    aligned: bool = False
    bare: Callable[[Path], None] | None = None


def main() -> int:
    """Spoil copies of the demo capture, train each with and without the option, and print a table.

    Returns:
      The exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.options", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the captures, the results and options.json")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--only", nargs="+", help="names of cases; default: all")
    arguments = parser.parse_args()
    cases = [case for case in CASES if not arguments.only or case.name in arguments.only]
    if not cases:
        parser.error(f"no case is called {arguments.only}, only {[case.name for case in CASES]}")
    trainings = []
    clean = arguments.out / "captures" / "clean"
    if not clean.is_dir():
        make_demo_capture(clean, size=SIZE, views=VIEWS, depths=True)
    for case in cases:
        folder = arguments.out / "captures" / case.name
        strategy = () if "--strategy" in case.base else ("--strategy", "fixed")
        base = ("--steps", str(arguments.steps), *strategy, *case.base)
        trainings += [
            Training(f"{case.name}/without", spoilt(folder / "without", clean, case.bare or case.spoil), base),
            Training(f"{case.name}/with", spoilt(folder / "with", clean, case.spoil), (*base, *case.option)),
        ]
    figures = measure(trainings, arguments.out, arguments.out / "options.json")
    print("\n".join(rows(cases, figures)))
    return 0


def spoilt(folder: Path, clean: Path, spoil: Callable[[Path], None]) -> Path:
    """Copy a clean capture and spoil the copy, unless it is there."""
    if not folder.is_dir():
        shutil.copytree(clean, folder)
        spoil(folder)
    return folder


def rows(cases: list[Case], figures: dict[str, dict[str, Any]]) -> list[str]:
    """Lay the figures out as a markdown table."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for case in cases:
        key = "aligned_psnr" if case.aligned else "psnr"
        without, helped = (figures[f"{case.name}/{which}"][key] for which in ("without", "with"))
        cells = (
            case.trouble,
            f"`{' '.join(case.option) or 'masks'}`",
            f"{without:.2f}",
            f"{helped:.2f}",
            f"{helped - without:+.2f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def nothing(capture: Path) -> None:
    """Leave the capture as it is."""
    del capture


def edit_transforms(capture: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change the contents of transforms.json."""
    path = capture / "transforms.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def edit_pictures(capture: Path, edit: Callable[[int, np.ndarray], np.ndarray]) -> None:
    """Change the pictures of training views, float [H, W, 3] in 0..255; held-out ones stay true."""
    for view, path in enumerate(sorted((capture / "images").iterdir())):
        if view % HOLD_OUT:
            picture = edit(view, np.asarray(Image.open(path)).astype(np.float64))
            Image.fromarray(np.clip(np.round(picture), 0, 255).astype(np.uint8)).save(path)


def shake(capture: Path) -> None:
    """Turn the training cameras by about 0.8 degrees and move them by about 0.4% of their distance."""
    rng = np.random.default_rng(RNG_SEED)

    def edit(content: dict[str, Any]) -> None:
        for view, frame in enumerate(content["frames"]):
            if view % HOLD_OUT:
                pose = np.array(frame["transform_matrix"])
                pose[:3, :3] = pose[:3, :3] @ Rotation.from_rotvec(rng.normal(size=3) * 0.008).as_matrix()
                pose[:3, 3] += rng.normal(size=3) * 0.01
                frame["transform_matrix"] = pose.tolist()

    edit_transforms(capture, edit)


def zoom(capture: Path) -> None:
    """Declare a focal length that is 4% too long."""

    def edit(content: dict[str, Any]) -> None:
        for key in ("fl_x", "fl_y"):
            content[key] *= 1.04

    edit_transforms(capture, edit)


def expose(capture: Path) -> None:
    """Expose the training pictures between 0.7 and 1.3 times as long."""
    gains = np.random.default_rng(RNG_SEED).uniform(0.7, 1.3, VIEWS)
    edit_pictures(capture, lambda view, picture: picture * gains[view])


def shade(capture: Path) -> None:
    """Brighten another side of each training picture by up to 30% and darken the opposite one, as filters do."""
    angles = np.random.default_rng(RNG_SEED).uniform(0, 2 * np.pi, VIEWS)
    x, y = np.meshgrid(np.linspace(-1, 1, SIZE), np.linspace(-1, 1, SIZE))

    def edit(view: int, picture: np.ndarray) -> np.ndarray:
        side = x * np.cos(angles[view]) + y * np.sin(angles[view])
        return picture * (1.0 + 0.3 * side / np.sqrt(2))[..., None]

    edit_pictures(capture, edit)


def salt(capture: Path) -> None:
    """Make a tenth of the pixels of the training pictures white."""
    rng = np.random.default_rng(RNG_SEED)
    edit_pictures(capture, lambda _, picture: np.where(rng.random((SIZE, SIZE, 1)) < 0.1, 255.0, picture))


def pass_by(capture: Path) -> None:
    """Let something red stand somewhere in each training picture, with a mask that hides it in `masks`."""
    rng = np.random.default_rng(RNG_SEED)
    (capture / "masks").mkdir()
    names = sorted(path.name for path in (capture / "images").iterdir())

    def edit(view: int, picture: np.ndarray) -> np.ndarray:
        left, top = rng.integers(10, SIZE - 40, 2)
        mask = np.full((SIZE, SIZE), 255, np.uint8)
        mask[top : top + 30, left : left + 30] = 0
        Image.fromarray(mask).save(capture / "masks" / names[view])
        return np.where(mask[..., None] > 0, picture, [220.0, 20.0, 20.0])

    edit_pictures(capture, edit)


def thin_out(capture: Path) -> None:
    """Keep eight training views and the held-out ones."""
    training = [view for view in range(VIEWS) if view % HOLD_OUT]
    kept = {training[int(i)] for i in np.round(np.linspace(0, len(training) - 1, FEW))}

    def edit(content: dict[str, Any]) -> None:
        frames = content["frames"]
        content["test_filenames"] = [frame["file_path"] for frame in frames[::HOLD_OUT]]
        content["frames"] = [frame for view, frame in enumerate(frames) if view % HOLD_OUT == 0 or view in kept]

    edit_transforms(capture, edit)


def forget_points(capture: Path) -> None:
    """Keep no points."""
    edit_transforms(capture, lambda content: content.pop("ply_file_path"))


def starve(capture: Path) -> None:
    """Keep eight training views, and no points."""
    thin_out(capture)
    forget_points(capture)


def thin_points(capture: Path) -> None:
    """Keep 300 of the 4,000 points."""
    path = capture / "points3d.ply"
    cloud = load_points(path)
    chosen = np.sort(np.random.default_rng(RNG_SEED).choice(len(cloud.points), 300, replace=False))
    save_points(path, cloud._replace(points=cloud.points[chosen], colors=cloud.colors[chosen]))


def enlarge(capture: Path) -> None:
    """Take the pictures anew, twice as large, and keep few points: large splats then lie over fine patterns."""
    shutil.rmtree(capture)
    make_demo_capture(capture, size=2 * SIZE, views=VIEWS)
    thin_points(capture)


def come_near(capture: Path) -> None:
    """Take the held-out pictures anew, with a focal length three times as long."""
    shapes, cameras = make_scene(0), make_cameras(VIEWS, SIZE, 0)
    paths = sorted((capture / "images").iterdir())

    def edit(content: dict[str, Any]) -> None:
        for view, frame in enumerate(content["frames"]):
            longer = 1 if view % HOLD_OUT else 3
            frame.update(fl_x=content["fl_x"] * longer, fl_y=content["fl_y"] * longer)
            if longer > 1:
                camera = cameras[view]._replace(focal=cameras[view].focal * longer)
                Image.fromarray(photograph(shapes, camera)).save(paths[view])

    edit_transforms(capture, edit)


def forget_masks(capture: Path) -> None:
    """Let something pass by, and lose the masks."""
    pass_by(capture)
    shutil.rmtree(capture / "masks")


POSES = ("--cameras.pose-rate", "1e-3")
INTRINSICS = ("--cameras.intrinsics-rate", "1e-3")
ALIGN = ("--cameras.align-steps", "100")
SHAPES = ("--rates.log-scales", "4e-2", "--rates.quats", "1e-2")
FAST = ("--rates.sh-dc", "2e-2", *SHAPES)
FASTER = (
    "--rates.sh-dc",
    "5e-2",
    "--rates.log-scales",
    "1e-1",
    "--rates.quats",
    "5e-2",
    "--rates.logit-opacities",
    "0.5",
)
MODEL = ("--rates.means", "1.6e-4")
BILATERAL = ("--appearance.kind", "bilateral", "--appearance.grid", "1", "4", "4", "--appearance.rate", "5e-3")
DEFAULT = ("--strategy", "default", "--cap", "4000")
MCMC = (
    "--strategy", "mcmc", "--cap", "4000", "--initial-points", "4000",
    "--mcmc.opacity-reg", "0", "--mcmc.scale-reg", "0",
)  # fmt: skip

CASES = (
    Case("poses", "poses of the training views off by 0.8 degrees and 0.4% of their distance", shake, POSES, MODEL),
    Case("poses_aligned", "the same, cameras aligned before they are compared", shake, POSES, (*MODEL, *ALIGN), True),
    Case("focal", "focal length 4% too long", zoom, INTRINSICS, (*MODEL, *ALIGN), True),
    Case("exposure", "exposures from 0.7 to 1.3", expose, ("--appearance.kind", "affine"), MODEL),
    Case(
        "filters", "another side of each picture brightened, SH degree 0", shade, BILATERAL,
        (*MODEL, "--sh-degree", "0"),
    ),
    Case("salt", "a tenth of the pixels white", salt, ("--difference", "huber"), (*MODEL, "--difference", "mse")),
    Case("masks", "something passes by", pass_by, (), MODEL, bare=forget_masks),
    Case(
        "depth", "eight views, no points", starve, ("--depth-weight", "0.1"),
        ("--initial-points", "4000", "--sh-degree", "0"),
    ),
    Case("batch", "high learning rates", nothing, ("--views-per-step", "4"), (*MODEL, *FAST)),
    Case("schedule", "higher learning rates", nothing, ("--rates.schedule.shape", "cosine"), (*MODEL, *FASTER)),
    Case("holes", "eight views", thin_out, ("--random-background",), MODEL),
    Case(
        "needles", "shapes learned eight times as fast, judged at three times the focal length", come_near,
        ("--regularizers.anisotropy", "0.1"), SHAPES,
    ),
    Case("haze", "MCMC without its own terms, no points", forget_points, ("--regularizers.opacity", "0.01"), MCMC),
    Case("large", "MCMC without its own terms, no points", forget_points, ("--regularizers.scale", "0.01"), MCMC),
    Case(
        "absgrad", "fine patterns, 300 points to begin with, at most 2,000 splats", enlarge,
        ("--default.absgrad", "--default.grow-gradient", "4e-4"),
        ("--steps", "1500", "--strategy", "default", "--cap", "2000"),
    ),
    Case("parts", "300 points to begin with", thin_points, ("--default.revised-opacity",), DEFAULT),
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
