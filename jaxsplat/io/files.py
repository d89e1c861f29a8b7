"""Files that are whole or absent: written beside their place, then renamed."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


class InputError(ValueError):
    """Something that the user gave cannot be used; the message names the file and the field."""


@contextlib.contextmanager
def atomic_write(path: Path | str) -> Iterator[IO[bytes]]:
    """Opens a temporary file that takes the place of `path` when the block ends well, and vanishes when it does not.

    Args:
      path: where the file shall be; its folder is made.

    Yields:
      A file open for writing bytes.

    Raises:
      OSError: from the system, for example where the disk is full; `path` is then as it was.

    Example:
      >>> with atomic_write("metrics.json") as file:
      ...     file.write(b"{}")
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())  # mkstemp makes files that only the owner can read
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, name):
            raise OSError(error.errno, error.strerror, str(path)) from error  # say the file that was meant
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save_json(path: Path | str, value: Any) -> None:
    """Writes a value as indented JSON.

    Args:
      path: file to write.
      value: what `json.dumps` takes.

    Raises:
      OSError: where the file cannot be written.

    Example:
      >>> save_json("metrics.json", {"psnr": 25.1})
    """
    with atomic_write(path) as file:
        file.write((json.dumps(value, indent=2) + "\n").encode())


def load_json(path: Path | str) -> dict[str, Any]:
    """Reads a JSON object.

    Args:
      path: file to read.

    Returns:
      The object as a dict.

    Raises:
      InputError: where the file is missing, malformed, or holds no object; with the line of the mistake.

    Example:
      >>> load_json("transforms.json")["frames"]
    """
    path = Path(path)
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file in UTF-8 ({error.reason} at byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: malformed JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value
