"""Lenses as values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Lens, opencv_lens
from jaxsplat.cameras.lens import per_camera_lens, split_lens
from tests.cameras.lenses import FULL

SIZES = {"...": (), "C": 3}


@pytest.mark.parametrize("count", [4, 5, 8, 12])
def test_opencvs_vector_is_taken_apart(count):
    lens = opencv_lens(FULL[:count])
    k = np.pad(FULL[:count], (0, 12 - count)).astype(np.float32)
    np.testing.assert_array_equal(lens.radial, k[[0, 1, 4]][: 2 + (count > 4)])
    np.testing.assert_array_equal(lens.tangential, k[2:4])
    np.testing.assert_array_equal(lens.divisor, k[5:8] if count > 5 else [])
    np.testing.assert_array_equal(lens.prism, k[8:] if count > 8 else [])


def test_the_kind_is_static_and_the_coefficients_are_leaves():
    leaves, kind = jax.tree.flatten(Lens("equidistant", radial=jnp.ones(4)))
    assert [leaf.shape for leaf in leaves] == [(4,)]
    assert kind != jax.tree.structure(Lens(radial=jnp.ones(4)))


def test_coefficients_are_shared_or_one_set_a_camera():
    shared = split_lens("f", Lens(radial=(0.1, 0.2)), SIZES, 1, 2)
    assert [k.shape for k in shared.radial] == [(1, 1, 1)] * 2  # pyright: ignore
    each = split_lens("f", Lens(radial=np.arange(6.0).reshape(3, 2)), SIZES, 1, 1)
    np.testing.assert_array_equal(each.radial[1], [[1], [3], [5]])  # pyright: ignore
    np.testing.assert_array_equal(per_camera_lens(Lens(omega=(0.5,)), 2).omega, [[0.5], [0.5]])


def test_wrong_coefficients_are_named():
    def split(lens):
        return split_lens("f", lens, SIZES, 1, 1)

    with pytest.raises(ValueError, match=r"camera_model.radial must have shape \[..., C, n\] with C = 3, got \[2, 4\]"):
        split(Lens(radial=jnp.ones((2, 4))))
    with pytest.raises(ValueError, match=r"camera_model.tangential must have shape \[2\], got \[3\]"):
        split(Lens(tangential=(0.0, 0.1, 0.2)))
    with pytest.raises(ValueError, match="camera_model.omega does not go with projection='equidistant'"):
        split(Lens("equidistant", omega=(0.9,)))
    with pytest.raises(ValueError, match="camera_model.polynomial does not go with projection='perspective'"):
        split(Lens(polynomial=(1.0,)))
    with pytest.raises(ValueError, match="camera_model.projection must be one of 'perspective', 'equidistant'"):
        split(Lens("stereographic"))  # pyright: ignore
    with pytest.raises(TypeError, match="camera_model.radial must hold floating-point numbers, got int"):
        split(Lens(radial=(1, 2)))
    with pytest.raises(ValueError, match=r"coefficients must have shape \[..., 4\], 5, 8 or 12, got \[6\]"):
        opencv_lens(FULL[:6])
