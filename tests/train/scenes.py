"""Small scenes and captures for the tests of training."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

from jaxsplat.types import Splats


def random_splats(count: int, *, rest: int = 3, seed: int = 0) -> Splats:
    """Splats of every size and opacity in front of a camera at the origin."""
    rng = np.random.default_rng(seed)
    arrays = (
        rng.normal(size=(count, 3)) * 0.5,
        rng.normal(size=(count, 4)),
        rng.normal(size=(count, 3)) * 0.3 - 2.0,
        rng.normal(size=count) * 2.0,
        rng.normal(size=(count, 1, 3)),
        rng.normal(size=(count, rest, 3)) * 0.1,
    )
    return Splats(*(jnp.asarray(array, jnp.float32) for array in arrays))


def look_at_origin(angle: float, *, distance: float = 3.0, height: float = 0.5) -> np.ndarray:
    """Camera to world in OpenGL axes: on a circle about the z axis, looking at the origin."""
    position = np.array([distance * np.cos(angle), distance * np.sin(angle), height])
    back = position / np.linalg.norm(position)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    matrix = np.eye(4)
    matrix[:3] = np.stack([right, np.cross(back, right), back, position], 1)
    return matrix


def write_capture(folder: Path, *, views: int = 10, size: tuple[int, int] = (24, 20), **extra: object) -> Path:
    """Writes a transforms.json with smooth pictures; `extra` goes into the file."""
    width, height = size
    (folder / "images").mkdir(parents=True)
    frames = []
    for i in range(views):
        angle = 2 * np.pi * i / views
        y, x = np.mgrid[0:height, 0:width]
        waves = [np.sin(0.3 * x + angle), np.cos(0.2 * y), np.sin(0.2 * (x + y))]
        picture = np.stack(waves, -1) * 100 + 120
        Image.fromarray(picture.astype(np.uint8)).save(folder / "images" / f"{i:03}.png")
        frames.append({"file_path": f"images/{i:03}.png", "transform_matrix": look_at_origin(angle).tolist()})
    camera = {"fl_x": float(width), "fl_y": float(width), "w": width, "h": height}
    (folder / "transforms.json").write_text(json.dumps({**camera, **extra, "frames": frames}))
    return folder


def edit_transforms(folder: Path, edit) -> None:
    """Changes the transforms.json of a capture with a function of its contents."""
    path = folder / "transforms.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def trees_equal(a, b) -> bool:
    """Whether two pytrees hold the same bits."""
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(bool(jnp.array_equal(x, y)) for x, y in leaves)
