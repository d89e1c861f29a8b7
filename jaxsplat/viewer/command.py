"""The command view, and the viewer of a training."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from jaxsplat.data.capture import Capture, load_cameras
from jaxsplat.io.files import InputError
from jaxsplat.types import Splats
from jaxsplat.viewer.frame import Up

if TYPE_CHECKING:
    from jaxsplat.viewer.server import Viewer

PORT = 8080
HOST = "127.0.0.1"


def open_viewer(splats: Splats, **settings: Any) -> Viewer:
    """Opens a `Viewer` and says where; raises InputError where its package is missing."""
    try:
        from jaxsplat.viewer.server import Viewer
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "jaxsplat":
            raise
        raise InputError(f"the viewer needs {error.name}; run: pip install 'jaxsplat[viewer]'") from None
    viewer = Viewer(splats, **settings)
    print(f"Look at it in a web browser: {viewer.url}", flush=True)
    return viewer


def serve(
    splats: Splats,
    cameras: Path | None,
    *,
    background: tuple[float, float, float],
    antialiased: bool,
    up: Up | None,
    host: str,
    port: int,
) -> None:
    """Serves a finished scene until the process is interrupted."""
    found = None if cameras is None else load_cameras(cameras)
    settings = {"background": background, "antialiased": antialiased, "up": up, "host": host, "port": port}
    with open_viewer(splats, cameras=found, **settings):
        print("Ctrl-C ends it.", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()


@dataclasses.dataclass
class TrainingViewer:
    """Shows a training as it goes; a `Watcher`. It opens when the training begins and closes with the block.

    Example:
      >>> with TrainingViewer(port=8080) as watcher:
      ...     train_capture(Path("captures/fox"), Path("fox"), TrainConfig(), watcher=watcher)
    """

    port: int = PORT
    antialiased: bool = False
    viewer: Viewer | None = None

    def __enter__(self) -> TrainingViewer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.viewer is not None:
            self.viewer.close()

    def begin(self, capture: Capture, splats: Splats) -> None:
        """Opens the page."""
        red, green, blue = (float(v) for v in capture.background)
        self.viewer = open_viewer(
            splats,
            cameras=capture.cameras,
            host=HOST,
            port=self.port,
            background=(red, green, blue),
            antialiased=self.antialiased,
            can_pause=True,
        )

    def update(self, splats: Splats, *, caption: str) -> None:
        """Shows the present state."""
        if self.viewer is not None:
            self.viewer.update(splats, caption=caption)

    def wait_while_paused(self, stopped: Callable[[], bool]) -> None:
        """Returns when the page's switch lets the training go on, or when `stopped()` is true."""
        if self.viewer is not None:
            self.viewer.wait_while_paused(stopped)
