"""The PLY container: any property order and type, ascii or binary of either byte order, lists skipped."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from jaxsplat.io.files import InputError

_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_REST_SIZES = [3 * (degree + 1) ** 2 - 3 for degree in range(5)]
_FORMATS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}


@dataclasses.dataclass(frozen=True)
class _Property:
    name: str
    dtype: str
    count_dtype: str | None = None  # of the length of a list; None for a single value


@dataclasses.dataclass
class _Element:
    name: str
    count: int
    properties: list[_Property]

    @property
    def has_lists(self) -> bool:
        return any(p.count_dtype for p in self.properties)


def read_elements(path: Path | str, *names: str) -> dict[str, dict[str, np.ndarray]]:
    """Reads the single-valued properties of some elements by name; elements behind the last of them are not read.

    Args:
      path: a .ply file.
      *names: of the elements that are wanted.

    Returns:
      For each wanted element that the file has: property name to array [N], in the type that the file declares.

    Raises:
      InputError: where the file is no PLY, is damaged, or ends too early (with the numbers).

    Example:
      >>> read_elements("mesh.ply", "vertex")["vertex"]["x"]
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    order, elements, start = _parse_header(path, data)
    wanted = [k for k, element in enumerate(elements) if element.name in names]
    body = _AsciiBody(path, data[start:]) if order == "" else _BinaryBody(path, data, start, order)
    columns = [body.element(element) for element in elements[: max(wanted, default=-1) + 1]]
    return {elements[k].name: columns[k] for k in wanted}


def read_vertices(path: Path | str) -> dict[str, np.ndarray]:
    """Reads the single-valued properties of the element `vertex` by name.

    Args:
      path: a .ply file.

    Returns:
      Property name to array [N], in the type that the file declares.

    Raises:
      InputError: as `read_elements`, and where there is no such element.

    Example:
      >>> read_vertices("points.ply")["x"]
    """
    columns = read_elements(path, "vertex")
    if "vertex" not in columns:
        raise InputError(f"{path}: has no element 'vertex'")
    return columns["vertex"]


