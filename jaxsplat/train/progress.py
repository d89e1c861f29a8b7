"""A line that tells how training goes: rewritten in a terminal, a new line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_LINE_EVERY = 10.0


class Progress:
    """Prints step, loss, PSNR, splats, speed and time left.

    Example:
      >>> progress = Progress(total=5000, done=0)
      >>> progress.update(20, loss=0.1, psnr=20.0, splats=50_000)
      >>> progress.close()
    """

    def __init__(self, *, total: int, done: int, stream: TextIO | None = None) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.total, self.first = total, done
        self.warm = False
        self.live = self.stream.isatty()
        self.started = time.monotonic()
        self.shown = -_LINE_EVERY
        self.width = 0
        self.pending = ""

    def update(self, done: int, *, loss: float, psnr: float, splats: int) -> None:
        """Shows the state after `done` steps."""
        if not self.warm:  # the first call compiles: speed counts from its end
            self.warm, self.first, self.started = True, done, time.monotonic()
        elapsed = time.monotonic() - self.started
        speed = (done - self.first) / max(elapsed, 1e-9)
        left = _clock((self.total - done) / speed) if speed > 0 else "..."
        self.pending = (
            f"step {done:>{len(str(self.total))}}/{self.total}  loss {loss:.4f}  psnr {psnr:5.2f} dB  "
            f"splats {splats:,}  {speed:.1f} steps/s  left {left}"
        )
        if self.live:
            self.stream.write("\r" + self.pending.ljust(self.width))
            self.width = len(self.pending)
            self.stream.flush()
            self.pending = ""
        elif elapsed - self.shown >= _LINE_EVERY:
            self._flush(elapsed)

    def note(self, text: str) -> None:
        """Prints a line of its own."""
        self.stream.write(("\r" + " " * self.width + "\r" if self.live and self.width else "") + text + "\n")
        self.width = 0
        self.stream.flush()

    def close(self) -> None:
        """Ends the line."""
        if self.live and self.width:
            self.stream.write("\n")
            self.stream.flush()
        elif self.pending:
            self._flush(0.0)

    def _flush(self, elapsed: float) -> None:
        self.stream.write(self.pending + "\n")
        self.stream.flush()
        self.shown, self.pending = elapsed, ""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
