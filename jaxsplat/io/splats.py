"""Scenes of splats in any format: read by what a file holds, written by what its name ends in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from jaxsplat import _check
from jaxsplat.io.arrays import SplatFile
from jaxsplat.io.compressed_ply import save_compressed_ply
from jaxsplat.io.dot_splat import read_dot_splat, save_dot_splat
from jaxsplat.io.files import InputError
from jaxsplat.io.ply import read_ply, save_ply
from jaxsplat.io.sog import META, read_sog, save_sog
from jaxsplat.io.spz import read_spz, save_spz
from jaxsplat.types import Splats

_READABLE = ".ply, compressed .ply, .splat, .spz and .sog"


class _Format(NamedTuple):
    """How scenes of a suffix are written, up to which SH degree, and whether they can be marked as anti-aliased."""

    suffix: str
    save: Callable[..., None]
    degree: int
    marks_antialiased: bool


_FORMATS = (  # the first whose suffix fits
    _Format(".compressed.ply", save_compressed_ply, 3, False),
    _Format(".ply", save_ply, 4, False),
    _Format(".splat", save_dot_splat, 0, False),
    _Format(".spz", save_spz, 4, True),
    _Format(".sog", save_sog, 3, True),
)


def load_splats(path: Path | str) -> Splats:
    """Reads splats from a .ply, compressed .ply, .splat, .spz or .sog file, whichever its content says that it is.

    Args:
      path: file to read; for SOG also the folder of an unpacked one.

    Returns:
      The scene, float32, in the file's order and in the axes of .ply.

    Raises:
      InputError: where the file is damaged, or of no known format.

    Example:
      >>> load_splats("biker.spz").means.shape
      (152746, 3)
    """
    return read_splats(path).splats


def read_splats(path: Path | str) -> SplatFile:
    """Reads splats as `load_splats` does, with the name of the format and what else the file holds."""
    path = Path(path)
    if path.is_dir():
        if (path / META).is_file():
            return read_sog(path)
        raise InputError(f"{path}: a folder without {META}; expected a file of splats ({_READABLE})")
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    if start.startswith(b"ply"):
        return read_ply(path)
    if start.startswith((b"\x1f\x8b", b"NGSP")):
        return read_spz(path, path.read_bytes())
    if start.startswith(b"PK") or path.name == META:
        return read_sog(path)
    if path.suffix.lower() == ".splat":  # it has no mark of its own
        return read_dot_splat(path, path.read_bytes())
    raise InputError(f"{path}: begins with {start!r}, which is no known format of splats ({_READABLE})")


def save_splats(path: Path | str, splats: Splats, *, sh_degree: int | None = None, antialiased: bool = False) -> None:
    """Writes splats; the ending (.ply, .compressed.ply, .splat, .spz, .sog) says the format. Only .ply keeps every bit.

    Args:
      path: file to write, whole or not at all.
      splats: N rows, no batch axes.
      sh_degree: coefficients of higher degrees are left out; None keeps all.
      antialiased: whether they were trained with anti-aliasing; only .spz and .sog have a place to say so.

    Raises:
      InputError: where the ending is unknown, or the format has no place for what the splats hold.
      OSError: where the file cannot be written.
      ValueError: where the shapes disagree.

    Example:
      >>> save_splats("scene.spz", load_splats("point_cloud.ply"))
    """
    form = _format_of(path)
    if sh_degree is not None:
        _check.choice("save_splats", "sh_degree", sh_degree, tuple(range(5)))
        splats = splats._replace(sh_rest=splats.sh_rest[..., : (sh_degree + 1) ** 2 - 1, :])
    degree = sh_degree_of(splats)
    if degree > form.degree:
        raise InputError(
            f"{path}: the format {form.suffix} holds SH up to degree {form.degree}, the splats have degree {degree}; "
            f"give sh_degree={form.degree} to leave the rest out"
        )
    if form.marks_antialiased:
        form.save(path, splats, antialiased=antialiased)
    else:
        form.save(path, splats)


def highest_sh_degree(path: Path | str) -> int:
    """Highest SH degree that the format of a file of this name has a place for; InputError for unknown endings."""
    return _format_of(path).degree


def marks_antialiased(path: Path | str) -> bool:
    """Whether a file of this name can say that splats were trained with anti-aliasing."""
    return _format_of(path).marks_antialiased


def sh_degree_of(splats: Splats) -> int:
    """Degree of the spherical harmonics that splats hold."""
    return round((splats.sh_rest.shape[-2] + 1) ** 0.5) - 1


def _format_of(path: Path | str) -> _Format:
    name = Path(path).name.lower()
    for form in _FORMATS:
        if name.endswith(form.suffix):
            return form
    known = ", ".join(form.suffix for form in _FORMATS)
    raise InputError(f"{path}: a file of splats must end in one of {known}")
