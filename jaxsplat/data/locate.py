"""Which file is meant: pictures and masks by their names, in folders that may hold them in several sizes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".bmp")
"""Of pictures, the first preferred where a name without an ending fits several files."""

_SIZED = re.compile(r"images_(\d+)")
_NAMES_SHOWN = 20
_LOOKED_AT = 50


def listed(names: Sequence[str]) -> str:
    """The first twenty names in a sentence, and how many more there are."""
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


class Finder:
    """Finds files by name, each folder listed once.

    A name fits exactly, or in another case or Unicode form, or with another ending of a picture or none, in this order.
    """

    def __init__(self) -> None:
        self._folders: dict[Path, list[dict[str, str]]] = {}

    def find(self, path: Path) -> Path | None:
        """The file that a path means, or None."""
        name = unicodedata.normalize("NFC", path.name)
        without = Path(name).stem if Path(name).suffix.lower() in ENDINGS else name
        exact, folded, stems = self._listing(path.parent)
        found = exact.get(name) or folded.get(name.casefold()) or stems.get(without.casefold())
        return None if found is None else path.parent / found

    def _listing(self, folder: Path) -> list[dict[str, str]]:
        if folder not in self._folders:
            names = sorted(p.name for p in folder.iterdir() if p.is_file()) if folder.is_dir() else []
            exact, folded, stems = {}, {}, {}
            for name in names:
                normal = unicodedata.normalize("NFC", name)
                exact.setdefault(normal, name)
                folded.setdefault(normal.casefold(), name)
            for ending in ENDINGS:
                for name in names:
                    path = Path(unicodedata.normalize("NFC", name))
                    if path.suffix.lower() == ending:
                        stems.setdefault(path.stem.casefold(), name)
            self._folders[folder] = [exact, folded, stems]
        return self._folders[folder]


class Located(NamedTuple):
    """Where the pictures of a capture are.

    Attributes:
      paths: of each picture; None where there is no such file.
      downscale: factor by which they must still be shrunk.
      note: what the user should know about the choice, or "".
    """

    paths: list[Path | None]
    downscale: int
    note: str


def locate(paths: Sequence[Path], finder: Finder, *, downscale: int) -> Located:
    """Finds pictures, in `images_4` instead of `images` where that saves shrinking or nothing else is there.

    A file is given to one path only: of several that would mean it, to the one whose name it has.

    Args:
      paths: where the pictures should be.
      finder: for the files.
      downscale: asked for, relative to `images`.

    Returns:
      The files.
    """
    factor, left, note = _size(paths, downscale)
    wanted = [_in_size(path, factor) for path in paths]
    found = [finder.find(path) for path in wanted]
    users: dict[Path, list[int]] = {}
    for i, path in enumerate(found):
        if path is not None:
            users.setdefault(path, []).append(i)
    for path, indices in users.items():
        if len(indices) > 1:
            for i in indices:
                if wanted[i].name != path.name:
                    found[i] = None
    return Located(found, left, note)


def has_pictures(folder: Path, names: Iterable[Path]) -> bool:
    """Whether a folder, or the same in another size, holds any of the first names."""
    finder = Finder()
    paths = [folder / name for _, name in zip(range(_LOOKED_AT), names, strict=False)]
    return any(path is not None for path in locate(paths, finder, downscale=1).paths)


def locate_mask(path: Path, finder: Finder) -> Path | None:
    """Finds the mask of a picture: `x.mask.png` beside it, or its name in `masks` (`masks_4`) beside `images_4`."""
    for name in (f"{path.stem}.mask.png", f"{path.name}.mask.png"):
        if (found := finder.find(path.with_name(name))) is not None:
            return found
    place = _images_part(path)
    if place is None:
        return None
    factor = path.parts[place].removeprefix("images")
    for folder in dict.fromkeys((f"masks{factor}", "masks")):
        mask = Path(*path.parts[:place], folder, *path.parts[place + 1 :])
        found = finder.find(mask) or finder.find(mask.with_name(mask.name + ".png"))
        if found is not None:
            return found
    return None


def _images_part(path: Path) -> int | None:
    """Position of the last folder that is called `images` or `images_4`."""
    folders = path.parts[:-1]
    return next(
        (i for i in reversed(range(len(folders))) if folders[i] == "images" or _SIZED.fullmatch(folders[i])), None
    )


def _in_size(path: Path, factor: int) -> Path:
    place = _images_part(path)
    if place is None or factor == 1:
        return path
    return Path(*path.parts[:place], f"images_{factor}", *path.parts[place + 1 :])


def _size(paths: Sequence[Path], downscale: int) -> tuple[int, int, str]:
    """The factor in the name of the folder to read, what is left to shrink, and a note."""
    place = _images_part(paths[0]) if paths else None
    if place is None or paths[0].parts[place] != "images":
        return 1, downscale, ""
    base = Path(*paths[0].parts[:place])
    there = {1} if (base / "images").is_dir() else set()
    there |= {int(m[1]) for p in base.glob("images_*") if p.is_dir() and (m := _SIZED.fullmatch(p.name)) and int(m[1])}
    fitting = [factor for factor in there if downscale % factor == 0]
    if not there or fitting == [1]:
        return 1, downscale, ""
    if fitting:
        factor = max(fitting)
        return factor, downscale // factor, f"The pictures are those of images_{factor}."
    factor = min(there, key=lambda f: (abs(f - downscale), f))
    return (
        factor,
        1,
        f"No folder of pictures fits downscale {downscale}: those of images_{factor} are used as they are.",
    )
