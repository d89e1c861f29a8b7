"""How much memory a function takes while it runs."""

from __future__ import annotations

import ctypes
import gc
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

STATUS = Path("/proc/self/status")


def peak_beyond(function: Callable[[], Any]) -> int:
    """Watch the resident memory while a compiled function runs for the first time, above that before the call.

    What it keeps for its next call counts; results do, unless they lie in donated operands. The C library is asked to
    hand back first whatever is free.

    Args:
      function: to call.

    Returns:
      Bytes; 0 where the system does not tell.
    """
    if not sys.platform.startswith("linux"):
        return 0
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before, peak, stop = _resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.0005):
            peak = max(peak, _resident())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    jax.block_until_ready(function())
    stop.set()
    watcher.join()
    return max(peak - before, 0)


def _resident() -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", STATUS.read_text())
    return 1024 * int(found[1]) if found else 0
