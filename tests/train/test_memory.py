"""Memory that stays in the process."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import jax, jax.numpy as jnp
from jaxsplat.strategy import MCMC
from jaxsplat.train import Batch, TrainConfig, init_state, keep_freed_memory, make_train_step
if sys.argv[1] == "keep":
    assert keep_freed_memory()
config = TrainConfig(strategy=MCMC(cap=200_000))
points = jax.random.uniform(jax.random.key(0), (200_000, 3), minval=-1, maxval=1)
state = init_state(config, points, (points + 1) / 2)
K = jnp.array([[[80.0, 0, 32], [0, 80, 24], [0, 0, 1]]])
batch = Batch(jnp.zeros((1, 48, 64, 3)), jnp.eye(4).at[2, 3].set(3.0)[None], K)
step = jax.jit(make_train_step(config), donate_argnums=0)
for call in range(15):
    if call == 5:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    state, _ = jax.block_until_ready(step(state, batch))
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_kept_memory_is_not_fetched_again_from_the_system():
    def faults(how: str) -> float:
        command = [sys.executable, "-c", FAULTS, how]
        return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)

    fetched, kept = faults("default"), faults("keep")
    assert fetched > 3000, "a step allocates nothing large"
    assert kept < fetched / 3
