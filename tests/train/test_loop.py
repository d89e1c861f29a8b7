"""The compiled loop over all views."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat.data import load_capture
from jaxsplat.io.ply import PointCloud
from jaxsplat.strategy import MCMC
from jaxsplat.train import TrainConfig, make_train_steps, prepare, train_steps
from jaxsplat.train.loop import view_of_step
from tests.train.scenes import trees_equal, write_capture

CONFIG = TrainConfig(
    steps=30, sh_degree=1, initial_points=100, strategy=MCMC(cap=150, refine_every=10, refine_start=0.0)
)


def test_every_view_is_used_once_an_epoch_in_a_new_order():
    key = jax.random.key(0)
    order = [int(view_of_step(key, jnp.int32(step), 7)) for step in range(21)]
    epochs = [order[:7], order[7:14], order[14:]]
    assert all(sorted(epoch) == list(range(7)) for epoch in epochs)
    assert epochs[0] != epochs[1]


def test_the_result_does_not_depend_on_how_the_run_is_cut(tmp_path):
    capture = load_capture(write_capture(tmp_path / "c"))
    run = make_train_steps(CONFIG)
    results = []
    for sizes in ((30,), (1, 9, 13, 7)):
        job = prepare(capture, CONFIG)
        state = job.state
        for size in sizes:
            state, _ = run(state, job.views, size)
        results.append(state)
    assert int(results[0].step) == 30 and trees_equal(results[0].splats, results[1].splats)


def test_reports_fall_on_the_asked_steps_and_can_stop_the_run(tmp_path):
    job = prepare(load_capture(write_capture(tmp_path / "c")), CONFIG)
    seen = []

    def report(state, summary):
        seen.append(int(state.step))
        assert np.isfinite(float(summary.loss)) and float(summary.psnr) > 0
        return int(state.step) < 20

    state = train_steps(job.state, job.views, CONFIG, report=report, pause_every=(10,))
    assert {10, 20} <= set(seen) and int(state.step) == 20


def test_held_out_views_are_not_trained_on(tmp_path):
    capture = load_capture(write_capture(tmp_path / "c", views=10))
    job = prepare(capture, CONFIG)
    assert len(job.views.images) == 8
    assert np.array_equal(job.views.images, capture.images[~capture.held_out])
    assert job.notes == ("The capture has no points: 100 random ones are used.",)


def test_points_above_the_cap_are_not_left_out_silently(tmp_path):
    capture = load_capture(write_capture(tmp_path / "c"))
    points = np.random.default_rng(0).uniform(-1, 1, (200, 3)).astype(np.float32)
    capture = dataclasses.replace(capture, points=PointCloud(points, np.full((200, 3), 0.5, np.float32)))
    job = prepare(capture, dataclasses.replace(CONFIG, strategy=MCMC(cap=150)))
    assert "Of the capture's 200 points 150 random ones are used; --cap raises it." in job.notes
    assert not prepare(capture, dataclasses.replace(CONFIG, strategy=MCMC(cap=200))).notes
