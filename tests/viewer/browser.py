"""A headless Chromium, steered through its debugging port."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--no-first-run", "--mute-audio", "--disable-extensions", "--disable-sync",
    "--disable-background-networking", "--use-angle=swiftshader", "--enable-unsafe-swiftshader",
    "--remote-debugging-port=0",
)  # fmt: skip


class Page:
    """One page; `call` speaks the browser's own protocol."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.numbers = itertools.count(1)
        self.errors: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=60))
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(message["params"]))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    def run(self, script: str) -> Any:
        """Value of a JavaScript expression."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def picture(self) -> np.ndarray:
        """[H, W, 3] uint8, what a person would see."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))

    def wait_for(self, test: Callable[[np.ndarray], Any], seconds: float = 60.0) -> np.ndarray:
        """The first picture that passes a test."""
        end = time.monotonic() + seconds
        while True:
            picture = self.picture()
            if test(picture):
                return picture
            assert time.monotonic() < end, "the page does not show what was waited for"
            time.sleep(0.1)

    def click(self, x: int, y: int) -> None:
        """Moves the mouse there and clicks."""
        for kind, pressed in (("mouseMoved", {}), ("mousePressed", {"button": "left", "buttons": 1, "clickCount": 1}),
                              ("mouseReleased", {"button": "left", "clickCount": 1})):  # fmt: skip
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)
            time.sleep(0.3)

    def drag(self, start: tuple[int, int], end: tuple[int, int], steps: int = 8) -> None:
        """Moves the mouse with its left button down."""

        def mouse(kind: str, x: float, y: float) -> None:
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

        mouse("mousePressed", *start)
        for k in range(1, steps + 1):
            share = k / steps
            mouse("mouseMoved", *(a + (b - a) * share for a, b in zip(start, end, strict=True)))
        mouse("mouseReleased", *end)


@contextlib.contextmanager
def open_page(url: str, *, width: int = 640, height: int = 480) -> Iterator[Page]:
    """Opens a page in a new browser; skips the test where there is none."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    connect = pytest.importorskip("websockets.sync.client", reason="websockets is not installed").connect
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port = _debugging_port(Path(profile), process)
            with connect(f"ws://127.0.0.1:{port[0]}{port[1]}", max_size=None) as browser:
                root = Page(browser)
                target = root.call("Target.createTarget", url=url)["targetId"]
                with connect(f"ws://127.0.0.1:{port[0]}/devtools/page/{target}", max_size=None) as socket:
                    page = Page(socket)
                    page.call("Runtime.enable")
                    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                    page.call("Emulation.setDeviceMetricsOverride", **size)
                    _wait_until_loaded(page)
                    yield page
                root.call("Browser.close")
        finally:
            process.terminate()
            process.wait(60)


def _debugging_port(profile: Path, process: subprocess.Popen[bytes]) -> tuple[str, str]:
    file = profile / "DevToolsActivePort"
    end = time.monotonic() + 60
    while not file.exists() or len(file.read_text().split()) < 2:
        assert process.poll() is None, f"the browser ended with {process.returncode}"
        assert time.monotonic() < end, "the browser does not start"
        time.sleep(0.05)
    port, path = file.read_text().split()
    return port, path


def _wait_until_loaded(page: Page) -> None:
    end = time.monotonic() + 60
    while page.run("location.protocol + document.readyState") != "http:complete":
        assert time.monotonic() < end, "the page does not load"
        time.sleep(0.05)


def element(label: str) -> str:
    """The control with this label, in the words of the page."""
    found = f"[...document.querySelectorAll('label')].find(e => e.textContent.trim() === {label!r})"
    return f"document.getElementById({found}?.htmlFor)"


def wait_until(test: Callable[[], Any], what: str) -> None:
    """Returns when a test is passed."""
    end = time.monotonic() + 60
    while not test():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)
