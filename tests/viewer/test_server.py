"""The viewer in a real browser: the page loads and shows what is rendered here for its camera."""

import threading
import time

import numpy as np
import pytest

pytest.importorskip("viser", reason="the package of the viewer is not installed")

from jaxsplat.viewer.server import Viewer
from tests.viewer.browser import element, open_page, wait_until
from tests.viewer.scenes import HEIGHT, WIDTH, hues, three_splats, two_cameras

# A page may close while a picture is on its way to it.
pytestmark = pytest.mark.filterwarnings("ignore:Queued a BackgroundImageMessage on a closed connection")

MIDDLE = [(500, 400), (660, 400), (500, 560), (340, 400)]


@pytest.fixture(scope="module")
def viewer():
    with Viewer(three_splats(), cameras=two_cameras(), port=8500, can_pause=True) as viewer:
        yield viewer


@pytest.fixture(scope="module")
def opened(viewer):
    """The page, which opens at the first camera."""
    with open_page(viewer.url, width=WIDTH, height=HEIGHT) as page:
        page.wait_for(lambda picture: hues(picture, *MIDDLE) == ["red", "green", "blue", "black"])
        yield page


@pytest.fixture
def page(viewer, opened):
    """The page as it is when it opens, whatever an earlier test did."""
    viewer.update(three_splats())
    for option in ("(free)", "middle"):
        choose(opened, "Camera", option)
    opened.wait_for(lambda picture: hues(picture, *MIDDLE) == ["red", "green", "blue", "black"])
    yield opened
    assert opened.errors == []


def choose(page, label, option):
    """Picks an option of a drop-down list as a person would."""
    wait_until(lambda: page.run(f"{element(label)}.click(), true"), "the list")
    find = f"[...document.querySelectorAll('[role=option]')].find(e => e.textContent.trim() === {option!r})"
    wait_until(lambda: page.run(f"(o => o && (o.click(), true))({find})"), option)


def test_the_page_shows_the_scene_and_the_picture_changes_when_the_camera_moves(page):
    before = page.picture()
    page.drag((400, 600), (520, 560))
    after = page.wait_for(lambda picture: hues(picture, *MIDDLE) != ["red", "green", "blue", "black"])
    assert np.abs(before.astype(int) - after).max() > 200
    colors = {tuple(c) for c in np.eye(3, dtype=int).tolist()}
    shown = (after[::2, ::2].reshape(-1, 3) > 200).astype(int)
    assert colors & {tuple(c) for c in shown.tolist()}, "the splats are still there, elsewhere"


def test_pictures_are_small_while_the_camera_moves_and_full_when_it_is_still(viewer, page):
    sizes = []
    render = viewer._render

    def recorded(splats, view, look, width, height):
        sizes.append((width, height))
        return render(splats, view, look, width, height)

    wait_until(lambda: not viewer._waiting(), "rest")
    time.sleep(0.5)  # the last picture may still be on its way
    viewer._render = recorded
    time.sleep(0.5)
    assert not sizes, "nothing is rendered for a camera at rest"
    page.drag((400, 600), (520, 560))
    wait_until(lambda: any(width > 640 for width, _ in sizes), "a full picture")
    viewer._render = render
    assert sizes[0] == (640, 512) and sizes[-1][0] > 800


def test_a_camera_of_the_capture_can_be_chosen(page):
    choose(page, "Camera", "right")
    page.wait_for(lambda picture: hues(picture, (340, 400), (500, 400), (340, 560)) == ["red", "green", "blue"])


def test_modes_can_be_chosen(page):
    for mode in ("alpha", "depth"):
        choose(page, "Show", mode)
        page.wait_for(lambda picture: hues(picture, *MIDDLE) == ["grey", "grey", "grey", "black"])
    choose(page, "Show", "RGB")
    page.wait_for(lambda picture: hues(picture, *MIDDLE) == ["red", "green", "blue", "black"])


def test_another_state_of_the_scene_is_shown_with_its_caption(viewer, page):
    splats = three_splats()
    viewer.update(splats._replace(sh_dc=splats.sh_dc[np.array([1, 2, 0])]), caption="step 7")
    page.wait_for(lambda picture: hues(picture, *MIDDLE) == ["green", "blue", "red", "black"])
    assert "step 7" in page.run("document.body.innerText")


def test_the_switch_pauses_whoever_waits(viewer, page):
    def paused():
        viewer.wait_while_paused(lambda: False)
        went_on.set()

    viewer.wait_while_paused(lambda: False)
    page.run(f"{element('Pause training')}.click()")
    wait_until(lambda: viewer._paused, "the pause")
    viewer.wait_while_paused(lambda: True)
    went_on = threading.Event()
    thread = threading.Thread(target=paused)
    thread.start()
    assert not went_on.wait(0.5)
    page.run(f"{element('Pause training')}.click()")
    assert went_on.wait(10)
    thread.join()


def test_cameras_are_shown_on_demand_and_a_click_on_one_goes_there():
    viewmats = np.tile(np.eye(4, dtype=np.float32), (2, 1, 1))
    viewmats[1, :3, 3] = -0.6, 0.3, -2.5
    cameras = two_cameras()._replace(names=("first", "in front"), viewmats=viewmats)

    def orange(picture):
        red, green, blue = picture[250:360, 640:745].astype(int).transpose(2, 0, 1)
        return np.argwhere((red > 150) & (green > 80) & (green < 200) & (blue < 90))

    with (
        Viewer(three_splats(), cameras=cameras, port=8700) as viewer,
        open_page(viewer.url, width=WIDTH, height=HEIGHT) as page,
    ):
        before = page.wait_for(lambda picture: hues(picture, *MIDDLE) == ["red", "green", "blue", "black"])
        assert not len(orange(before))
        wait_until(lambda: page.run(f"!!{element('Show cameras')}"), "the switch")
        page.run(f"{element('Show cameras')}.click()")
        shown = page.wait_for(lambda picture: len(orange(picture)) > 20)
        y, x = orange(shown)[len(orange(shown)) // 2]
        page.click(640 + int(x), 250 + int(y))
        page.wait_for(lambda picture: hues(picture, (308, 496)) == ["red"])
        page.run(f"{element('Show cameras')}.click()")
        wait_until(lambda: not any(frustum.visible for frustum in viewer._frustums), "hidden cameras")
        assert page.errors == []


def test_a_port_in_use_is_stepped_over_and_closing_ends_a_pause():
    with Viewer(three_splats(), port=8600) as first, Viewer(three_splats(), port=8600) as second:
        assert first.url != second.url and second.url.startswith("http://127.0.0.1:")
        second._paused = True
        closer = threading.Timer(0.2, second.close)
        closer.start()
        second.wait_while_paused(lambda: False)
        closer.join()
