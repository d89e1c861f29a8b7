"""What the user sees while it trains."""

import io

from jaxsplat.train import progress
from jaxsplat.train.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_one_line_rewritten():
    stream = Terminal()
    line = Progress(total=100, done=0, stream=stream)
    line.update(10, loss=0.25, psnr=20.0, splats=12_345)
    line.update(20, loss=0.2, psnr=21.0, splats=12_345)
    line.close()
    assert stream.getvalue().count("\n") == 1 and stream.getvalue().count("\r") == 2
    assert "step  20/100  loss 0.2000  psnr 21.00 dB  splats 12,345" in stream.getvalue()


def test_a_file_gets_a_line_now_and_then_and_the_last_one_always():
    stream = io.StringIO()
    line = Progress(total=100, done=0, stream=stream)
    for step in (1, 2, 3):
        line.update(step, loss=1.0, psnr=1.0, splats=1)
    line.close()
    steps = [text.split()[1] for text in stream.getvalue().splitlines()]
    assert steps == ["1/100", "3/100"]


def test_notes_get_their_own_line():
    stream = Terminal()
    line = Progress(total=10, done=0, stream=stream)
    line.update(1, loss=1.0, psnr=1.0, splats=1)
    line.note("something happened")
    assert stream.getvalue().endswith("\rsomething happened\n")


def test_time_is_shown_in_minutes_and_hours():
    assert progress._clock(59.7) == "1:00" and progress._clock(3725) == "1:02:05"
