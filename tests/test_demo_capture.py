"""The demo capture against closed forms and against itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxsplat.data import demo, raytrace

PLAIN = raytrace.Material((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), "checker")


def _camera_at(distance: float, size: int = 64) -> demo.Camera:
    """A camera on the x axis that looks at the origin."""
    pose = np.array([[0.0, 0, 1, distance], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]])
    return demo.Camera(pose, focal=1.3 * size, size=size)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "capture"
    demo.make_demo_capture(folder, size=48, views=6, seed=3, depths=True)
    return folder


def _read_points(path: Path) -> tuple[np.ndarray, np.ndarray]:
    header, body = path.read_bytes().split(b"end_header\n", 1)
    assert b"element vertex 4000\n" in header
    rows = np.frombuffer(body, [("position", "<f4", 3), ("color", "u1", 3)])
    return rows["position"].astype(np.float64), rows["color"]


def test_depth_of_a_sphere_is_that_of_the_closed_form() -> None:
    camera = _camera_at(4.0)
    depth = demo.depth_map([raytrace.Sphere((0.0, 0.0, 0.0), 0.8, PLAIN)], camera)
    # On a ray (1, u, v) in camera axes with s = u^2 + v^2: z = (d - sqrt(d^2 - (1 + s)(d^2 - r^2))) / (1 + s).
    offsets = (np.arange(64) + 0.5 - 32) / camera.focal
    s = offsets[:, None] ** 2 + offsets[None, :] ** 2
    discriminant = 16 - (1 + s) * (16 - 0.64)
    expected = (4 - np.sqrt(np.maximum(discriminant, 0))) / (1 + s)
    np.testing.assert_array_equal(np.isfinite(depth), discriminant >= 0)
    np.testing.assert_allclose(depth[discriminant >= 0], expected[discriminant >= 0], rtol=1e-6)
    assert abs(depth[32, 32] - 3.2) < 1e-3


def test_depth_of_a_turned_box_is_that_of_its_front_edge() -> None:
    # A square column turned by 45 degrees shows its edge, at half its diagonal from the axis; u steps along a face.
    camera = _camera_at(3.0)
    depth = demo.depth_map([raytrace.Box((0.0, 0.0, 0.0), (0.5, 0.5, 2.0), np.pi / 4, PLAIN)], camera)
    u = np.abs(np.arange(64) + 0.5 - 32) / camera.focal
    expected = (3 - np.sqrt(0.5)) / (1 - u)  # the face x + |y| = sqrt(.5), with x = 3 - z and y = u z
    seen = u * expected < np.sqrt(0.5)
    np.testing.assert_allclose(depth[10][seen], expected[seen], rtol=1e-6)
    assert not np.isfinite(depth[10][~seen]).any()


def test_dome_is_seen_from_inside() -> None:
    camera = _camera_at(0.0)
    depth = demo.depth_map([raytrace.Sphere((0.0, 0.0, 0.0), 5.0, PLAIN)], camera)
    assert abs(depth[32, 32] - 5.0) < 1e-3


def test_normals_face_the_viewer_and_shadows_follow_the_sun() -> None:
    floor = raytrace.Box((0.0, 0.0, -0.1), (9.0, 9.0, 0.1), 0.4, PLAIN)
    ball = raytrace.Sphere((0.0, 0.0, 2.0), 0.5, PLAIN)
    sun = raytrace.SUN_DIRECTION
    center = -2.0 / sun[2] * sun[:2]  # where the ball's shadow falls
    # Across the sun's direction the shadow is as wide as the ball.
    across = np.array([-sun[1], sun[0]]) / np.hypot(sun[0], sun[1])
    spots = np.stack([center + k * across for k in (0.0, 0.48, 0.52, -0.48, -0.52)])
    origins = np.concatenate([spots, np.full((5, 1), 1.0)], axis=1)
    down = np.broadcast_to([0.0, 0.0, -1.0], origins.shape)
    hits = raytrace.trace([floor, ball], origins, down)
    np.testing.assert_allclose(hits.normals, -down, atol=1e-12)
    np.testing.assert_allclose(hits.points[:, 2], 0.0, atol=1e-12)
    color = raytrace.shade([floor, ball], hits, down, sun=sun)
    dark = 0.5 * raytrace.SKY_AMBIENT
    bright = dark + 0.5 * sun[2] * raytrace.SUN_COLOR
    expected = np.stack([dark, dark, bright, dark, bright])
    np.testing.assert_allclose(color, expected, atol=1e-12)


def test_objects_of_the_scene_do_not_overlap() -> None:
    for seed in range(20):
        pedestal, ball, *others = demo.make_scene(seed)[2:]
        assert ball.center[2] - _widths(ball)[1] == pytest.approx(pedestal.center[2] + _widths(pedestal)[1])
        for i, a in enumerate([pedestal, *others]):
            assert a.center[2] == pytest.approx(_widths(a)[1])  # stands on the slab
            for b in others[i:]:
                distance = np.linalg.norm(np.subtract(a.center, b.center)[:2])
                assert distance > _widths(a)[0] + _widths(b)[0], (seed, a, b)


def _widths(shape: raytrace.Shape) -> tuple[float, float]:
    """Radius seen from above, and half the height."""
    if isinstance(shape, raytrace.Sphere):
        return shape.radius, shape.radius
    return float(np.hypot(*shape.half[:2])), shape.half[2]


def test_transforms_describe_rigid_upright_poses(capture: Path) -> None:
    transforms = json.loads((capture / "transforms.json").read_text())
    assert (transforms["w"], transforms["h"], len(transforms["frames"])) == (48, 48, 6)
    assert transforms["fl_x"] == pytest.approx(24 / np.tan(transforms["camera_angle_x"] / 2))
    for frame in transforms["frames"]:
        pose = np.array(frame["transform_matrix"])
        np.testing.assert_allclose(pose[:3, :3] @ pose[:3, :3].T, np.eye(3), atol=1e-12)
        assert np.linalg.det(pose[:3, :3]) == pytest.approx(1)
        np.testing.assert_array_equal(pose[3], [0, 0, 0, 1])
        assert pose[2, 1] > 0  # the image's up points up
        # The camera looks along -z of its axes at the middle of the scene.
        towards = np.asarray(demo.TARGET) - pose[:3, 3]
        assert -pose[:3, 2] @ towards / np.linalg.norm(towards) > 0.99
        with Image.open(capture / frame["file_path"]) as image:
            assert image.size == (48, 48) and image.mode == "RGB"


def test_points_reproject_onto_their_depth_and_color(capture: Path) -> None:
    transforms = json.loads((capture / "transforms.json").read_text())
    points, colors = _read_points(capture / transforms["ply_file_path"])
    errors, visible = [], 0
    for i, frame in enumerate(transforms["frames"]):
        local = (points - np.array(frame["transform_matrix"])[:3, 3]) @ np.array(frame["transform_matrix"])[:3, :3]
        local[:, 1:] *= -1  # OpenGL to OpenCV axes
        front = local[:, 2] > 0.01
        xy = transforms["fl_x"] * local[front, :2] / local[front, 2:] + transforms["cx"]
        inside = ((xy >= 0) & (xy < 48)).all(axis=1)
        x, y = xy[inside].astype(int).T
        depth = np.load(capture / f"depth/{i:04d}.npy")[y, x]
        near = np.abs(depth / local[front][inside, 2] - 1) < 0.02
        with Image.open(capture / frame["file_path"]) as image:
            pixels = np.asarray(image)[y, x]
        errors.append(np.abs(pixels[near] - colors[front][inside][near].astype(float)).max(axis=1))
        visible += int(near.sum())
    assert visible > len(points)  # each is seen by a camera of its own, many by others too
    error = np.concatenate(errors)
    assert np.median(error) < 8 and np.mean(error < 30) > 0.7  # the rest lies on edges of the pattern


def test_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path, capture: Path) -> None:
    demo.make_demo_capture(tmp_path / "same", size=48, views=6, seed=3, depths=True)
    demo.make_demo_capture(tmp_path / "other", size=48, views=6, seed=4, depths=True)
    names = sorted(path.relative_to(capture) for path in capture.rglob("*") if path.is_file())
    assert len(names) == 6 * 2 + 2
    for name in names:
        assert (tmp_path / "same" / name).read_bytes() == (capture / name).read_bytes(), name
        assert (tmp_path / "other" / name).read_bytes() != (capture / name).read_bytes(), name


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(demo, "save_points", full_disk)
    with pytest.raises(OSError, match="No space left"):
        demo.make_demo_capture(tmp_path / "capture", size=8, views=1)
    assert list(tmp_path.iterdir()) == []


def test_existing_folder_and_bad_sizes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(FileExistsError, match="already exists"):
        demo.make_demo_capture(tmp_path / "full", size=8, views=1)
    with pytest.raises(ValueError, match="got size=4 and views=1"):
        demo.make_demo_capture(tmp_path / "new", size=4, views=1)
    (tmp_path / "empty").mkdir()
    demo.make_demo_capture(tmp_path / "empty", size=8, views=1)
    assert (tmp_path / "empty" / "transforms.json").exists()
