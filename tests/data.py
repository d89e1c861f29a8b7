"""Where the real test data lies, and the precision that a test runs in."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

VARIABLE = "JAXSPLAT_SHARED"


def shared(name: str) -> Path:
    """Path of a file or folder of the shared data, which is no part of the repository; skips the test without it.

    It is looked for in the folder that the environment variable names, then in `shared` inside and beside the
    repository.
    """
    root = Path(__file__).resolve().parents[1]
    folders = [root / "shared", root.parent / "shared"]
    if os.environ.get(VARIABLE):
        folders = [Path(os.environ[VARIABLE])]
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    pytest.skip(f"{name} is not in {' or '.join(map(str, folders))} (set {VARIABLE} to the folder of the shared data)")


@contextlib.contextmanager
def double_precision(enabled: bool = True) -> Iterator[None]:
    """Lets arrays be float64 inside the block."""
    with jax.enable_x64(enabled):
        yield
