"""The scenes that are measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jaxsplat.projection import project_gaussians

F32 = NDArray[np.float32]

GARDEN_CROP = 2.0
GARDEN_MAX_SCALE = 0.02


class Scene(NamedTuple):
    """Splats [N, ...] and the one camera that looks at them: viewmat [4, 4], K [3, 3], sizes in pixels."""

    name: str
    means: F32
    quats: F32
    scales: F32
    opacities: F32
    colors: F32
    viewmat: F32
    K: F32
    width: int
    height: int


class Screen(NamedTuple):
    """A scene after projection.

    Attributes:
      means2d: [N, 2] pixels.
      conics: [N, 3].
      depths: [N].
      radii: [N, 2] one an axis, as small as the opacity allows.
      box_radii: [N, 2] those of 3.33 standard deviations: what the scalar baseline goes by.
      opacities: [N].
      colors: [N, 3].
      width: pixels.
      height: pixels.
    """

    means2d: F32
    conics: F32
    depths: F32
    radii: NDArray[np.int32]
    box_radii: NDArray[np.int32]
    opacities: F32
    colors: F32
    width: int
    height: int


def garden(path: Path, *, seed: int = 0) -> Scene:
    """Set up the points of the Mip-NeRF 360 garden as gsplat's tests do: cropped, with random shapes and opacities.

    Args:
      path: `test_garden.npz`.
      seed: of the random attributes.

    Returns:
      111,785 splats at 648x420.
    """
    rng = np.random.default_rng(seed)
    data = np.load(path)
    inside = (np.abs(data["means3d"]) <= GARDEN_CROP).all(axis=1)
    count = int(inside.sum())
    return Scene(
        "garden",
        data["means3d"][inside],
        rng.normal(size=(count, 4)).astype(np.float32),
        rng.uniform(0, GARDEN_MAX_SCALE, (count, 3)).astype(np.float32),
        rng.uniform(0, 1, count).astype(np.float32),
        (data["colors"][inside] / 255).astype(np.float32),
        data["viewmats"][0],
        data["Ks"][0],
        int(data["width"]),
        int(data["height"]),
    )


def synthetic(count: int, width: int, height: int, *, seed: int = 0) -> Scene:
    """Scatter splats over a floor and balls above it, sized to cover each other a few times.

    Args:
      count: number of splats.
      width: image width in pixels.
      height: image height in pixels.
      seed: of everything.

    Returns:
      The scene.
    """
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(count, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    centers = rng.uniform((-2.5, -0.8, 3), (2.5, 0.6, 8), (12, 3))
    balls = centers[rng.integers(12, size=count)] + direction * rng.uniform(0.3, 0.6, (count, 1))
    floor = np.stack([rng.uniform(-6, 6, count), np.ones(count), rng.uniform(1, 12, count)], axis=1)
    means = np.where(rng.random((count, 1)) < 0.5, floor, balls)
    size = 2.2 / np.sqrt(count)
    scales = size * rng.lognormal(0.0, 0.7, (count, 3))
    focal = 0.8 * width
    return Scene(
        f"synthetic, {count} splats",
        means.astype(np.float32),
        rng.normal(size=(count, 4)).astype(np.float32),
        scales.astype(np.float32),
        rng.beta(0.8, 0.6, count).astype(np.float32),
        rng.uniform(0, 1, (count, 3)).astype(np.float32),
        np.eye(4, dtype=np.float32),
        np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]], np.float32),
        width,
        height,
    )


def project(scene: Scene) -> Screen:
    """Project a scene, so that every program under test begins from the same numbers.

    Args:
      scene: the scene.

    Returns:
      The splats on the screen; rows that are culled have radii 0.
    """
    means2d, conics, depths, radii = _project(scene, scene.opacities)
    box_radii = _project(scene, None)[3]
    # Both programs get the same splats: those that the opacity hides are left out of the boxes too.
    box_radii = np.where(radii > 0, box_radii, 0)
    return Screen(means2d, conics, depths, radii, box_radii, scene.opacities, scene.colors, scene.width, scene.height)


def _project(scene: Scene, opacities: F32 | None) -> list[NDArray[Any]]:
    """Project with the library: means2d, conics, depths and radii of the one camera."""
    projected = project_gaussians(
        jnp.asarray(scene.means),
        jnp.asarray(scene.quats),
        jnp.asarray(scene.scales),
        jnp.asarray(scene.viewmat)[None],
        jnp.asarray(scene.K)[None],
        width=scene.width,
        height=scene.height,
        opacities=None if opacities is None else jnp.asarray(opacities),
    )
    return [np.array(x[0]) for x in projected[:4]]
