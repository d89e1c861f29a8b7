"""jaxsplat: differentiable Gaussian splatting for JAX."""
