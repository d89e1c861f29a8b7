"""Clips on the way back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import clip_cotangent


@pytest.mark.parametrize("limit", [0.5, 3.0, np.inf])
def test_the_value_is_unchanged_and_the_cotangent_is_clipped(limit):
    x, v = jnp.array([1.0, -2.0, 3.0, 4.0]), jnp.array([0.4, -4.0, 2.0, 9.0])

    @jax.jit
    def pulled(x, limit):
        value, pull = jax.vjp(lambda x: clip_cotangent(x, limit=limit), x)
        return value, pull(v)[0]

    value, gradient = pulled(x, limit)
    np.testing.assert_array_equal(value, x)
    np.testing.assert_array_equal(gradient, np.clip(v, -limit, limit))


def test_a_nan_is_not_hidden():
    assert np.isnan(jax.grad(lambda x: clip_cotangent(x, limit=1.0) * jnp.nan)(1.0))


def test_it_composes_with_vmap():
    x, v = jnp.ones((3, 2)), jnp.arange(6.0).reshape(3, 2)
    gradient = jax.vmap(jax.grad(lambda x, v: jnp.sum(clip_cotangent(x, limit=2.0) * v)))(x, v)
    np.testing.assert_array_equal(gradient, jnp.minimum(v, 2.0))


def test_integers_are_refused():
    with pytest.raises(TypeError, match="clip_cotangent: x must hold floating-point numbers, got int32"):
        clip_cotangent(jnp.arange(3), limit=1.0)
