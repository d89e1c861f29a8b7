"""How compact splat formats put numbers into bytes."""

from __future__ import annotations

import numpy as np

_QUARTER_STEP = 0.25


def logits_from_bytes(opacities: np.ndarray) -> np.ndarray:
    """Logits of opacities in steps of 1/255; 0 and 255 are read a quarter of a step inside, where the logit is finite.

    An opacity of 0.25/255 is below what is drawn and one of 254.75/255 is clamped like 1, so the picture is the same,
    and so are the bytes when it is written again.
    """
    opacity = np.clip(opacities.astype(np.float64), _QUARTER_STEP, 255.0 - _QUARTER_STEP) / 255.0
    return np.log(opacity / (1.0 - opacity))


def bytes_from_logits(logits: np.ndarray) -> np.ndarray:
    """Opacities in steps of 1/255, uint8."""
    return to_bytes(255.0 / (1.0 + np.exp(-np.clip(logits.astype(np.float64), -50.0, 50.0))))


def to_bytes(values: np.ndarray, *, largest: int = 255) -> np.ndarray:
    """Nearest whole numbers in 0..largest; uint8 where they fit, else uint32."""
    return np.clip(np.round(values), 0, largest).astype(np.uint8 if largest <= 255 else np.uint32)


def smallest_three(quats: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Splits unit quaternions into the index of the largest component and the other three, in their order.

    Args:
      quats: [N, 4] of length 1, in any order of components.

    Returns:
      The index [N], and the others [N, 3] times sqrt(2), in -1..1; signs are such that the largest is positive.
    """
    index = np.abs(quats).argmax(1)
    largest = np.take_along_axis(quats, index[:, None], 1)
    others = quats[np.arange(4) != index[:, None]].reshape(-1, 3)
    return index, others * np.where(largest < 0, -1.0, 1.0) * np.sqrt(2.0)


def from_smallest_three(index: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Puts quaternions of `smallest_three` together again, [N, 4] float64."""
    others = others.astype(np.float64) / np.sqrt(2.0)
    quats = np.empty((len(index), 4))
    quats[np.arange(4) != index[:, None]] = others.ravel()
    largest = np.sqrt(np.maximum(1.0 - (others**2).sum(1), 0.0))
    np.put_along_axis(quats, index[:, None].astype(np.int64), largest[:, None], 1)
    return quats


def morton_order(points: np.ndarray) -> np.ndarray:
    """[N] an order in which neighbours in space are near each other (Morton 1966), 10 bits an axis."""
    low = points.min(0, initial=np.inf)
    extent = np.maximum(points.max(0, initial=-np.inf) - low, 1e-30)
    cells = np.minimum((points - low) / extent * 1024.0, 1023.0).astype(np.uint64)
    code = np.zeros(len(points), np.uint64)
    for bit in range(10):
        for axis in range(3):
            code |= ((cells[:, axis] >> np.uint64(bit)) & np.uint64(1)) << np.uint64(3 * bit + axis)
    return np.argsort(code, kind="stable")
