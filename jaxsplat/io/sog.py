"""PlayCanvas's SOG, version 2: pictures whose pixels are splats, and a meta.json; in a .sog file (zip) or a folder.

Layout: https://developer.playcanvas.com/user-manual/gaussian-splatting/formats/sog/.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxsplat.io.arrays import Rows, SplatFile, compact_rows, to_splats
from jaxsplat.io.codebooks import codebook, palette
from jaxsplat.io.files import InputError, atomic_write
from jaxsplat.io.quantize import (
    bytes_from_logits,
    from_smallest_three,
    logits_from_bytes,
    morton_order,
    smallest_three,
    to_bytes,
)
from jaxsplat.types import Splats

META = "meta.json"
_CENTROIDS_A_ROW = 64
_QUAT_TAG = 252
_MOST_CENTROIDS = 1 << 16


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


def save_sog(path: Path | str, splats: Splats, *, antialiased: bool = False) -> None:
    """Writes a .sog file. The splats are reordered, so that neighbours in space are neighbours in the pictures.

    Positions are rounded to 16 bits of the range of sign(x) log(1 + |x|), scales and colours to the 256 values that
    fit them best, rotations and opacities to 8 bits; SH coefficients to 256 values, and beyond 65,536 splats to as many
    sets of them. The pictures are lossless.

    Args:
      path: file to write, whole or not at all.
      splats: N rows of degree 0 to 3, no batch axes.
      antialiased: whether they were trained with anti-aliasing.

    Raises:
      InputError: where rows are not finite or have no rotation, with their number.
      OSError: where the file cannot be written.
      ValueError: where the shapes disagree.

    Example:
      >>> save_sog("scene.sog", splats)
    """
    rows = compact_rows(path, "save_sog", splats)
    order = morton_order(rows.means)
    rows = Rows(*(leaf[order] for leaf in rows))
    logs = np.sign(rows.means) * np.log1p(np.abs(rows.means.astype(np.float64)))
    low, high = (end(logs, axis=0) if len(logs) else np.zeros(3) for end in (np.min, np.max))
    steps = to_bytes((logs - low) / np.where(high > low, high - low, 1.0) * 65535.0, largest=65535)
    scales, scale_index = codebook(rows.log_scales)
    colors, color_index = codebook(rows.sh_dc)
    largest, others = smallest_three(rows.quats)
    pictures = {
        "means_l": _picture(steps & 255),
        "means_u": _picture(steps >> 8),
        "scales": _picture(scale_index),
        "quats": _picture(to_bytes((others + 1.0) * 127.5), _QUAT_TAG + largest),
        "sh0": _picture(color_index, bytes_from_logits(rows.logit_opacities)),
    }
    meta: dict[str, Any] = {
        "version": 2,
        "count": len(logs),
        "antialias": antialiased,
        "means": {"mins": low.tolist(), "maxs": high.tolist(), "files": _files("means_l", "means_u")},
        "scales": {"codebook": scales.tolist(), "files": _files("scales")},
        "quats": {"files": _files("quats")},
        "sh0": {"codebook": colors.tolist(), "files": _files("sh0")},
    }
    if rows.sh_rest.size:
        meta["shN"] = _write_sh_rest(rows.sh_rest, pictures)
    with atomic_write(path) as file, zipfile.ZipFile(file, "w") as archive:
        # A fixed date: the same splats give the same bytes.
        for name, pixels in pictures.items():
            archive.writestr(zipfile.ZipInfo(_files(name)[0]), _webp(pixels))
        archive.writestr(zipfile.ZipInfo(META), json.dumps(meta))


def _write_sh_rest(sh_rest: np.ndarray, pictures: dict[str, np.ndarray]) -> dict[str, Any]:
    """Adds the pictures of the coefficients [N, K - 1, 3]; returns what meta.json says of them."""
    size = sh_rest.shape[1]
    centroids, labels = palette(sh_rest.reshape(len(sh_rest), size * 3), most=_MOST_CENTROIDS)
    values, index = codebook(centroids)
    pictures["shN_centroids"] = _picture(index.reshape(-1, 3), width=_CENTROIDS_A_ROW * size)
    pictures["shN_labels"] = _picture(np.stack([labels & 255, labels >> 8, np.zeros_like(labels)], 1))
    return {
        "count": len(centroids),
        "bands": round((size + 1) ** 0.5) - 1,
        "codebook": values.tolist(),
        "files": _files("shN_centroids", "shN_labels"),
    }


def _files(*names: str) -> list[str]:
    return [f"{name}.webp" for name in names]


def _picture(colors: np.ndarray, alphas: np.ndarray | int = 255, *, width: int | None = None) -> np.ndarray:
    """[H, W, 4] uint8 with a pixel for each row of colours [N, 3], about square or of a given width."""
    if width is None:
        width = max(4, -(-math.isqrt(max(len(colors) - 1, 0)) // 4) * 4 + 4)
    height = max(1, -(-len(colors) // width))
    pixels = np.zeros((height * width, 4), np.uint8)
    pixels[: len(colors), :3], pixels[: len(colors), 3] = colors, alphas
    return pixels.reshape(height, width, 4)


def _webp(pixels: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", lossless=True, exact=True)
    return file.getvalue()


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
    return SplatFile(to_splats(rows), "SOG version 2", antialiased=bool(meta.get("antialias")))


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
