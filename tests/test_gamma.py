"""The pure power between displayed colors and linear light."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import encode_gamma, linearize_gamma


def test_linear_light_is_the_power_2_2_of_what_is_displayed():
    colors = jnp.array([-0.5, 0.0, 0.25, 1.0, 1.5])
    np.testing.assert_allclose(linearize_gamma(colors), np.maximum(colors, 0) ** 2.2, rtol=1e-6)
    np.testing.assert_allclose(encode_gamma(linearize_gamma(colors)), np.maximum(colors, 0), rtol=1e-6)


def test_gradients_are_those_of_the_power_and_zero_at_black():
    colors = jnp.array([-1.0, 0.0, 0.3, 2.0])
    for function, exponent in ((linearize_gamma, 2.2), (encode_gamma, 1 / 2.2)):
        slopes = jax.grad(lambda x, f=function: f(x).sum())(colors)
        np.testing.assert_allclose(slopes, [0, 0, *exponent * np.array([0.3, 2.0]) ** (exponent - 1)], rtol=1e-5)
