"""Camera matrices from positions and fields of view."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import intrinsics_from_fov, look_at


def test_the_target_is_in_the_middle_and_up_is_up():
    rng = np.random.default_rng(1)
    eyes, target = rng.normal(size=(4, 3)), rng.normal(size=3)
    views = np.asarray(look_at(jnp.asarray(eyes), jnp.asarray(target), up=(0.0, 0.0, 2.0)))
    for eye, view in zip(eyes, views, strict=True):
        np.testing.assert_allclose(view @ [*eye, 1], [0, 0, 0, 1], atol=1e-5)
        np.testing.assert_allclose((view @ [*target, 1])[:2], 0, atol=1e-5)
        assert (view @ [*target, 1])[2] > 0
        np.testing.assert_allclose(view[:3, :3] @ view[:3, :3].T, np.eye(3), atol=1e-5)
        assert np.linalg.det(view[:3, :3]) > 0
        across, down, _ = view[:3, :3] @ [0, 0, 1.0]
        assert abs(across) < 1e-5 and down < 0  # y points down in the camera


def test_a_camera_that_looks_straight_down_has_some_right():
    view = np.asarray(look_at(jnp.array([0.0, -2.0, 0.0]), jnp.zeros(3)))
    np.testing.assert_allclose(view[:3, :3] @ view[:3, :3].T, np.eye(3), atol=1e-6)


@pytest.mark.parametrize("projection", ["perspective", "equidistant"])
def test_the_field_of_view_reaches_from_side_to_side(projection):
    angles = np.array([0.7, 2.0])
    Ks = np.asarray(intrinsics_from_fov(jnp.asarray(angles), width=60, height=40, projection=projection))
    reach = np.tan(angles / 2) if projection == "perspective" else angles / 2
    np.testing.assert_allclose(Ks[:, 0, 0] * reach, 30, rtol=1e-6)
    np.testing.assert_array_equal(Ks[:, 1, 1], Ks[:, 0, 0])
    np.testing.assert_array_equal(Ks[:, :2, 2], [[30, 20]] * 2)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"eyes must have shape \[..., 3\], got \[2\]"):
        look_at(jnp.zeros(2), jnp.zeros(3))
    with pytest.raises(ValueError, match="projection must be one of 'perspective', 'equidistant', got 'fisheye'"):
        intrinsics_from_fov(1.0, width=4, height=4, projection="fisheye")  # pyright: ignore
