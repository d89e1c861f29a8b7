"""Pictures for the loop: the right ones at every step, however few fit into memory; and hidden pixels teach nothing."""

import dataclasses

import jax
import numpy as np
import pytest
from PIL import Image

from jaxsplat.data import ViewDepths, load_capture
from jaxsplat.data.pictures import Images
from jaxsplat.io.ply import PointCloud, save_points
from jaxsplat.strategy import MCMC
from jaxsplat.train import TrainConfig, make_train_steps, prepare, train_steps
from jaxsplat.train.feed import Feed, view_of_step
from jaxsplat.train.objective import Batch
from tests.train.scenes import trees_equal, write_capture

CONFIG = TrainConfig(steps=25, sh_degree=0, strategy=MCMC(cap=40, refine_every=10, refine_start=0.0))
VIEW_BYTES = 24 * 20 * 4


def masked_capture(folder, filling):
    """Twelve views whose hidden lower half is filled with something."""
    cloud = PointCloud(
        np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32), np.full((40, 3), 0.5, np.float32)
    )
    write_capture(folder, views=12, ply_file_path="p.ply")
    save_points(folder / "p.ply", cloud)
    (folder / "masks").mkdir()
    for path in (folder / "images").iterdir():
        picture = np.array(Image.open(path))
        picture[10:] = filling
        Image.fromarray(picture).save(path)
        Image.fromarray(np.repeat([255, 0], 10)[:, None].repeat(24, 1).astype(np.uint8)).save(
            folder / "masks" / path.name
        )
    return folder


@pytest.mark.parametrize(("fitting", "views_per_step"), [(1, 1), (3, 1), (7, 2), (10, 3), (100, 1)])
def test_every_step_finds_its_views_among_the_loaded_ones(tmp_path, fitting, views_per_step):
    folder = masked_capture(tmp_path / "c", 0)
    whole, capture = load_capture(folder), load_capture(folder, memory=3 * fitting * VIEW_BYTES)
    job = prepare(capture, CONFIG)
    assert isinstance(job.views.images, Images) == (fitting < 10)
    key = jax.random.key(3)
    feed = Feed(job.views, key, views_per_step=views_per_step)
    training = np.flatnonzero(~capture.held_out)
    for step in (*range(40), 5, 33):
        loaded = feed.at(step)
        assert step < loaded.end
        assert len(loaded.views.images) == len(loaded.views.masks) == len(loaded.views.Ks) <= min(fitting, 10)
        for place in range(step * views_per_step, (step + 1) * views_per_step):
            view = int(view_of_step(key, np.int32(place), 10))
            row = loaded.rows[view]
            assert np.array_equal(loaded.views.images[row], whole.images[training[view]])
            assert np.array_equal(loaded.views.masks[row], whole.masks[training[view]])
            assert np.array_equal(loaded.views.viewmats[row], job.views.viewmats[view])


def test_a_capture_larger_than_memory_trains_to_the_same_bits_and_goes_on_where_it_stopped(tmp_path):
    folder = masked_capture(tmp_path / "c", 0)
    config = dataclasses.replace(CONFIG, views_per_step=2)
    whole = prepare(load_capture(folder), config)
    small = prepare(load_capture(folder, memory=3 * 4 * VIEW_BYTES), config)
    assert "do not fit into the memory" in small.notes[-1] and whole.notes == ()
    expected = train_steps(whole.state, whole.views, config)
    stopped = train_steps(small.state, small.views, config, report=lambda state, _: int(state.step) < 8)
    assert 8 <= int(stopped.step) < 25
    state = train_steps(stopped, small.views, config)
    assert int(state.step) == 25 and trees_equal(state.splats, expected.splats)


def test_hidden_pixels_teach_nothing(tmp_path):
    run, results = make_train_steps(CONFIG), []
    for filling in (0, 255):
        job = prepare(load_capture(masked_capture(tmp_path / str(filling), filling)), CONFIG)
        results.append(run(job.state, job.views, 15)[0].splats)
    assert trees_equal(*results)
    # And without the masks they do.
    job = prepare(load_capture(tmp_path / "255"), CONFIG)
    views = job.views._replace(masks=np.ones_like(job.views.masks))
    assert not trees_equal(run(job.state, views, 15)[0].splats, results[0])


def test_points_are_not_put_where_pixels_are_hidden(tmp_path):
    capture = load_capture(masked_capture(tmp_path / "c", (255, 0, 255)))
    job = prepare(dataclasses.replace(capture, points=None), CONFIG)
    assert isinstance(job.views, Batch) and int(job.state.num_splats) == 40
    colors = np.asarray(job.state.splats.sh_dc)[:, 0]
    assert colors[:, 1].min() > -1.7, "none is as purple as the hidden half"


def test_depths_that_the_capture_knows_are_used_in_units_of_the_normalized_scene(tmp_path):
    capture = load_capture(masked_capture(tmp_path / "c", 0))
    seen = [ViewDepths(np.full((i, 2), i, np.float32), np.full(i, 2.0 * i, np.float32)) for i in range(12)]
    job = prepare(dataclasses.replace(capture, depths=tuple(seen)), dataclasses.replace(CONFIG, depth_weight=0.1))
    depths, training = job.views.depths, np.flatnonzero(~capture.held_out)
    assert depths is not None and depths.weights.sum(1).tolist() == training.tolist()
    for row, view in enumerate(training):
        np.testing.assert_allclose(depths.depths[row, :view], 2.0 * view / job.normalization.scale, rtol=1e-6)
        assert (depths.pixels[row, :view] == view).all()


def test_alphas_come_along_where_the_background_changes(tmp_path):
    folder = write_capture(tmp_path / "c", views=4)
    clear = np.zeros((20, 24, 4), np.uint8)
    clear[:10] = (10, 20, 30, 200)
    for path in (folder / "images").iterdir():
        Image.fromarray(clear).save(path)
    capture = load_capture(folder)
    assert prepare(capture, CONFIG).views.alphas is None
    alphas = prepare(capture, dataclasses.replace(CONFIG, random_background=True)).views.alphas
    assert alphas is not None and (alphas == clear[None, ..., 3]).all()
