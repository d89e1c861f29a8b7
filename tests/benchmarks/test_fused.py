"""The benchmark of the fused step: that it times the same step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import fused, scenes
from benchmarks.training import target_of, training
from jaxsplat.fused import FusedCamera, FusedConfig, init_fused_state, make_fused_step


@pytest.mark.parametrize("in_one_pass", [False, True])
def test_the_programs_that_are_timed_do_the_same(in_one_pass):
    scene = scenes.synthetic(200, 48, 32)
    config = FusedConfig(scene.width, scene.height, clamps=fused.CLAMPS)
    view = (FusedCamera(jnp.asarray(scene.viewmat), jnp.asarray(scene.K)), target_of(scene)[0], jnp.full(3, 0.5))
    programs = (make_fused_step(config), jax.jit(fused.composed(config, in_one_pass=in_one_pass)))
    (one, result), (other, loss) = (p(init_fused_state(training(scene)[0], config), *view) for p in programs)
    np.testing.assert_allclose(result.loss, loss, rtol=1e-5)
    # Steps of Adam are as large as the rates, whatever the gradients.
    np.testing.assert_allclose(one.splats.log_scales, other.splats.log_scales, atol=1e-4)


def test_every_program_is_timed_as_often_as_asked():
    scene = scenes.synthetic(5, 16, 16)
    config = FusedConfig(scene.width, scene.height)
    times = fused.measure({"none": lambda state, *view: (state, 0)}, scene, config, 3)
    assert len(times["none"]) == 3 and min(times["none"]) >= 0
