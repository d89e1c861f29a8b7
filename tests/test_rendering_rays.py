"""The pipeline with splats evaluated along rays."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from jaxsplat import Lens, ScreenProbe, Shutter, rasterization
from jaxsplat.cameras import camera_rays
from tests.data import shared
from tests.scenes import HEIGHT, WIDTH, random_scene
from tests.tolerances import GRADIENT, PICTURE, SINGLE

SIZE = {"width": WIDTH, "height": HEIGHT}


def colored(n=60, cameras=2, seed=0):
    scene = random_scene(n, cameras=cameras, seed=seed)
    return scene, jnp.asarray(np.random.default_rng(seed).uniform(0, 1, (n, 3)), jnp.float32)


def render(scene, colors, **settings):
    settings = {**SIZE, "evaluate": "ray", **settings}
    return rasterization(*scene[:4], colors, scene.viewmats, scene.Ks, **settings)


def test_golden_picture_and_gradients_through_poses():
    with np.load(shared("golden/world_rays.npz")) as file:
        case = dict(file)
    names = ("means", "quats", "scales", "opacities", "colors", "viewmats")
    floats = [jnp.asarray(case[name], jnp.float32) for name in names]

    def loss(*floats):
        out = rasterization(
            *floats, jnp.asarray(case["Ks"]), width=int(case["width"]), height=int(case["height"]), evaluate="ray",
            backgrounds=jnp.asarray(case["backgrounds"], jnp.float32),
        )  # fmt: skip
        return jnp.sum(out.colors * case["cotangent_render"]) + jnp.sum(
            out.alphas * case["cotangent_alphas"]
        ), out.colors

    (_, picture), gradients = jax.jit(jax.value_and_grad(loss, range(6), has_aux=True))(*floats)
    error = np.abs(np.asarray(picture) - case["render"])
    assert error.max() <= PICTURE.worst and np.mean(error <= PICTURE.usual) >= PICTURE.share
    for name, gradient in zip(names[:-1], gradients[:-1], strict=True):
        wanted = case[f"grad_{name}"]
        assert np.linalg.norm(gradient - wanted) <= GRADIENT * np.linalg.norm(wanted), name
    # Of the view matrices, what moves of the camera say: the file transposes rotations where the library inverts.
    rng = np.random.default_rng(0)
    turn = rng.normal(size=(20, 3, 1, 3))
    twist = np.cross(turn, np.eye(3)).swapaxes(-1, -2) @ case["viewmats"][:, :3]
    twist[..., 3] += rng.normal(size=(20, 3, 3))
    got, wanted = (np.sum(twist * v, (-1, -2)) for v in (np.asarray(gradients[-1])[:, :3], case["grad_viewmats"]))
    assert np.linalg.norm(got - wanted) <= GRADIENT * np.linalg.norm(wanted)


def test_an_orthographic_camera_sees_what_the_ellipses_show():
    """There the linearisation is exact."""
    scene, colors = colored()
    rays, ellipses = (
        render(scene, colors, camera_model="ortho", eps2d=1e-6, evaluate=evaluate) for evaluate in ("ray", "ellipse")
    )
    assert float(rays.alphas.mean()) > 0.05
    np.testing.assert_allclose(rays.colors, ellipses.colors, atol=PICTURE.worst)
    assert np.mean(np.abs(np.asarray(rays.colors - ellipses.colors)) <= PICTURE.usual) >= PICTURE.share


def test_a_long_lens_sees_what_the_ellipses_show():
    scene, colors = colored()
    far = scene._replace(
        viewmats=scene.viewmats.at[:, 2, 3].set(400.0), Ks=scene.Ks * jnp.array([[[100.0], [100], [1]]])
    )
    far = far._replace(Ks=far.Ks.at[:, :2, 2].set(scene.Ks[:, :2, 2]))
    rays, ellipses = (render(far, colors, evaluate=evaluate, eps2d=1e-6) for evaluate in ("ray", "ellipse"))
    assert float(rays.alphas.mean()) > 0.05
    # Up to the share of the distance that the scene is deep.
    np.testing.assert_allclose(rays.colors, ellipses.colors, atol=5e-2)
    assert np.mean(np.abs(np.asarray(rays.colors - ellipses.colors))) < 1e-3


@pytest.mark.parametrize("mode", ["RGB", "D", "ED", "RGB+D", "RGB+ED"])
def test_depth_is_the_distance_along_the_ray(mode):
    scene, colors = colored()
    out, whole = (jax.jit(functools.partial(render, render_mode=m))(scene, colors) for m in (mode, "RGB+D"))
    rgb, depth = whole.colors[..., :3], whole.colors[..., 3:]
    if "ED" in mode:
        depth = depth / jnp.maximum(whole.alphas, 1e-10)
        hit = np.asarray(whole.alphas) > 0.5
        assert np.all(np.abs(np.asarray(depth)[hit] - 4) < 2)
    parts = [p for p, there in ((rgb, "RGB" in mode), (depth, "D" in mode)) if there]
    np.testing.assert_allclose(out.colors, jnp.concatenate(parts, -1), rtol=SINGLE, atol=SINGLE)
    np.testing.assert_array_equal(out.alphas, whole.alphas)
    assert out.info is not None and (out.info.normals is None) == (mode == "RGB")


def test_normals_face_the_camera_and_are_the_shortest_axes():
    scene, colors = colored()
    flat = scene._replace(quats=jnp.tile(jnp.array([1.0, 0, 0, 0]), (60, 1)), scales=scene.scales.at[:, 1].set(1e-3))
    out = render(flat, colors, render_mode="RGB+D")
    assert out.info is not None and out.info.normals is not None
    rays = camera_rays(flat.viewmats, flat.Ks, **SIZE)
    facing = -np.sign(np.asarray(rays[..., 4:5])) * np.array([0, 1, 0])
    np.testing.assert_allclose(out.info.normals, facing * np.asarray(out.alphas), atol=1e-5)


def test_gradients_to_poses_and_intrinsics_agree_with_the_reference_through_the_rays():
    scene, colors = colored(cameras=1)

    def loss(viewmats, Ks, backend):
        out = render(scene._replace(viewmats=viewmats, Ks=Ks), colors, render_mode="RGB+D", backend=backend)
        assert out.info is not None
        return jnp.sum(out.colors**2) + jnp.sum(out.info.normals**2)

    got, wanted = (
        jax.jit(jax.grad(functools.partial(loss, backend=backend), (0, 1)))(scene.viewmats, scene.Ks)
        for backend in ("native", "reference")
    )
    for g, w in zip(got, wanted, strict=True):
        assert float(jnp.linalg.norm(w)) > 0
        assert np.linalg.norm(g - w) <= GRADIENT * np.linalg.norm(w)


@pytest.mark.parametrize("camera_model", ["pinhole", Lens(radial=(-0.1,))])
def test_shard_map_over_cameras_equals_one_device(camera_model):
    scene, colors = colored(cameras=4)
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("x")

    def loss(means, viewmats, Ks):
        moved = scene._replace(means=means, viewmats=viewmats, Ks=Ks)
        return jnp.sum(render(moved, colors, camera_model=camera_model).colors ** 2)

    sharded = jax.shard_map(
        lambda *arrays: jax.lax.psum(loss(*arrays), "x"),
        mesh=mesh,
        in_specs=(PartitionSpec(), spec, spec),
        out_specs=PartitionSpec(),
    )
    arrays = scene.means, scene.viewmats, scene.Ks
    got, wanted = (jax.jit(jax.value_and_grad(f, (0, 1)))(*arrays) for f in (sharded, loss))
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-4)
    for g, w in zip(got[1], wanted[1], strict=True):
        assert np.linalg.norm(g - w) <= GRADIENT * np.linalg.norm(w)


def test_a_shutter_turns_the_rays_and_has_gradients():
    scene, colors = colored(cameras=1)
    end = scene.viewmats.at[:, 0, 3].add(0.4)
    rays = camera_rays(scene.viewmats, scene.Ks, shutter=Shutter(end), **SIZE)
    picture, given, still = (
        jax.jit(functools.partial(render, **settings))(scene, colors).colors
        for settings in ({"shutter": Shutter(end)}, {"shutter": Shutter(end), "rays": rays}, {})
    )
    np.testing.assert_allclose(picture, given, atol=1e-5)
    assert float(jnp.abs(picture - still).max()) > 0.1
    slope = jax.jit(
        jax.grad(lambda x: jnp.sum(render(scene, colors, shutter=Shutter(end.at[0, 0, 3].set(x))).colors ** 2))
    )
    assert abs(float(slope(jnp.float32(0.3)))) > 1e-2


def test_given_rays_harmonics_and_chunks_of_cameras():
    scene, _ = colored(cameras=3)
    coefficients = jnp.asarray(np.random.default_rng(1).normal(size=(60, 4, 3)), jnp.float32)
    rays = camera_rays(scene.viewmats, scene.Ks, **SIZE)
    plain = jax.jit(functools.partial(render, sh_degree=1))(scene, coefficients)
    given = jax.jit(functools.partial(render, sh_degree=1, camera_chunk=2))(scene, coefficients, rays=rays)
    np.testing.assert_allclose(given.colors, plain.colors, atol=1e-5)
    moved = render(scene, coefficients, sh_degree=1, rays=rays.at[..., 0].add(0.3))
    assert float(jnp.abs(moved.colors - plain.colors).max()) > 0.1


def test_new_intrinsics_and_poses_do_not_compile_anew():
    scene, colors = colored()
    count = 0

    @jax.jit
    def picture(viewmats, Ks):
        nonlocal count
        count += 1
        return render(scene._replace(viewmats=viewmats, Ks=Ks), colors).colors

    picture(scene.viewmats, scene.Ks)
    picture(scene.viewmats.at[:, 2, 3].add(0.1), scene.Ks * 1.01)
    assert count == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluate": "rays"}, "evaluate must be one of 'ellipse', 'ray', got 'rays'"),
        ({"antialiased": True}, 'antialiased is for evaluate="ellipse", got "ray"'),
        ({"probe": ScreenProbe(jnp.zeros((2, 60, 2)), None)}, 'probe is for evaluate="ellipse", got "ray"'),
        ({"evaluate": "ellipse", "rays": jnp.zeros((2, HEIGHT, WIDTH, 6))}, 'rays are for evaluate="ray", got'),
        ({"rays": jnp.zeros((2, 5, 5, 6))}, rf"rays must have shape \[..., C, {HEIGHT}, {WIDTH}, 6\].* got \[2, 5"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together_are_named(settings, message):
    scene, colors = colored()
    with pytest.raises(ValueError, match=message):
        render(scene, colors, **settings)
