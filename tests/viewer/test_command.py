"""The command view, and the viewer of a training."""

import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from jaxsplat.cli import main
from jaxsplat.io.splats import save_splats
from tests.train.scenes import random_splats, write_capture
from tests.viewer.browser import element, open_page, wait_until
from tests.viewer.scenes import HEIGHT, WIDTH, hues, three_splats


def test_without_its_package_the_viewer_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "viser", None)
    monkeypatch.delitem(sys.modules, "jaxsplat.viewer.server", raising=False)
    save_splats(tmp_path / "a.ply", random_splats(3))
    assert main(["view", str(tmp_path / "a.ply")]) == 1
    error = capsys.readouterr().err
    assert "the viewer needs viser; run: pip install 'jaxsplat[viewer]'" in error and error.count("\n") == 1


@pytest.fixture
def started(tmp_path):
    """Starts a command; gives the process and the address of its page."""
    pytest.importorskip("viser", reason="the package of the viewer is not installed")
    processes = []

    def start(*arguments):
        # A shell starts what it puts in the background with interrupts ignored, which is inherited.
        program = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "from jaxsplat.cli import main; sys.exit(main())"
        )
        command = [sys.executable, "-u", "-c", program, *map(str, arguments)]
        environment = os.environ | {"JAX_PLATFORMS": "cpu"}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        processes.append(process)
        for line in process.stdout:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                return process, found[0]
        raise AssertionError(f"no address; the command ended with {process.wait()}")

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_view_shows_the_whole_scene_until_it_is_interrupted(started, tmp_path):
    save_splats(tmp_path / "a.spz", three_splats())
    process, url = started("view", tmp_path / "a.spz", "--port", "8700", "--background", "1", "1", "1")
    with open_page(url, width=WIDTH, height=HEIGHT) as page:
        page.wait_for(lambda picture: _has(picture, "red") and _has(picture, "green") and _has(picture, "blue"))
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0


def _has(picture, color):
    channel = ("red", "green", "blue").index(color)
    pixels = picture.astype(int)
    others = [pixels[..., k] for k in range(3) if k != channel]
    return ((pixels[..., channel] > 180) & (others[0] < 60) & (others[1] < 60)).sum() > 20


@pytest.mark.slow
def test_training_is_seen_paused_and_finished(started, tmp_path):
    capture = write_capture(tmp_path / "c", size=(96, 80))
    arguments = ["train", capture, "--out", tmp_path / "o", "--steps", "100000", "--initial-points", "200"]
    process, url = started(*arguments, "--cap", "300", "--viewer", "--viewer-port", "8800")
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout))
    reader.start()
    with open_page(url, width=WIDTH, height=HEIGHT) as page:
        page.wait_for(lambda picture: set(hues(picture, (500, 400), (480, 500))) != {"black"})
        text = "document.body.innerText.match(/step ([\\d,]+) of 100,000/)"
        wait_until(lambda: page.run(f"({text})?.[1]"), "the caption")

        def still():
            before = page.run(f"({text})[1]")
            time.sleep(1.5)
            return page.run(f"({text})[1]") == before

        def switch():
            page.run(f"{element('Pause training')}.click()")

        switch()
        wait_until(still, "the pause")
        paused = page.run(f"({text})[1]")
        switch()
        wait_until(lambda: page.run(f"({text})[1]") != paused, "the training to go on")
        switch()
        wait_until(still, "the pause")
        process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, "an interrupt ends a pause"
    reader.join()
    assert any("continue with --resume" in line for line in lines)
    assert (tmp_path / "o" / "checkpoint.npz").is_file()
