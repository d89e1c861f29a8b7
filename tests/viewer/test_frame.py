"""The pictures of the viewer show what the camera sees, in every mode and at every size."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.train.render import make_renderer
from jaxsplat.viewer import frame
from jaxsplat.viewer.frame import Look, View, frame_size, make_frame_renderer
from tests.train.scenes import random_splats
from tests.viewer.scenes import hues, three_splats

FOV = 2 * math.atan(0.5)  # 800 pixels high with a focal length of 800
VIEW = View(np.eye(4), FOV, 1.25)


@pytest.fixture(scope="module")
def render():
    return make_frame_renderer()


def test_a_frame_equals_the_picture_of_the_same_camera(render):
    splats = random_splats(60)._replace(means=random_splats(60).means + jnp.array([[0.0, 0.0, 3.0]]))
    K = jnp.array([[[64.0, 0, 40], [0, 64, 32], [0, 0, 1]]])
    image = make_renderer(width=80, height=64, background=(0.2, 0.4, 0.6))(splats, jnp.eye(4)[None], K)[0]
    found = render(splats, VIEW, Look(background=(0.2, 0.4, 0.6)), 80, 64)
    assert np.abs(found - np.asarray(image) * 255.0).max() <= 0.51


@pytest.mark.parametrize("size", [(320, 256), (320, 128), (64, 256)])
def test_the_picture_fills_the_window_whatever_its_size(render, size):
    found = render(three_splats(), VIEW, Look(), *size)
    places = [(500, 400), (660, 400), (500, 560), (340, 400)]
    scaled = [(x * size[0] // 1000, y * size[1] // 800) for x, y in places]
    assert hues(found, *scaled) == ["red", "green", "blue", "black"]


def test_near_and_far_hide_what_is_beyond_them(render):
    assert hues(render(three_splats(), VIEW, Look(near=5.5), 320, 256), (160, 128)) == ["black"]
    assert hues(render(three_splats(), VIEW, Look(far=4.5), 320, 256), (160, 128)) == ["black"]
    assert hues(render(three_splats(), VIEW, Look(near=4.5, far=5.5), 320, 256), (160, 128)) == ["red"]


def test_alpha_is_grey(render):
    found = render(three_splats(), VIEW, Look("alpha", background=(1.0, 0.0, 0.0)), 320, 256)
    assert found[128, 160].tolist() == [252] * 3 or found[128, 160].min() > 240
    assert found[5, 5].tolist() == [0, 0, 0]


def test_depth_is_brighter_where_it_is_nearer(render):
    splats = three_splats()
    splats = splats._replace(means=splats.means.at[1].set(jnp.array([0.8, 0.0, 4.0])))
    found = render(splats, VIEW, Look("depth"), 320, 256)
    assert int(found[128, 211, 0]) > 200 > int(found[128, 160, 0]) > 10
    assert found[5, 5].tolist() == [0, 0, 0]
    empty = dataclasses.replace(Look("depth"), near=100.0)
    assert not render(splats, VIEW, empty, 320, 256).any()


def test_new_settings_and_poses_do_not_compile_anew(render, monkeypatch):
    render(three_splats(), VIEW, Look(), 320, 256)

    def traced(*_, **__):
        raise AssertionError("traced again")

    monkeypatch.setattr(frame, "rasterization", traced)
    frames = [render(three_splats(), VIEW._replace(fov=FOV + 0.1 * k), Look(near=0.02 + k), 320, 256) for k in range(3)]
    assert len({picture.tobytes() for picture in frames}) == 3
    with pytest.raises(AssertionError, match="traced again"):
        render(three_splats(), VIEW, Look(), 352, 256)


def test_sizes_fit_the_window_and_take_few_values():
    assert frame_size(1000, 800, 1280) == (992, 800)
    assert frame_size(4000, 2000, 1280) == (1280, 640)
    assert frame_size(3, 5000, 640) == (32, 640)
    assert len({frame_size(w, 700, 1280) for w in range(900, 1000)}) <= 4
