"""Settings of the whole test suite: several fake CPU devices, and rank promotion as an error."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax

jax.config.update("jax_numpy_rank_promotion", "raise")
