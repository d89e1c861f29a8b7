"""Memory that stays in the process."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import jax, jax.numpy as jnp
from jaxsplat.train import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
# The intermediate result is 128 MiB, which no compiler can avoid: every value is the sum of a row of another.
f = jax.jit(lambda x: jnp.cumsum(x, axis=1)[:, ::-1].sum(axis=0))
x = jnp.ones((4096, 8192))
for call in range(10):
    f(x).block_until_ready()
    if call == 4:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_kept_memory_is_not_fetched_again_from_the_system():
    def faults(how: str) -> int:
        command = [sys.executable, "-c", FAULTS, how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)

    fetched, kept = faults("default"), faults("keep")
    assert fetched > 4 * 1000, "the example allocates nothing large"
    assert kept < fetched / 3
