"""Niantic's .spz: a splat in 20 bytes and a byte for each SH coefficient, compressed as a whole.

Layout: https://github.com/nianticlabs/spz#file-format. Axes there are right, up, back; here, as in .ply, right, down,
forward: y and z change their sign.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxsplat.io.arrays import Rows, SplatFile, compact_rows, to_splats
from jaxsplat.io.files import InputError, atomic_write
from jaxsplat.io.quantize import bytes_from_logits, from_smallest_three, logits_from_bytes, smallest_three, to_bytes
from jaxsplat.types import Splats

_MAGIC = b"NGSP"
_HEADER = struct.Struct("<4sIIBBBB")
_HEADER_V4 = struct.Struct("<4sIIBBBBI12x")
_ANTIALIASED, _EXTENSIONS = 1, 2
_FLIP = np.array([1.0, -1.0, -1.0])
_COLOR_SCALE = 0.15 * 255.0
_FRACTION_BITS = 12  # what other programs write; fewer where a scene is larger than 2^11
_COORDINATE_LIMIT = 2**23


class _Header(NamedTuple):
    version: int
    count: int
    degree: int
    fraction_bits: int
    flags: int

    def sizes(self) -> dict[str, int]:
        """Bytes a splat of each part, in the order of the file."""
        rest = 3 * ((self.degree + 1) ** 2 - 1)
        quats = 4 if self.version >= 3 else 3
        return {
            "means": 6 if self.version == 1 else 9,
            "alphas": 1,
            "colors": 3,
            "scales": 3,
            "quats": quats,
            "sh": rest,
        }


def read_spz(path: Path | str, data: bytes) -> SplatFile:
    """Splats of the bytes of an .spz file of version 1 to 4.

    Raises:
      InputError: where the file is damaged or of another version; for version 4 also without the package zstandard.
    """
    header, parts = _parts_v4(path, data) if data.startswith(_MAGIC) else _parts_gzip(path, data)
    sh = _bytes(parts["sh"], header.count, (header.degree + 1) ** 2 - 1, 3)
    rows = Rows(
        means=_means(header, parts["means"]) * _FLIP + 0.0,  # no -0.0
        quats=_quats(header, parts["quats"]) * np.array([1.0, *_FLIP]) + 0.0,
        log_scales=_bytes(parts["scales"], header.count, 3) / 16.0 - 10.0,
        logit_opacities=logits_from_bytes(_bytes(parts["alphas"], header.count)),
        sh_dc=(_bytes(parts["colors"], header.count, 3) - 127.5) / _COLOR_SCALE,
        sh_rest=(sh - 128.0) / 128.0 * _sh_signs(sh.shape[1]),
    )
    notes = ("Extensions of other programs.",) if header.flags & _EXTENSIONS else ()
    return SplatFile(to_splats(rows), f"SPZ version {header.version}", notes, bool(header.flags & _ANTIALIASED))


def save_spz(path: Path | str, splats: Splats, *, antialiased: bool = False) -> None:
    """Writes an .spz file of version 3, which every reader knows.

    SH coefficients are rounded to 1/128 and clamped to -1..1, base colours clamped to -2.8..3.2 (red, green and blue
    as seen, in which 0..1 is the usual range), log scales to -10..5.9, positions rounded to 2^-12.

    Args:
      path: file to write, whole or not at all.
      splats: N rows, no batch axes.
      antialiased: whether they were trained with anti-aliasing.

    Raises:
      InputError: where rows are not finite, have no rotation, or are further away than 2^23.
      OSError: where the file cannot be written.
      ValueError: where the shapes disagree.

    Example:
      >>> save_spz("scene.spz", splats)
    """
    rows = compact_rows(path, "save_spz", splats)
    count = len(rows.means)
    reach = float(np.abs(rows.means).max(initial=0.0))
    if reach >= _COORDINATE_LIMIT - 1:
        raise InputError(f"{path}: .spz cannot hold a coordinate of {reach:g}, the largest is {_COORDINATE_LIMIT}")
    bits = _FRACTION_BITS
    while reach * 2**bits >= _COORDINATE_LIMIT - 1:
        bits -= 1
    fixed = np.round(rows.means * _FLIP * 2.0**bits).astype("<i4")
    quats = np.roll(rows.quats * np.array([1.0, *_FLIP]), -1, 1)  # wxyz to xyzw
    index, others = smallest_three(quats)
    words = index.astype("<u4") << 30
    for k in range(3):
        word = to_bytes(np.abs(others[:, k]) * 511.0, largest=511) | (others[:, k] < 0).astype(np.uint32) << 9
        words |= word << 10 * (2 - k)
    rest = rows.sh_rest
    degree = round((rest.shape[1] + 1) ** 0.5) - 1
    parts = [
        fixed.view(np.uint8).reshape(count, 3, 4)[..., :3],
        bytes_from_logits(rows.logit_opacities),
        to_bytes(rows.sh_dc * _COLOR_SCALE + 127.5),
        to_bytes((rows.log_scales + 10.0) * 16.0),
        words,
        to_bytes(rest * _sh_signs(rest.shape[1]) * 128.0 + 128.0),
    ]
    header = _HEADER.pack(_MAGIC, 3, count, degree, bits, _ANTIALIASED if antialiased else 0, 0)
    with atomic_write(path) as file:
        file.write(gzip.compress(b"".join([header, *(part.tobytes() for part in parts)]), mtime=0))


def _parts_gzip(path: Path | str, data: bytes) -> tuple[_Header, dict[str, bytes]]:
    try:
        body = gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(f"{path}: damaged .spz: {error}") from None
    if len(body) < _HEADER.size or not body.startswith(_MAGIC):
        raise InputError(f"{path}: compressed by gzip, but no .spz")
    header = _Header(*_HEADER.unpack_from(body)[1:6])
    if header.version not in (1, 2, 3):
        raise InputError(f"{path}: .spz version {header.version}; versions 1 to 3 in gzip and 4 can be read")
    sizes = _check_header(path, header).sizes()
    expected = _HEADER.size + header.count * sum(sizes.values())
    if len(body) < expected:
        raise InputError(f"{path}: {header.count} splats need {expected} bytes, the file holds {len(body)}")
    parts, position = {}, _HEADER.size
    for name, size in sizes.items():
        parts[name] = body[position : position + header.count * size]
        position += header.count * size
    return header, parts


def _parts_v4(path: Path | str, data: bytes) -> tuple[_Header, dict[str, bytes]]:
    if len(data) < _HEADER_V4.size:
        raise InputError(f"{path}: ends within the header of an .spz")
    _, version, count, degree, fraction_bits, flags, streams, table = _HEADER_V4.unpack_from(data)
    if version != 4:
        raise InputError(
            f"{path}: .spz version {version} without compression; versions 1 to 3 in gzip and 4 can be read"
        )
    header = _check_header(path, _Header(version, count, degree, fraction_bits, flags))
    sizes = header.sizes()
    start = table + 16 * streams
    if len(data) < start or streams < len([size for size in sizes.values() if size]):
        raise InputError(f"{path}: {streams} streams in {len(data)} bytes are no whole .spz of degree {degree}")
    lengths = struct.unpack_from(f"<{2 * streams}Q", data, table)
    parts = dict.fromkeys(sizes, b"")
    for k, (name, size) in zip(range(streams), sizes.items(), strict=False):
        packed, unpacked = lengths[2 * k : 2 * k + 2]
        if unpacked != count * size or start + packed > len(data):
            raise InputError(
                f"{path}: {name} of {count} splats need {count * size} bytes, the file has {unpacked} in "
                f"{max(len(data) - start, 0)} of {packed} compressed bytes"
            )
        parts[name] = _decompress(path, data[start : start + packed], unpacked)
        start += packed
    return header, parts


def _decompress(path: Path | str, packed: bytes, size: int) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise InputError(f"{path}: .spz version 4 needs 'pip install zstandard'") from None
    try:
        data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise InputError(f"{path}: damaged .spz: {error}") from None
    if len(data) != size:
        raise InputError(f"{path}: damaged .spz: {len(data)} bytes where {size} were promised")
    return data


def _check_header(path: Path | str, header: _Header) -> _Header:
    if header.degree > 4:
        raise InputError(f"{path}: SH degree {header.degree}, expected 0 to 4")
    return header


def _bytes(data: bytes, *shape: int) -> np.ndarray:
    return np.frombuffer(data, np.uint8).reshape(shape)


def _means(header: _Header, data: bytes) -> np.ndarray:
    if header.version == 1:
        return np.frombuffer(data, "<f2").reshape(-1, 3).astype(np.float64)
    wide = np.zeros((header.count, 3, 4), np.uint8)
    wide[..., 1:] = _bytes(data, header.count, 3, 3)
    return (wide.view("<i4")[..., 0] >> 8) / 2.0**header.fraction_bits


def _quats(header: _Header, data: bytes) -> np.ndarray:
    """[N, 4] wxyz, in the axes of the file."""
    if header.version < 3:
        xyz = _bytes(data, header.count, 3) / 127.5 - 1.0
        w = np.sqrt(np.maximum(1.0 - (xyz**2).sum(1, keepdims=True), 0.0))
        return np.concatenate([w, xyz], 1)
    words = np.frombuffer(data, "<u4")
    fields = np.stack([words >> 10 * (2 - k) & 1023 for k in range(3)], 1)
    others = (fields & 511) / 511.0 * np.where(fields & 512, -1.0, 1.0)
    return np.roll(from_smallest_three(words >> 30, others), 1, 1)


def _sh_signs(coefficients: int) -> np.ndarray:
    """[K - 1, 1] what y, z -> -y, -z does to each basis function: (-1)^(n + |m|), and -1 once more for m < 0."""
    signs = [
        (-1.0) ** (n + abs(m)) * (-1.0 if m < 0 else 1.0)
        for n in range(1, round((coefficients + 1) ** 0.5))
        for m in range(-n, n + 1)
    ]
    return np.array(signs).reshape(-1, 1)
