"""Strategies inside the training step: growth, moments, resets, cuts and resumption."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.data import load_capture
from jaxsplat.strategy import MCMC, Default, Fixed
from jaxsplat.train import TrainConfig, load_checkpoint, make_room, make_train_steps, prepare, save_checkpoint
from jaxsplat.train.checkpoint import stored_rows
from jaxsplat.train.state import with_rows
from tests.train.scenes import trees_equal, write_capture

# One refinement after step 8, one reset after step 7; all splats are pulled at.
STRATEGY = Default(
    cap=400, refine_start=0, refine_stop=0.7, refine_every=8, reset_every=0.5, reset_gap=1, recovery=0,
    grow_gradient=1e-7, grow_scale=0.15, prune_scale=10.0,
)  # fmt: skip
CONFIG = TrainConfig(steps=14, sh_degree=0, initial_points=60, strategy=STRATEGY)
# A refinement after every second step up to the tenth, until there are 100 splats: 72, 87, 100.
MONTE_CARLO = dataclasses.replace(
    CONFIG, strategy=MCMC(cap=100, refine_start=0.0, refine_stop=0.8, refine_every=2, growth=0.2, noise=1e3)
)
BOTH = pytest.mark.parametrize("config", [CONFIG, MONTE_CARLO], ids=["default", "mcmc"])

# Each configuration is compiled once for all tests.
runner = functools.cache(make_train_steps)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    return load_capture(write_capture(tmp_path_factory.mktemp("growth") / "c"))


def trained(capture, *sizes, config=CONFIG, state=None):
    """The states after each call of so many steps, and their summaries."""
    job, states, summaries = prepare(capture, config), [], []
    state = job.state if state is None else state
    for size in sizes or (config.steps,):
        end = int(state.step) + size
        while int(state.step) < end:
            state, summary = runner(config)(state, job.views, end - int(state.step))
            waiting = jax.tree.map(jnp.copy, state._replace(key=None))
            state = make_room(state, config)
            states.append((waiting, jax.tree.map(jnp.copy, state)))
            summaries.append(summary)
    return states, summaries


def arrays(state):
    return state._replace(key=None)


def test_a_refinement_without_room_stops_the_loop_and_happens_when_there_is_some(capture):
    states, summaries = trained(capture)
    assert [int(after.step) for _, after in states] == [8, 14]
    waiting, grown = states[0]
    assert int(waiting.num_splats) == 60 and waiting.splats.means.shape[0] == 90
    assert 100 < int(grown.num_splats) <= 120 and grown.splats.means.shape[0] >= grown.num_splats
    kept = {tuple(row) for row in np.asarray(waiting.splats.means[:60]).tolist()}
    assert len(kept & {tuple(row) for row in np.asarray(grown.splats.means).tolist()}) > 20  # the small ones: cloned
    assert int(summaries[0].denied) == 0 and not grown.strategy.gradients.any()


def test_moments_follow_the_rows_when_the_arrays_grow(capture):
    first = prepare(capture, CONFIG).state
    logits = first.splats.logit_opacities.at[jnp.array([0, 3])].set(-12.0)  # removed: the rows after them move up
    waiting, grown = trained(capture, state=first._replace(splats=first.splats._replace(logit_opacities=logits)))[0][0]
    old = {tuple(row): k for k, row in enumerate(np.asarray(waiting.splats.means[:60]).tolist())}
    moments, before = grown.opt_state[0].mu.sh_dc, waiting.opt_state[0].mu.sh_dc
    rows = np.asarray(grown.splats.means).tolist()
    same = [(k, old[tuple(row)]) for k, row in enumerate(rows) if tuple(row) in old]
    places = {source: k for k, source in reversed(same)}
    for source, k in places.items():
        np.testing.assert_array_equal(moments[k], before[source])
    clones = [k for k, source in same if places[source] != k]
    assert (
        clones and 0 not in places and min(places) == places[min(places)] + 1 and not moments[jnp.asarray(clones)].any()
    )


@BOTH
def test_the_result_does_not_depend_on_how_the_run_is_cut(capture, config):
    whole, cut = (trained(capture, *sizes, config=config)[0][-1][1] for sizes in ((), (3, 5, 1, 5)))
    assert trees_equal(arrays(whole), arrays(cut))


def test_a_refinement_that_waited_is_the_one_that_a_larger_array_has_at_once(capture):
    grown = trained(capture)[0][0][1]
    roomy = with_rows(prepare(capture, CONFIG).state, grown.splats.means.shape[0], CONFIG)
    at_once = trained(capture, 8, state=roomy)[0][0][0]
    assert int(at_once.num_splats) == int(grown.num_splats)
    np.testing.assert_allclose(at_once.splats.means, grown.splats.means, atol=1e-5)


@BOTH
def test_a_checkpoint_of_grown_arrays_resumes_to_the_same_bits(capture, tmp_path, config):
    save_checkpoint(tmp_path / "c.npz", trained(capture, 11, config=config)[0][-1][1], {})
    first, rows = prepare(capture, config).state, stored_rows(tmp_path / "c.npz")
    assert rows > first.splats.means.shape[0]
    loaded = load_checkpoint(tmp_path / "c.npz", with_rows(first, rows, config))
    end = trained(capture, 3, config=config, state=loaded)[0][-1][1]
    assert trees_equal(arrays(end), arrays(trained(capture, config=config)[0][-1][1]))


def test_mcmc_has_rows_before_they_are_needed_and_no_more_than_the_cap(capture):
    states, summaries = trained(capture, *[1] * 14, config=MONTE_CARLO)
    sizes = [(int(after.num_splats), after.splats.means.shape[0]) for _, after in states]
    assert sizes == [(60, 90)] + 2 * [(72, 90)] + 2 * [(87, 100)] + 9 * [(100, 100)]
    assert not any(int(summary.denied) for summary in summaries)


def test_mcmc_leaves_the_same_scene_whether_it_had_all_rows_at_once_or_grew(capture):
    grown = trained(capture, config=MONTE_CARLO)[0][-1][1]
    roomy = with_rows(prepare(capture, MONTE_CARLO).state, 100, MONTE_CARLO)
    states, _ = trained(capture, config=MONTE_CARLO, state=roomy)
    assert len(states) == 1 and trees_equal(arrays(states[0][1]), arrays(grown))


def test_the_cap_holds_and_what_it_denies_is_counted_once(capture):
    config = dataclasses.replace(CONFIG, strategy=dataclasses.replace(STRATEGY, cap=95))
    states, summaries = trained(capture, config=config)
    denied = sum(int(summary.denied) for summary in summaries)
    unlimited = int(trained(capture)[0][0][1].num_splats)
    assert int(states[-1][1].num_splats) == states[-1][1].splats.means.shape[0] == 95
    assert denied == unlimited - 95


def test_a_reset_leaves_opacities_that_the_pictures_can_raise_again(capture):
    states, _ = trained(capture, 7, 7)
    lowered, later = (np.asarray(jax.nn.sigmoid(states[k][1].splats.logit_opacities)) for k in (0, -1))
    assert lowered.max() <= 0.01 + 1e-6 and not states[0][1].opt_state[0].mu.logit_opacities.any()
    assert np.median(later[: int(states[-1][1].num_splats)]) > 0.011


def test_a_fixed_set_keeps_its_number_and_learns(capture):
    config = dataclasses.replace(CONFIG, strategy=Fixed(cap=50))
    states, summaries = trained(capture, 2, 12, config=config)
    state = states[-1][1]
    assert int(state.num_splats) == state.splats.means.shape[0] == 50
    assert float(summaries[-1].loss) < float(summaries[0].loss) and np.isfinite(state.splats.means).all()
