"""PlayCanvas's SOG, version 2: pictures whose pixels are splats, and a meta.json; in a .sog file (zip) or a folder.

Layout: https://developer.playcanvas.com/user-manual/gaussian-splatting/formats/sog/. It is read, not written.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxsplat.io.arrays import Rows, SplatFile, to_splats
from jaxsplat.io.files import InputError
from jaxsplat.io.quantize import from_smallest_three, logits_from_bytes

META = "meta.json"
_CENTROIDS_A_ROW = 64
_QUAT_TAG = 252


def read_sog(path: Path | str) -> SplatFile:
    """Splats of a .sog file, or of the folder or meta.json of an unpacked one.

    Raises:
      InputError: naming the part that is missing or damaged.
    """
    path = Path(path)
    if path.is_dir() or path.name.endswith(".json"):
        folder = path if path.is_dir() else path.parent
        return _read(path, path.name if path.is_file() else META, lambda name: (folder / name).read_bytes())
    try:
        with zipfile.ZipFile(path) as archive:
            return _read(path, META, archive.read)
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: no .sog file ({error})") from None


class _Pictures:
    """The pictures of a file, and what its meta.json says of them."""

    def __init__(self, path: Path, meta: dict[str, Any], read: Callable[[str], bytes]) -> None:
        self.path, self.meta, self.read = path, meta, read
        self.count = self.field("count", int)
        if self.count < 0:
            raise InputError(f"{path}: {META} field 'count' must be at least 0, got {self.count}")

    def field(self, name: str, kind: Any) -> Any:
        """A value of meta.json, for example 'means.files'."""
        value: Any = self.meta
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if not isinstance(value, kind):
            raise InputError(f"{self.path}: {META} has no usable field {name!r}, got {value!r}")
        return value

    def numbers(self, name: str, count: int) -> np.ndarray:
        """A list of `count` numbers."""
        values = self.field(name, list)
        if len(values) != count or not all(isinstance(v, int | float) for v in values):
            raise InputError(f"{self.path}: {META} field {name!r} must be {count} numbers, got {len(values)} values")
        return np.array(values, np.float64)

    def pixels(self, part: str, which: int = 0) -> np.ndarray:
        """[H, W, 4] uint8."""
        from PIL import Image

        files = self.field(f"{part}.files", list)
        name = str(files[which]) if which < len(files) else f"file {which} of {part}"
        try:
            with Image.open(io.BytesIO(_part(self.path, name, self.read))) as image:
                return np.asarray(image.convert("RGBA"))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise InputError(f"{self.path}: {name}: unreadable image ({error})") from None

    def rows(self, part: str, which: int = 0) -> np.ndarray:
        """[count, 4] uint8, a pixel a splat."""
        pixels = self.pixels(part, which).reshape(-1, 4)
        if len(pixels) < self.count:
            raise InputError(f"{self.path}: {part}: {len(pixels)} pixels for {self.count} splats")
        return pixels[: self.count]


def _read(path: Path, meta_name: str, read: Callable[[str], bytes]) -> SplatFile:
    try:
        meta = json.loads(_part(path, meta_name, read))
    except ValueError as error:
        raise InputError(f"{path}: {meta_name} is no JSON ({error})") from None
    if not isinstance(meta, dict) or meta.get("version") != 2:
        found = meta.get("version") if isinstance(meta, dict) else None
        raise InputError(f"{path}: SOG version {found}; version 2 can be read")
    pictures = _Pictures(path, meta, read)
    low, high = pictures.rows("means", 0)[:, :3], pictures.rows("means", 1)[:, :3]
    mins, maxs = pictures.numbers("means.mins", 3), pictures.numbers("means.maxs", 3)
    logs = mins + (maxs - mins) * ((high.astype(np.uint16) << 8 | low) / 65535.0)
    packed, color = pictures.rows("quats"), pictures.rows("sh0")
    bad = int((packed[:, 3] < _QUAT_TAG).sum())
    if bad:
        raise InputError(f"{path}: quats: {bad} pixels hold no rotation (a lossy picture?)")
    rows = Rows(
        means=np.sign(logs) * np.expm1(np.abs(logs)),
        quats=from_smallest_three(packed[:, 3] - _QUAT_TAG, packed[:, :3] / 127.5 - 1.0),
        log_scales=pictures.numbers("scales.codebook", 256)[pictures.rows("scales")[:, :3]],
        logit_opacities=logits_from_bytes(color[:, 3]),
        sh_dc=pictures.numbers("sh0.codebook", 256)[color[:, :3]],
        sh_rest=_sh_rest(pictures) if "shN" in meta else np.zeros((pictures.count, 0, 3)),
    )
    notes = ("Trained with anti-aliasing: render with --antialiased.",) if meta.get("antialias") else ()
    return SplatFile(to_splats(rows), "SOG version 2", notes)


def _sh_rest(pictures: _Pictures) -> np.ndarray:
    """[N, K - 1, 3]: each splat names one of the centroids, which stand 64 in a row, a pixel a coefficient."""
    bands = pictures.field("shN.bands", int)
    if bands not in (1, 2, 3):
        raise InputError(f"{pictures.path}: {META} field 'shN.bands' must be 1, 2 or 3, got {bands}")
    size = (bands + 1) ** 2 - 1
    image = pictures.pixels("shN", 0)[..., :3]
    if image.shape[1] != _CENTROIDS_A_ROW * size:
        raise InputError(
            f"{pictures.path}: the picture of SH centroids is {image.shape[1]} wide, expected {_CENTROIDS_A_ROW * size}"
        )
    centroids = image.reshape(-1, size, 3)
    labels = pictures.rows("shN", 1)
    index = labels[:, 0] | labels[:, 1].astype(np.int64) << 8
    if index.max(initial=0) >= len(centroids):
        raise InputError(f"{pictures.path}: SH centroid {index.max()} is named, there are {len(centroids)}")
    return pictures.numbers("shN.codebook", 256)[centroids[index]]


def _part(path: Path, name: str, read: Callable[[str], bytes]) -> bytes:
    try:
        return read(name)
    except (KeyError, FileNotFoundError):
        raise InputError(f"{path}: has no part {name}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{path}: {name}: damaged ({error})") from None
