"""The commands for files of splats: convert, info, export."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from jaxsplat.io.files import InputError
from jaxsplat.io.prune import Prune, prune
from jaxsplat.io.splats import highest_sh_degree, read_splats, save_splats, sh_degree_of
from jaxsplat.io.summary import describe, summarize
from jaxsplat.types import Splats

Input = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SCENE")]
Output = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT")]


@dataclasses.dataclass(frozen=True)
class Convert:
    """Write a scene in another format, which the ending says: .ply, .compressed.ply, .splat, .spz."""

    scene: Input
    """A file of splats: .ply, compressed .ply, .splat, .spz or .sog."""
    out: Output
    """File to write."""
    sh_degree: int | None = None
    """Leave out spherical harmonics of higher degrees, 0 to 4."""
    overwrite: bool = False
    """Replace an existing file."""

    def __call__(self) -> int:
        """Runs the command; returns the exit code."""
        splats = _read(self.scene, self.out, self.sh_degree, self.overwrite)
        _write(self.scene, self.out, splats, self.sh_degree)
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
    overwrite: bool = False
    """Replace an existing file."""

    def __call__(self) -> int:
        """Runs the command; returns the exit code."""
        splats = _read(self.scene, self.out, self.sh_degree, self.overwrite)
        pruned = prune(splats, self.prune)
        for reason, count in pruned.dropped:
            print(f"Dropped {count:,}: {reason}.")
        print(f"Kept {len(pruned.splats.means):,} of {len(splats.means):,} splats.")
        _write(self.scene, self.out, pruned.splats, self.sh_degree)
        return 0


def _read(scene: Path, out: Path, sh_degree: int | None, overwrite: bool) -> Splats:
    """Checks what can be checked before a large file is read, then reads it."""
    highest_sh_degree(out)
    if sh_degree is not None and sh_degree not in range(5):
        raise InputError(f"--sh-degree must be 0 to 4, got {sh_degree}")
    if out.exists() and not overwrite:
        raise InputError(f"{out}: exists; give --overwrite to replace it")
    found = read_splats(scene)
    for note in found.notes:
        print(f"Not carried over. {note}")
    return found.splats


def _write(scene: Path, out: Path, splats: Splats, sh_degree: int | None) -> None:
    """Writes as much of the harmonics as the format has a place for, and says what is left out."""
    degree = sh_degree_of(splats)
    wanted = min(degree, highest_sh_degree(out), degree if sh_degree is None else sh_degree)
    if wanted < degree:
        print(f"SH degrees above {wanted} left out: {scene.name} has {degree}.")
    save_splats(out, splats, sh_degree=wanted)
    print(f"{len(splats.means):,} splats of SH degree {wanted} in {out}, {out.stat().st_size:,} bytes.")