def rest_coefficients(path: Path | str, columns: dict[str, np.ndarray], count: int) -> np.ndarray:
    """[N, K - 1, 3] SH coefficients of the higher degrees from the properties f_rest_*, in the type that they have.

    Raises:
      InputError: where their number belongs to no degree of 0 to 4.
    """
    names = [f"f_rest_{i}" for i in range(sum(name.startswith("f_rest_") for name in columns))]
    if len(names) not in _REST_SIZES or any(name not in columns for name in names):
        raise InputError(
            f"{path}: {len(names)} properties f_rest_*, expected f_rest_0 onwards and one of {_REST_SIZES}"
        )
    if not names:
        return np.zeros((count, 0, 3), np.float32)
    table = np.stack([columns[name] for name in names], 1)
    return table.reshape(count, 3, len(names) // 3).transpose(0, 2, 1)


class Table(NamedTuple):
    """An element to write.

    Attributes:
      name: of the element.
      properties: name of each property.
      kinds: type of each property, in the words of the format.
      data: [N, ...] little-endian, the properties of a row one after another.
    """

    name: str
    properties: list[str]
    kinds: list[str]
    data: np.ndarray


def write_tables(file: IO[bytes], tables: list[Table]) -> None:
    """Writes a whole PLY file, binary and little-endian."""
    lines = ["ply", "format binary_little_endian 1.0"]
    for table in tables:
        lines.append(f"element {table.name} {len(table.data)}")
        lines += [f"property {kind} {name}" for kind, name in zip(table.kinds, table.properties, strict=True)]
    file.write("\n".join([*lines, "end_header", ""]).encode())
    for table in tables:
        file.write(table.data.tobytes())


def _parse_header(path: Path, data: bytes) -> tuple[str, list[_Element], int]:
    if not data.startswith((b"ply\n", b"ply\r")):
        raise InputError(f"{path}: not a PLY file (it must begin with a line 'ply')")
    order: str | None = None
    elements: list[_Element] = []
    position = data.index(b"\n") + 1 if b"\n" in data else len(data)
    while True:
        end = data.find(b"\n", position)
        if end < 0:
            raise InputError(f"{path}: the header has no line 'end_header'")
        line = data[position:end].decode("latin-1").strip()
        position = end + 1
        words = line.split()
        if line == "end_header":
            break
        try:
            match words:
                case [] | ["comment" | "obj_info", *_]:
                    pass
                case ["format", name, _]:
                    order = _FORMATS[name]
                case ["element", name, count] if count.isdecimal():
                    elements.append(_Element(name, int(count), []))
                case ["property", "list", count_type, kind, name]:
                    elements[-1].properties.append(_Property(name, _TYPES[kind], _TYPES[count_type]))
                case ["property", kind, name]:
                    elements[-1].properties.append(_Property(name, _TYPES[kind]))
                case _:
                    raise ValueError
        except (KeyError, ValueError, IndexError):
            raise InputError(f"{path}: cannot understand the header line {line!r}") from None
    if order is None:
        raise InputError(f"{path}: the header has no line 'format'")
    return order, elements, position


def _truncated(path: Path, element: _Element, rows: int) -> InputError:
    return InputError(
        f"{path}: the header promises {element.count} rows of element {element.name!r}, the file ends after {rows}"
    )


class _BinaryBody:
    def __init__(self, path: Path, data: bytes, start: int, order: str) -> None:
        self.path, self.data, self.position, self.order = path, data, start, order

    def element(self, element: _Element) -> dict[str, np.ndarray]:
        if element.has_lists:
            return self._with_lists(element)
        # Numbered fields: two properties of the same name are an error of the file that need not stop us.
        fields = [(str(i), self.order + p.dtype) for i, p in enumerate(element.properties)]
        dtype = np.dtype(fields)
        available = (len(self.data) - self.position) // dtype.itemsize if dtype.itemsize else 0
        if available < element.count and dtype.itemsize:
            raise _truncated(self.path, element, available)
        table = np.frombuffer(self.data, dtype, element.count, self.position)
        self.position += element.count * dtype.itemsize
        return {p.name: table[str(i)].astype(p.dtype) for i, p in enumerate(element.properties)}

    def _with_lists(self, element: _Element) -> dict[str, np.ndarray]:
        columns: dict[str, list[float]] = {p.name: [] for p in element.properties if not p.count_dtype}
        for row in range(element.count):
            try:
                for p in element.properties:
                    if p.count_dtype:
                        length = int(self._take(p.count_dtype, 1)[0])
                        self._take(p.dtype, length)
                    else:
                        columns[p.name].append(self._take(p.dtype, 1)[0])
            except ValueError:
                raise _truncated(self.path, element, row) from None
        return {p.name: np.array(columns[p.name], p.dtype) for p in element.properties if not p.count_dtype}

    def _take(self, dtype: str, count: int) -> np.ndarray:
        if count < 0:  # numpy would take all that is left
            raise ValueError
        values = np.frombuffer(self.data, self.order + dtype, count, self.position)
        self.position += values.nbytes
        return values


class _AsciiBody:
    def __init__(self, path: Path, body: bytes) -> None:
        self.path, self.words, self.position = path, body.split(), 0

    def element(self, element: _Element) -> dict[str, np.ndarray]:
        if element.has_lists:
            columns = self._with_lists(element)
        else:
            width = len(element.properties)
            words = self.words[self.position : self.position + element.count * width]
            if len(words) < element.count * width:
                raise _truncated(self.path, element, len(words) // width)
            self.position += len(words)
            columns = {p.name: words[k::width] for k, p in enumerate(element.properties)}
        kinds = {p.name: p.dtype for p in element.properties}
        try:
            return {name: np.array(column, "f8").astype(kinds[name]) for name, column in columns.items()}
        except ValueError as error:
            raise InputError(f"{self.path}: element {element.name!r} holds what is no number ({error})") from None

    def _with_lists(self, element: _Element) -> dict[str, list[bytes]]:
        columns: dict[str, list[bytes]] = {p.name: [] for p in element.properties if not p.count_dtype}
        for row in range(element.count):
            for p in element.properties:
                if self.position >= len(self.words):
                    raise _truncated(self.path, element, row)
                word = self.words[self.position]
                self.position += 1
                if not p.count_dtype:
                    columns[p.name].append(word)
                elif word.isdigit():
                    self.position += int(word)
                    if self.position > len(self.words):
                        raise _truncated(self.path, element, row)
                else:
                    raise InputError(
                        f"{self.path}: element {element.name!r} has a list of length {word.decode('latin-1')!r}"
                    )
        return columns
