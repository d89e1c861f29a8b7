"""The commands for files of splats: convert, info, export."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from jaxsplat.io.arrays import SplatFile
from jaxsplat.io.files import InputError
from jaxsplat.io.prune import Prune, prune
from jaxsplat.io.splats import highest_sh_degree, marks_antialiased, read_splats, save_splats, sh_degree_of
from jaxsplat.io.summary import describe, summarize
from jaxsplat.types import Splats

Input = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SCENE")]
Output = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT")]


@dataclasses.dataclass(frozen=True)
class Convert:
    """Write a scene in another format, which the ending says: .ply, .compressed.ply, .splat, .spz, .sog."""

    scene: Input
    """A file of splats: .ply, compressed .ply, .splat, .spz or .sog."""
    out: Output
    """File to write."""
    sh_degree: int | None = None
    """Leave out spherical harmonics of higher degrees, 0 to 4."""
    antialiased: bool | None = None
    """Whether to mark it as trained with anti-aliasing; by default as the file read says, or not."""
    overwrite: bool = False
    """Replace an existing file."""

    def __call__(self) -> int:
        """Runs the command; returns the exit code."""
        found = _read(self)
        _write(self, found.splats, found.antialiased)
        return 0


@dataclasses.dataclass(frozen=True)
class Info:
    """Say what a file of splats holds: number, bounds, SH degree, histograms of scale and opacity."""

    scene: Input
    """A file of splats: .ply, compressed .ply, .splat, .spz or .sog."""

    def __call__(self) -> int:
        """Runs the command; returns the exit code."""
        found = read_splats(self.scene)
        print(f"file       {self.scene}\nformat     {found.format}")
        print(describe(summarize(found.splats)))
        for note in found.notes:
            print(note)
        if found.antialiased:
            print("Trained with anti-aliasing.")
        return 0


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a scene without the splats that show nothing or that you do not want, in any format that convert writes."""

    scene: Input
    """A file of splats: .ply, compressed .ply, .splat, .spz or .sog."""
    out: Output
    """File to write."""
    prune: Prune = dataclasses.field(default_factory=Prune)
    sh_degree: int | None = None
    """Leave out spherical harmonics of higher degrees, 0 to 4."""
    antialiased: bool | None = None
    """Whether to mark it as trained with anti-aliasing; by default as the file read says, or not."""
    overwrite: bool = False
    """Replace an existing file."""

    def __call__(self) -> int:
        """Runs the command; returns the exit code."""
        found = _read(self)
        splats = self.selected(found)
        print(f"Kept {len(splats.means):,} of {len(found.splats.means):,} splats.")
        _write(self, splats, found.antialiased)
        return 0

    def selected(self, found: SplatFile) -> Splats:
        """What is left of a scene; says what was dropped."""
        pruned = prune(found.splats, self.prune)
        for reason, count in pruned.dropped:
            print(f"Dropped {count:,}: {reason}.")
        return pruned.splats


def _read(command: Convert | Export) -> SplatFile:
    """Checks what can be checked before a large file is read, then reads it."""
    highest_sh_degree(command.out)
    if command.sh_degree is not None and command.sh_degree not in range(5):
        raise InputError(f"--sh-degree must be 0 to 4, got {command.sh_degree}")
    if command.out.exists() and not command.overwrite:
        raise InputError(f"{command.out}: exists; give --overwrite to replace it")
    found = read_splats(command.scene)
    for note in found.notes:
        print(f"Not carried over. {note}")
    return found


def _write(command: Convert | Export, splats: Splats, antialiased: bool) -> None:
    """Writes as much as the format has a place for, and says what is left out."""
    scene, out, degree = command.scene, command.out, sh_degree_of(splats)
    wanted = min(degree, highest_sh_degree(out), degree if command.sh_degree is None else command.sh_degree)
    if wanted < degree:
        print(f"SH degrees above {wanted} left out: {scene.name} has {degree}.")
    antialiased = antialiased if command.antialiased is None else command.antialiased
    if antialiased and not marks_antialiased(out):
        print(
            f"{out.name} has no place to say that it was trained with anti-aliasing: give --antialiased to render it."
        )
    save_splats(out, splats, sh_degree=wanted, antialiased=antialiased)
    print(f"{len(splats.means):,} splats of SH degree {wanted} in {out}, {out.stat().st_size:,} bytes.")
