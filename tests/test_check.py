"""The checker that every public function uses."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from jaxsplat import _check


def test_letters_are_bound_on_first_use_and_leading_axes_broadcast():
    sizes = _check.shapes("f", a=(jnp.zeros((4, 1, 7, 3)), "... N 3"), b=(jnp.zeros((5, 7)), "... N"), c=(None, "N"))
    assert sizes == {"...": (4, 5), "N": 7}


@pytest.mark.parametrize(
    ("value", "spec", "message"),
    [
        (jnp.zeros(3), "... N 3", r"f: b must have shape \[..., N, 3\] with N = 2, got \[3\]"),
        (jnp.zeros((2, 4)), "... N 3", r"got \[2, 4\]"),
        (jnp.zeros((3, 3)), "... N 3", r"with N = 2, got \[3, 3\]"),
        (jnp.zeros((6, 2, 3)), "... N 3", r"with ... = \[5\], N = 2, got \[6, 2, 3\]"),
        (jnp.zeros((1, 2, 3)), "N 3", r"f: b must have shape \[N, 3\] with N = 2, got \[1, 2, 3\]"),
    ],
)
def test_a_mismatch_names_the_argument_what_was_expected_and_what_came(value, spec, message):
    with pytest.raises(ValueError, match=message):
        _check.shapes("f", a=(jnp.zeros((5, 2)), "... N"), b=(value, spec))


def test_what_is_no_array_is_named():
    with pytest.raises(TypeError, match="f: a must be an array, got str"):
        _check.shapes("f", a=("text", "N"))


def test_choices_are_exact():
    _check.choice("f", "mode", "a", ("a", "b"))
    with pytest.raises(ValueError, match="f: mode must be one of 'a', 'b', got 'A'"):
        _check.choice("f", "mode", "A", ("a", "b"))


def test_static_integers():
    _check.positive_int("f", width=3)
    with pytest.raises(TypeError, match="width must be a static int"):
        _check.positive_int("f", width=True)
    with pytest.raises(ValueError, match="width must be at least 1, got -2"):
        _check.positive_int("f", width=-2)


def test_a_grid_of_as_many_tiles_as_can_be_numbered_is_allowed():
    _check.grid("f", 4, width=_check.MAX_SIDE, height=4092)


@pytest.mark.parametrize(
    ("tile_size", "width", "height", "message"),
    [
        (4, _check.MAX_SIDE, 4097, r"f: width and height must give fewer than 2147483648 tiles of 4x4 pixels"),
        (32, 5, _check.MAX_SIDE + 1, "f: height must be at most 8388608 .*, got 8388609"),
        (16, 0, 5, "f: width must be at least 1, got 0"),
        (6, 5, 5, "f: tile_size must be a multiple of 4 up to 32, got 6"),
        (36, 5, 5, "f: tile_size must be a multiple of 4 up to 32, got 36"),
    ],
)
def test_an_impossible_grid_is_refused(tile_size, width, height, message):
    with pytest.raises(ValueError, match=message):
        _check.grid("f", tile_size, width=width, height=height)
