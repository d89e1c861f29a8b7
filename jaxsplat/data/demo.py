"""A capture made from nothing: a procedural scene, photographed by the ray tracer from cameras on an orbit."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from jaxsplat import _constants as const
from jaxsplat.cameras import Lens
from jaxsplat.data import optics, raytrace
from jaxsplat.data.raytrace import Array, Box, Material, Shape, Sphere
from jaxsplat.data.undistort import PINHOLE
from jaxsplat.io.ply import PointCloud, save_points

FIELD_OF_VIEW = np.radians(48.0)
NUM_POINTS = 4000
TARGET = (0.0, 0.0, 0.35)
DOME_RADIUS = 9.0
SLAB_HALF_SIZE = 1.9
SUBPIXELS = (0.25, 0.75)
DISTORTION_KEYS = ("k1", "k2", "p1", "p2")


class Camera(NamedTuple):
    """A square camera with its principal point in the middle.

    Attributes:
      camera_to_world: [4, 4] OpenGL axes: x right, y up, z backward.
      focal: focal length in pixels.
      size: width and height in pixels.
      lens: its distortion.
    """

    camera_to_world: Array
    focal: float
    size: int
    lens: Lens = PINHOLE


def make_demo_capture(
    folder: Path,
    *,
    size: int = 128,
    views: int = 40,
    seed: int = 0,
    depths: bool = False,
    distortion: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0),
) -> None:
    """Write a posed capture of a procedural scene: `transforms.json`, `images/0000.png` ... and `points3d.ply`.

    Poses and intrinsics follow the NeRF convention (camera to world, OpenGL axes, pixel centres at .5). The folder
    appears whole or not at all, and one seed always gives the same bytes.

    Args:
      folder: where to write; must not exist, or be empty.
      size: width and height of the images in pixels, at least 8.
      views: number of images, at least 1.
      seed: chooses the scene, the cameras and the points.
      depths: also write `depth/0000.npy` ...: [size, size] float32, camera-space z through the pixel centres; named in
        `transforms.json`.
      distortion: k1, k2, p1, p2 of OpenCV's lens, through which the pictures are taken.

    Raises:
      ValueError: size or views is too small.
      FileExistsError: the folder exists and is not empty.

    Example:
      >>> make_demo_capture(Path("demo"), size=64, views=8)
      >>> sorted(path.name for path in Path("demo").iterdir())
      ['images', 'points3d.ply', 'transforms.json']
    """
    if size < 8 or views < 1:
        raise ValueError(f"make_demo_capture: expected size >= 8 and views >= 1, got size={size} and views={views}")
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"make_demo_capture: {folder} already exists; expected a new or empty folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    workspace = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        # mkdtemp makes folders private; the one inside follows the user's umask.
        partial = workspace / "capture"
        partial.mkdir()
        _write(partial, size, views, seed, depths, distortion)
        partial.replace(folder)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def make_scene(seed: int) -> list[Shape]:
    """Arrange spheres and boxes on a checkered slab under a sky dome.

    Args:
      seed: chooses sizes, places and colours.

    Returns:
      The shapes; they do not overlap.
    """
    rng = np.random.default_rng([seed, 0])

    def tint(low: float, high: float) -> raytrace.RGB:
        r, g, b = rng.uniform(low, high, 3)
        return (float(r), float(g), float(b))

    sky = Material((0.36, 0.52, 0.80), (0.62, 0.58, 0.52), "sky")
    floor = Material((0.55, 0.52, 0.47), (0.16, 0.19, 0.22), "checker", 0.38)
    pedestal = Material(tint(0.3, 0.7), tint(0.05, 0.3), "stripes", 0.18)
    ball = Material(tint(0.5, 0.9), tint(0.05, 0.25), "stripes", 0.3, 0.35)
    shapes: list[Shape] = [
        Sphere((0.0, 0.0, 0.0), DOME_RADIUS, sky),
        Box((0.0, 0.0, -0.1), (SLAB_HALF_SIZE, SLAB_HALF_SIZE, 0.1), 0.0, floor),
        Box((0.0, 0.0, 0.15), (0.34, 0.34, 0.15), float(rng.uniform(0, np.pi)), pedestal),
        Sphere((0.0, 0.0, 0.72), 0.42, ball),
    ]
    places = 7
    for i, angle in enumerate(2 * np.pi * (np.arange(places) + rng.uniform(0, 0.3, places)) / places):
        radius = rng.uniform(1.1, 1.3)
        x, y, extent = float(radius * np.cos(angle)), float(radius * np.sin(angle)), float(rng.uniform(0.18, 0.3))
        pattern = ("spots", "checker", "stripes")[i % 3]
        material = Material(tint(0.35, 0.95), tint(0.03, 0.35), pattern, float(rng.uniform(0.15, 0.25)), 0.25)
        if i % 2:
            height = float(rng.uniform(0.12, 0.4))
            half = (extent * 0.8, extent * 0.8, height)
            shapes.append(Box((x, y, height), half, float(rng.uniform(0, np.pi)), material))
        else:
            shapes.append(Sphere((x, y, extent), extent, material))
    return shapes


def make_cameras(views: int, size: int, seed: int, lens: Lens = PINHOLE) -> list[Camera]:
    """Place cameras around the scene, each looking at its middle from a different height and distance.

    Args:
      views: number of cameras.
      size: image size in pixels.
      seed: chooses the deviations from the orbit.
      lens: of all of them.

    Returns:
      The cameras, in order of their angle.
    """
    rng = np.random.default_rng([seed, 1])
    focal = float(0.5 * size / np.tan(0.5 * FIELD_OF_VIEW))
    cameras = []
    for i in range(views):
        azimuth = 2 * np.pi * (i + rng.uniform(-0.2, 0.2)) / views
        elevation = np.radians(30 + 14 * np.sin(2.4 * i) + rng.uniform(-3, 3))
        distance = rng.uniform(4.0, 4.7)
        outward = np.array(
            [np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), np.sin(elevation)]
        )
        target = np.asarray(TARGET) + rng.uniform(-0.15, 0.15, 3)
        cameras.append(Camera(_look_at(np.asarray(TARGET) + distance * outward, target), focal, size, lens))
    return cameras


def pixel_rays(camera: Camera, pixels: Array) -> tuple[Array, Array]:
    """Cast rays through positions of the image.

    Args:
      camera: the camera.
      pixels: [R, 2] x and y in pixels; the first pixel's centre is (.5, .5).

    Returns:
      Origins [1, 3] and directions [R, 3], scaled so that the ray parameter is the camera-space depth.
    """
    middle = 0.5 * camera.size
    K = np.array([[camera.focal, 0.0, middle], [0.0, camera.focal, middle], [0.0, 0.0, 1.0]])
    local = optics.pixel_rays(pixels, K, camera.lens) * [1.0, -1.0, -1.0]
    rotation = camera.camera_to_world[:3, :3]
    return camera.camera_to_world[None, :3, 3], local @ rotation.T


def photograph(shapes: list[Shape], camera: Camera) -> NDArray[np.uint8]:
    """Render one picture with 2x2 samples a pixel and a soft sun.

    Args:
      shapes: the scene.
      camera: the camera.

    Returns:
      [size, size, 3] gamma-encoded 8-bit colours.
    """
    linear = np.zeros((camera.size**2, 3))
    suns = raytrace.sun_directions()
    for i, (x, y) in enumerate((x, y) for y in SUBPIXELS for x in SUBPIXELS):
        origins, directions = pixel_rays(camera, _pixel_grid(camera.size, x, y))
        hits = raytrace.trace(shapes, origins, directions)
        linear += raytrace.shade(shapes, hits, directions, sun=suns[i]) / len(suns)
    return _encode(linear).reshape(camera.size, camera.size, 3)


def depth_map(shapes: list[Shape], camera: Camera) -> NDArray[np.float32]:
    """Measure the camera-space z of the surface behind each pixel's centre.

    Args:
      shapes: the scene.
      camera: the camera.

    Returns:
      [size, size] depths in world units.
    """
    hits = raytrace.trace(shapes, *pixel_rays(camera, _pixel_grid(camera.size, 0.5, 0.5)))
    return hits.t.astype(np.float32).reshape(camera.size, camera.size)


def surface_points(shapes: list[Shape], cameras: list[Camera], *, count: int, seed: int) -> PointCloud:
    """Sample points of the surfaces that the cameras see, with their colours, highlights left out.

    Args:
      shapes: the scene.
      cameras: who looks.
      count: number of points.
      seed: chooses them.

    Returns:
      Positions in world units and gamma-encoded colours.
    """
    rng = np.random.default_rng([seed, 2])
    owner = rng.integers(len(cameras), size=count)
    cloud = PointCloud(np.zeros((count, 3), np.float32), np.zeros((count, 3), np.float32))
    for i, camera in enumerate(cameras):
        rows = owner == i
        origins, directions = pixel_rays(camera, rng.uniform(0, camera.size, (int(rows.sum()), 2)))
        hits = raytrace.trace(shapes, origins, directions)
        suns = raytrace.sun_directions()
        linear = [raytrace.shade(shapes, hits, directions, sun=sun, specular=False) for sun in suns]
        cloud.points[rows] = hits.points
        cloud.colors[rows] = _encode(np.mean(linear, axis=0)) / 255.0
    return cloud


def _write(folder: Path, size: int, views: int, seed: int, depths: bool, distortion: tuple[float, ...]) -> None:
    """Fill an existing, empty folder."""
    lens = Lens(radial=distortion[:2], tangential=distortion[2:]) if any(distortion) else PINHOLE
    shapes, cameras = make_scene(seed), make_cameras(views, size, seed, lens)
    (folder / "images").mkdir()
    frames = []
    for i, camera in enumerate(cameras):
        name = f"images/{i:04d}.png"
        Image.fromarray(photograph(shapes, camera)).save(folder / name)
        frames.append({"file_path": name, "transform_matrix": camera.camera_to_world.tolist()})
        if depths:
            (folder / "depth").mkdir(exist_ok=True)
            frames[-1]["depth_file_path"] = f"depth/{i:04d}.npy"
            np.save(folder / frames[-1]["depth_file_path"], depth_map(shapes, camera))
    save_points(folder / "points3d.ply", surface_points(shapes, cameras, count=NUM_POINTS, seed=seed))
    focal = cameras[0].focal
    transforms = {
        "camera_angle_x": float(FIELD_OF_VIEW),
        "fl_x": focal,
        "fl_y": focal,
        "cx": size / 2,
        "cy": size / 2,
        "w": size,
        "h": size,
        "ply_file_path": "points3d.ply",
        "depth_unit_scale_factor": 1.0,
        **(dict(zip(DISTORTION_KEYS, distortion, strict=True)) if any(distortion) else {}),
        "frames": frames,
    }
    (folder / "transforms.json").write_text(json.dumps(transforms, indent=2) + "\n", encoding="utf-8")


def _look_at(position: Array, target: Array) -> Array:
    """Build the OpenGL camera-to-world matrix of an upright camera: [4, 4]."""
    backward = (position - target) / np.linalg.norm(position - target)
    right = np.cross([0.0, 0.0, 1.0], backward)
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3] = np.stack([right, np.cross(backward, right), backward, position], axis=1)
    return pose


def _pixel_grid(size: int, x: float, y: float) -> Array:
    """List the position (x, y) within every pixel, row by row: [size * size, 2]."""
    rows, columns = np.divmod(np.arange(size * size), size)
    return np.stack([columns + x, rows + y], axis=1)


def _encode(linear: Array) -> NDArray[np.uint8]:
    """Encode linear colours for display."""
    return np.round(255 * np.clip(linear, 0, 1) ** (1 / const.GAMMA)).astype(np.uint8)
