"""The golden files: pictures and gradients of small scenes, made by independent renderers in float64.

`check` compares any composition of the library's stages with one of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.data import double_precision, shared
from tests.tolerances import GRADIENT, GRADIENT_DOUBLE, PICTURE, PICTURE_DOUBLE

NAMES = (
    "pinhole_rgb", "pinhole_antialiased", "pinhole_tile8", "pinhole_nobg_1ch", "pinhole_37ch", "pinhole_1x1",
    "pinhole_sh0", "pinhole_sh1", "pinhole_sh2", "pinhole_sh3", "pinhole_sh4", "ortho_rgb", "fisheye_rgb",
)  # fmt: skip

FLOATS = ("means", "quats", "scales", "opacities", "colors", "viewmats", "Ks", "backgrounds")
OUTPUTS = ("render", "depth_accumulated", "alphas")


@dataclasses.dataclass(frozen=True)
class Case:
    """One file. `colors` are spherical-harmonics coefficients where `sh_degree` is given."""

    name: str
    means: np.ndarray
    quats: np.ndarray
    scales: np.ndarray
    opacities: np.ndarray
    colors: np.ndarray
    viewmats: np.ndarray
    Ks: np.ndarray
    backgrounds: np.ndarray | None
    width: int
    height: int
    tile_size: int
    camera_model: Any
    sh_degree: int | None
    antialiased: bool
    projected: dict[str, np.ndarray]
    outputs: tuple[np.ndarray, ...]
    cotangents: tuple[np.ndarray, ...]
    gradients: dict[str, np.ndarray]


RenderFn = Callable[..., tuple[jax.Array, jax.Array, jax.Array]]
"""(means, quats, scales, opacities, colors, viewmats, Ks, backgrounds or None, case) -> the three `OUTPUTS`."""


def load(name: str) -> Case:
    """Reads a golden file, or skips the test if it is not there."""
    with np.load(shared(f"golden/{name}.npz")) as file:
        stored: dict[str, Any] = dict(file)
    degree = int(stored["sh_degree"])
    return Case(
        name=name,
        **{key: stored[key] for key in FLOATS[:-1]},
        backgrounds=stored.get("backgrounds"),
        width=int(stored["width"]),
        height=int(stored["height"]),
        tile_size=int(stored["tile_size"]),
        camera_model=str(stored["camera_model"]),
        sh_degree=degree if degree >= 0 else None,
        antialiased=bool(stored["antialiased"]),
        projected={
            key: stored[key] for key in ("means2d", "conics", "depths", "radii", "compensations") if key in stored
        },
        outputs=tuple(stored[key] for key in OUTPUTS),
        cotangents=tuple(stored[f"cotangent_{key}"] for key in ("render", "depth", "alphas")),
        gradients={key: stored[f"grad_{key}"] for key in FLOATS if f"grad_{key}" in stored},
    )


def check(case: Case, render_fn: RenderFn, *, double: bool = False) -> None:
    """Asserts that the pictures and every gradient agree with the file, in float32 or float64."""
    with double_precision(double):
        dtype = np.float64 if double else np.float32
        floats = {key: jnp.asarray(getattr(case, key), dtype) for key in case.gradients}

        def loss(floats: dict[str, jax.Array]) -> tuple[jax.Array, tuple[jax.Array, ...]]:
            outputs = render_fn(*(floats.get(key) for key in FLOATS), case)
            cotangents = [jnp.asarray(x, dtype) for x in case.cotangents]
            return sum(jnp.sum(x * v) for x, v in zip(outputs, cotangents, strict=True)), outputs  # pyright: ignore

        (_, outputs), gradients = jax.jit(jax.value_and_grad(loss, has_aux=True))(floats)
        for key, got, expected in zip(OUTPUTS, outputs, case.outputs, strict=True):
            scale = max(expected.max(), 1) if key == "depth_accumulated" else 1
            _check_picture(f"{case.name}: {key}", np.abs(np.asarray(got) - expected) / scale, double)
        for key, expected in case.gradients.items():
            got = np.asarray(gradients[key])[:, :3] if key == "viewmats" else np.asarray(gradients[key])
            error = np.linalg.norm(got - expected) / np.linalg.norm(expected)
            assert error <= (GRADIENT_DOUBLE if double else GRADIENT), f"{case.name}: gradient to {key} is {error} off"


def _check_picture(name: str, error: np.ndarray, double: bool) -> None:
    worst = error.max()
    if double:
        assert worst <= PICTURE_DOUBLE, f"{name} is {worst} off"
    else:
        share = np.mean(error <= PICTURE.usual)
        assert share >= PICTURE.share, f"{name}: only {share} of the values agree"
        assert worst <= PICTURE.worst, f"{name} is {worst} off"
