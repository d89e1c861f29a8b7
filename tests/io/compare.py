"""How far two scenes are from each other, field by field."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat.types import Splats


def largest_errors(a: Splats, b: Splats) -> Splats:
    """Largest absolute difference of each field; of quaternions the angle in radians, of logits that of the opacity."""
    x, y = (Splats(*(np.asarray(leaf, np.float64) for leaf in splats)) for splats in (a, b))
    cosine = np.abs((_unit(x.quats) * _unit(y.quats)).sum(-1))
    errors = [np.abs(p - q).max(initial=0.0) for p, q in zip(x, y, strict=True)]
    opacities = [1 / (1 + np.exp(-splats.logit_opacities)) for splats in (x, y)]
    return Splats(*errors)._replace(
        quats=2 * np.arccos(np.minimum(cosine, 1.0)).max(initial=0.0),
        logit_opacities=np.abs(opacities[0] - opacities[1]).max(initial=0.0),
    )


def assert_near(a: Splats, b: Splats, **limits: float) -> None:
    """Every field of both agrees within its limit; those without one are equal."""
    for name, error in largest_errors(a, b)._asdict().items():
        assert error <= limits.get(name, 0.0), f"{name}: {error}"


def taken(splats: Splats, rows: np.ndarray) -> Splats:
    """Some rows of a scene."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[rows]), splats)


def _unit(quats: np.ndarray) -> np.ndarray:
    return quats / np.linalg.norm(quats, axis=-1, keepdims=True)
