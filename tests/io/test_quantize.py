"""Numbers survive their way into bytes and back within half a step."""

import numpy as np
import pytest

from jaxsplat.io.quantize import (
    bytes_from_logits,
    from_smallest_three,
    logits_from_bytes,
    morton_order,
    smallest_three,
    to_bytes,
)


def test_every_byte_of_an_opacity_survives_and_its_logit_is_finite():
    logits = logits_from_bytes(np.arange(256, dtype=np.uint8))
    assert np.isfinite(logits).all() and (np.diff(logits) > 0).all()
    np.testing.assert_allclose(1 / (1 + np.exp(-logits[1:-1])), np.arange(1, 255) / 255, rtol=1e-12)
    assert (bytes_from_logits(logits.astype(np.float32)) == np.arange(256)).all()


def test_infinite_logits_are_the_ends():
    assert bytes_from_logits(np.array([-np.inf, -1e30, 0.0, 1e30, np.inf], np.float32)).tolist() == [
        0,
        0,
        128,
        255,
        255,
    ]


def test_the_largest_component_follows_from_the_other_three():
    quats = np.random.default_rng(0).normal(size=(50, 4))
    quats = np.concatenate([quats, np.eye(4), -np.eye(4), [[1.0, 1, 1, 1], [1, -1, 0, 0]]])
    quats /= np.linalg.norm(quats, axis=1, keepdims=True)
    index, others = smallest_three(quats)
    assert np.abs(others).max() <= 1 + 1e-12
    assert (index == np.abs(quats).argmax(1)).all()
    np.testing.assert_allclose(np.abs((from_smallest_three(index, others) * quats).sum(1)), 1.0, atol=1e-12)


def test_rounding_is_to_the_nearest_and_clamped():
    assert to_bytes(np.array([-3.0, 0.4, 0.6, 254.6, 999.0])).tolist() == [0, 0, 1, 255, 255]
    assert to_bytes(np.array([1e9]), largest=1023).tolist() == [1023]


def test_neighbours_in_space_are_neighbours_in_morton_order():
    points = np.random.default_rng(0).uniform(size=(4096, 3)).astype(np.float32)
    order = morton_order(points)
    assert sorted(order) == list(range(4096))
    steps = np.linalg.norm(np.diff(points[order], axis=0), axis=1).mean()
    assert steps < 0.2 * np.linalg.norm(np.diff(points, axis=0), axis=1).mean()


@pytest.mark.parametrize("points", [np.zeros((0, 3)), np.ones((3, 3))])
def test_points_without_extent_have_an_order_too(points):
    assert morton_order(points).tolist() == list(range(len(points)))
