"""Rasterizers: one primitive a file, a `jax.custom_vjp` each."""
