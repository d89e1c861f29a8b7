"""The backward pass takes the tile lists that the forward pass kept, and only where they are those of its operands."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import rasterize_gaussians_3d
from tests.splats2d import random_splats

WIDTH, HEIGHT = 45, 30


@functools.partial(jax.jit, static_argnames=("width", "height", "most"))
def forward(splats, width=WIDTH, height=HEIGHT, most=None):
    """The picture, and its pullback with what it remembers."""

    def picture(floats):
        output = rasterize_gaussians_3d(
            *floats, depths=splats.depths, radii=splats.radii, width=width, height=height, backend="native",
            max_intersections=most,
        )  # fmt: skip
        return output.colors, output.alphas

    return jax.vjp(picture, tuple(splats[:4]))


@jax.jit
def pull_back(pullback):
    rng = np.random.default_rng(3)
    cotangents = [jnp.asarray(rng.normal(size=(HEIGHT, WIDTH, n)), jnp.float32) for n in (3, 1)]
    return pullback(tuple(cotangents))[0]


def assert_same_bits(found, truth):
    for a, b in zip(found, truth, strict=True):
        np.testing.assert_array_equal(a, b)


def forget():
    """More forward passes than the library keeps lists of."""
    for seed in range(20):
        forward(random_splats(5, width=WIDTH, height=HEIGHT, seed=100 + seed))


@pytest.fixture(scope="module")
def splats():
    return random_splats(150, width=WIDTH, height=HEIGHT)


def test_gradients_have_the_same_bits_with_kept_and_with_new_lists(splats):
    _, pullback = forward(splats)
    kept = pull_back(pullback)
    again = pull_back(pullback)  # taken only once
    _, pullback = forward(splats)
    forget()
    assert_same_bits(again, kept)
    assert_same_bits(pull_back(pullback), kept)
    assert np.asarray(kept[0]).any()


def test_the_order_of_pullbacks_does_not_matter(splats):
    other = random_splats(150, width=WIDTH, height=HEIGHT, seed=1)
    truth = [pull_back(forward(s)[1]) for s in (splats, other)]
    pullbacks = [forward(s)[1] for s in (splats, other)]
    for pullback, expected in zip(pullbacks, truth, strict=True):
        assert_same_bits(pull_back(pullback), expected)
    pullbacks = [forward(s)[1] for s in (splats, other)]
    for pullback, expected in zip(pullbacks[::-1], truth[::-1], strict=True):
        assert_same_bits(pull_back(pullback), expected)


# The smallest change of two entries, the kind that cancels in a careless sum.
@pytest.mark.parametrize("field", ["means2d", "conics", "colors", "opacities", "depths", "radii"])
def test_lists_kept_for_splats_that_differ_in_a_bit_are_not_taken(splats, field):
    visible = np.flatnonzero(np.asarray(splats.radii).all(-1) & (np.asarray(splats.opacities) > 0.1))[[3, 40]]
    value = np.asarray(getattr(splats, field))
    changed = value.copy()
    if field == "radii":
        changed[visible] = 0
    elif field in ("depths", "opacities"):
        changed[visible] = value[visible[::-1]]
    else:
        changed[visible, 1] *= -1
    changed = splats._replace(**{field: jnp.asarray(changed)})
    forget()
    truth = pull_back(forward(changed)[1])
    forget()
    (_, pullback) = forward(changed)
    # The residuals of the changed splats, while only lists of the others are kept.
    forget()
    forward(splats)
    assert_same_bits(pull_back(pullback), truth)


def test_lists_of_another_capacity_are_not_taken(splats):
    truth, cut = (pull_back(forward(splats, most=most)[1]) for most in (None, 60))
    assert (np.asarray(cut[3]) != np.asarray(truth[3])).any()
    pullbacks = [forward(splats, most=most)[1] for most in (None, 60)]
    forget()
    for kept, pullback, expected in ((60, pullbacks[0], truth), (None, pullbacks[1], cut)):
        forward(splats, most=kept)
        assert_same_bits(pull_back(pullback), expected)


def test_lists_of_another_image_size_are_not_taken(splats):
    truth = pull_back(forward(splats)[1])
    _, pullback = forward(splats)
    forget()
    forward(splats, width=WIDTH + 40)
    forward(splats, height=HEIGHT + 17)
    assert_same_bits(pull_back(pullback), truth)
