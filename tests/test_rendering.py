"""The pipeline: golden files with the native kernels, transforms of JAX, batches, memory, and bad input."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, PartitionSpec

from jaxsplat import Blend, Lens, ScreenProbe, Shutter, Unscented, intersect_tiles, rasterization
from tests import golden
from tests.scenes import HEIGHT, WIDTH, random_scene
from tests.tolerances import GRADIENT, PICTURE, SINGLE

SIZE = {"width": WIDTH, "height": HEIGHT}


def colored(n=60, cameras=3, seed=0, channels=3):
    scene = random_scene(n, cameras=cameras, seed=seed)
    return scene, jnp.asarray(np.random.default_rng(seed).uniform(0, 1, (n, channels)), jnp.float32)


def gradient(f, argnums=0):
    """Compiled: one operation at a time takes longer than compiling the whole."""
    return jax.jit(jax.grad(f, argnums))


def render(scene, colors, **settings):
    return rasterization(*scene[:4], colors, scene.viewmats, scene.Ks, **{**SIZE, **settings})


def relative(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def render_golden(means, quats, scales, opacities, colors, viewmats, Ks, backgrounds, case, *, backend):
    output = rasterization(
        means, quats, scales, opacities, colors, viewmats, Ks, width=case.width, height=case.height,
        tile_size=case.tile_size, sh_degree=case.sh_degree, camera_model=case.camera_model,
        antialiased=case.antialiased, backgrounds=backgrounds, render_mode="RGB+D", backend=backend,
    )  # fmt: skip
    return output.colors[..., :-1], output.colors[..., -1:], output.alphas


@pytest.mark.parametrize("name", golden.NAMES)
def test_native_pipeline_reproduces_the_golden_picture_and_every_gradient(name):
    golden.check(golden.load(name), functools.partial(render_golden, backend="native"))


@pytest.mark.parametrize("evaluate", ["ellipse", "ray"])
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_info_counts_visible_splats_and_tile_intersections(evaluate, backend):
    scene, colors = colored(30)  # all in front of the cameras
    scene = scene._replace(opacities=scene.opacities.at[:5].set(1e-3))
    info = jax.jit(lambda: render(scene, colors, evaluate=evaluate, backend=backend).info)()
    np.testing.assert_array_equal(info.visible_count, [25, 25, 25])
    p = info.projected
    tiles = intersect_tiles(
        p.means2d, p.radii, p.depths, conics=p.conics, opacities=jnp.broadcast_to(info.opacities, p.depths.shape),
        capacity=400, backend=backend, **SIZE,
    )  # fmt: skip
    np.testing.assert_array_equal(info.list_count, tiles.count)
    assert info.list_count.dtype == info.visible_count.dtype == jnp.int32


@pytest.mark.parametrize("name", ["pinhole_sh2", "ortho_rgb"])
def test_reference_pipeline_reproduces_golden_files_in_float64(name):
    golden.check(golden.load(name), functools.partial(render_golden, backend="reference"), double=True)


def test_a_lens_without_distortion_renders_as_a_pinhole():
    scene, colors = colored()
    scene = scene._replace(Ks=scene.Ks.at[:, 0, 1].set(0.0))  # of a pinhole, the linearisation leaves skew out
    plain, lens = render(scene, colors), render(scene, colors, camera_model=Lens(radial=(0.0,)))
    assert np.mean(np.abs(lens.colors - plain.colors) <= PICTURE.usual) >= PICTURE.share


def test_cameras_with_lenses_and_shutters_render_in_chunks_as_the_whole():
    scene, colors = colored()
    end = scene.viewmats.at[:, 0, 3].add(0.3)
    lens = Lens(radial=jnp.array([[0.1], [-0.1], [0.0]]), tangential=(0.01, 0.02))
    settings = {"camera_model": lens, "projection": "unscented", "shutter": Shutter(end)}
    whole, parts = (render(scene, colors, camera_chunk=chunk, **settings) for chunk in (None, 2))
    np.testing.assert_allclose(parts.colors, whole.colors, atol=1e-6)
    still = render(scene, colors, camera_model=lens, projection=Unscented())
    # The first line is where the camera begins: only what reaches further down differs there.
    first, other = (np.abs(np.asarray(whole.colors - still.colors))[:, rows].mean() for rows in (0, slice(20, None)))
    assert first < 0.2 * other


def test_projections_that_do_not_fit_are_refused():
    scene, colors = colored()
    with pytest.raises(ValueError, match='shutter needs projection="unscented", got "ewa"'):
        render(scene, colors, shutter=Shutter(scene.viewmats), projection="ewa")
    with pytest.raises(ValueError, match="projection must be one of 'ewa', 'unscented', got 'linear'"):
        render(scene, colors, projection="linear")
    with pytest.raises(ValueError, match="the unscented projection needs quats and scales, got covars"):
        render(scene._replace(quats=None, scales=None), colors, projection="unscented", covars=jnp.ones((60, 6)))


def test_depth_modes():
    scene, colors = colored()
    by_mode = {mode: render(scene, colors, render_mode=mode) for mode in ("RGB", "D", "ED", "RGB+D", "RGB+ED")}
    rgb, depth, alpha = by_mode["RGB"].colors, by_mode["D"].colors, by_mode["D"].alphas
    np.testing.assert_array_equal(by_mode["RGB+D"].colors, jnp.concatenate([rgb, depth], -1))
    expected = np.where(alpha > 0, depth / np.maximum(alpha, 1e-10), 0)
    np.testing.assert_allclose(by_mode["ED"].colors, expected, rtol=1e-6)
    np.testing.assert_array_equal(by_mode["RGB+ED"].colors, jnp.concatenate([rgb, by_mode["ED"].colors], -1))
    # The mean depth of what is seen lies between the nearest and the farthest splat.
    seen = np.asarray(by_mode["ED"].colors)[np.asarray(alpha) > 0]
    depths = np.asarray(by_mode["D"].info.projected.depths)
    assert depths[depths > 0].min() * 0.999 <= seen.min() and seen.max() <= depths.max() * 1.001


def test_depth_channel_has_background_zero():
    scene, colors = colored(5)
    output = render(scene, colors, render_mode="RGB+D", backgrounds=jnp.ones((3, 3)))
    empty = np.asarray(output.alphas[..., 0]) == 0
    assert empty.any()
    assert (np.asarray(output.colors)[empty] == [1, 1, 1, 0]).all()


def test_covariances_equal_quaternions_and_scales():
    scene, colors = colored()
    from jaxsplat import quat_scale_to_covar_preci

    covars = quat_scale_to_covar_preci(scene.quats, scene.scales).covars
    a = render(scene, colors)
    b = render(scene._replace(quats=None, scales=None), colors, covars=covars)
    np.testing.assert_allclose(a.colors, b.colors, atol=2e-4)


def test_sh_colors_are_those_of_each_camera():
    scene, _ = colored()
    coeffs = jnp.asarray(np.random.default_rng(1).normal(size=(60, 16, 3)), jnp.float32)
    together = render(scene, coeffs, sh_degree=3)
    for c in range(3):
        alone = render(scene._replace(viewmats=scene.viewmats[c : c + 1], Ks=scene.Ks[c : c + 1]), coeffs, sh_degree=3)
        np.testing.assert_array_equal(together.colors[c], alone.colors[0])


def loss(scene, colors, weight, **settings):
    output = render(scene, colors, **settings)
    return jnp.sum(output.colors * weight) + jnp.sum(output.alphas * weight[..., :1])


def weight_like(shape, seed=3):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


@functools.cache
def looped():
    """Values and gradients of five scenes of two cameras each, one after another."""
    scenes = [colored(30, cameras=2, seed=s) for s in range(5)]
    weights = [weight_like((2, HEIGHT, WIDTH, 3), s) for s in range(5)]
    values = [render(*s).colors for s in scenes]
    compiled = gradient(loss, (0, 1))
    gradients = [compiled(*s, w) for s, w in zip(scenes, weights, strict=True)]
    return scenes, jnp.stack(weights), jnp.stack(values), jax.tree.map(lambda *x: jnp.stack(x), *gradients)


def stacked(scenes):
    return jax.tree.map(lambda *x: jnp.stack(x), *scenes)


def test_batch_axes_equal_the_loop():
    scenes, weights, values, gradients = looped()
    scene, colors = stacked(scenes)
    np.testing.assert_array_equal(render(scene, colors).colors, values)
    got = gradient(lambda s, c: loss(s, c, weights), (0, 1))(scene, colors)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(gradients), strict=True):
        assert relative(g, w) <= SINGLE


def test_vmap_of_grad_and_grad_of_vmap_equal_the_loop():
    scenes, weights, values, gradients = looped()
    batch = stacked(scenes)
    np.testing.assert_array_equal(jax.vmap(lambda s: render(*s).colors)(batch), values)
    vmap_of_grad = jax.jit(jax.vmap(lambda s, w: jax.grad(lambda s: loss(*s, w))(s)))(batch, weights)
    grad_of_vmap = jax.jit(jax.grad(lambda s: jnp.sum(jax.vmap(lambda s, w: loss(*s, w))(s, weights))))(batch)
    for got in (vmap_of_grad, grad_of_vmap):
        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(gradients), strict=True):
            assert relative(g, w) <= SINGLE


def test_nested_vmap_over_scenes_and_cameras_with_shared_splats():
    scene, colors = colored(cameras=4)
    moved = jnp.stack([scene.means, scene.means + 0.1])

    def one(means, viewmat, K, weight):
        return loss(scene._replace(means=means, viewmats=viewmat[None], Ks=K[None]), colors, weight[None])

    weight = weight_like((4, HEIGHT, WIDTH, 3))
    cameras = jax.vmap(one, in_axes=(None, 0, 0, 0))
    nested = jax.vmap(cameras, in_axes=(0, None, None, None))
    got = jax.jit(jax.grad(lambda m: jnp.sum(nested(m, scene.viewmats, scene.Ks, weight))))(moved)
    for i in range(2):
        want = gradient(lambda m: loss(scene._replace(means=m), colors, weight))(moved[i])
        assert relative(got[i], want) <= SINGLE


def test_jacrev_equals_one_gradient_at_a_time():
    scene, colors = colored(20, cameras=1)

    def means_of_channels(means):
        return jnp.mean(render(scene._replace(means=means), colors).colors, (0, 1, 2))

    rows = jnp.stack([gradient(lambda m, k=k: means_of_channels(m)[k])(scene.means) for k in range(3)])
    assert relative(jax.jacrev(means_of_channels)(scene.means), rows) <= SINGLE


@pytest.mark.parametrize("chunk", [1, 2, 5, 7])
@pytest.mark.parametrize("sh", [False, True])
def test_camera_chunks_equal_the_whole(chunk, sh):
    scene, colors = colored(40, cameras=5)
    coeffs = weight_like((40, 9, 3)) if sh else colors
    weight, background = weight_like((5, HEIGHT, WIDTH, 3)), weight_like((5, 3), 8)
    settings = {"sh_degree": 2 if sh else None}
    probe = ScreenProbe(*(jnp.zeros((5, 40, 2)),) * 2)

    def value(scene, colors, background, probe, chunk):
        return loss(scene, colors, weight, backgrounds=background, probe=probe, camera_chunk=chunk, **settings)

    whole = jax.jit(jax.value_and_grad(functools.partial(value, chunk=None), (0, 1, 2, 3)))(
        scene, coeffs, background, probe
    )
    parts = jax.jit(jax.value_and_grad(functools.partial(value, chunk=chunk), (0, 1, 2, 3)))(
        scene, coeffs, background, probe
    )
    for g, w in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
        assert relative(g, w) <= SINGLE
    image = render(scene, coeffs, camera_chunk=chunk, **settings)
    # XLA rounds the projection inside a loop in another order.
    np.testing.assert_allclose(image.colors, render(scene, coeffs, **settings).colors, atol=1e-5)


def test_camera_chunks_split_what_belongs_to_a_camera():
    scene, _ = colored(40, cameras=5)
    settings = {
        "masks": weight_like((5, -(-HEIGHT // 16), -(-WIDTH // 16))) > 0,
        "near_plane": jnp.linspace(1, 4, 5), "far_plane": jnp.float32(5),
    }  # fmt: skip
    per_camera = weight_like((5, 40, 3))
    whole, parts = (render(scene, per_camera, camera_chunk=chunk, **settings) for chunk in (None, 2))
    np.testing.assert_allclose(whole.colors, parts.colors, atol=1e-5)
    np.testing.assert_allclose(whole.alphas, parts.alphas, atol=1e-5)


def test_checkpoint_scan_and_map_give_the_same_gradient():
    scene, colors = colored(cameras=4)
    weight = weight_like((4, HEIGHT, WIDTH, 3))

    def one(means, camera):
        viewmat, K, w = camera
        return loss(scene._replace(means=means, viewmats=viewmat[None], Ks=K[None]), colors, w[None])

    cameras = (scene.viewmats, scene.Ks, weight)
    plain = gradient(lambda m: loss(scene._replace(means=m), colors, weight))(scene.means)
    variants = {
        "scan": lambda m: jax.lax.scan(lambda total, camera: (total + one(m, camera), None), 0.0, cameras)[0],
        "checkpoint": lambda m: jax.checkpoint(lambda m: loss(scene._replace(means=m), colors, weight))(m),
        "map": lambda m: jnp.sum(jax.lax.map(lambda camera: one(m, camera), cameras)),
        "map in batches": lambda m: jnp.sum(jax.lax.map(lambda camera: one(m, camera), cameras, batch_size=3)),
        "scan of checkpoint": lambda m: jax.lax.scan(
            lambda total, camera: (total + jax.checkpoint(one)(m, camera), None), 0.0, cameras
        )[0],
    }
    for name, variant in variants.items():
        assert relative(jax.jit(jax.grad(variant))(scene.means), plain) <= SINGLE, name


def test_new_intrinsics_poses_and_planes_do_not_compile_anew():
    scene, colors = colored()
    traces = []

    @jax.jit
    def f(viewmats, Ks, near):
        traces.append(None)
        return render(scene._replace(viewmats=viewmats, Ks=Ks), colors, near_plane=near).colors

    for k in range(3):
        f(scene.viewmats + 0.01 * k, scene.Ks + k, 0.1 + k)
    assert len(traces) == 1


def test_donated_training_steps_equal_plain_ones():
    scene, colors = colored(cameras=2)
    target = jnp.full((2, HEIGHT, WIDTH, 3), 0.5)
    optimizer = optax.adam(1e-2)

    def step(state):
        colors, moments = state
        value, g = jax.value_and_grad(lambda c: jnp.mean((render(scene, c).colors - target) ** 2))(colors)
        updates, moments = optimizer.update(g, moments)
        return (optax.apply_updates(colors, updates), moments), value

    plain, donated = jax.jit(step), jax.jit(step, donate_argnums=0)
    a = (colors, optimizer.init(colors))
    b = jax.tree.map(jnp.copy, a)
    for _ in range(5):
        a, loss_a = plain(a)
        b, loss_b = donated(b)
        assert float(loss_a) == float(loss_b)
    np.testing.assert_array_equal(a[0], b[0])


def test_export_and_reload_gives_the_same_picture():
    scene, colors = colored(20, cameras=1)
    targets = ("jaxsplat.v1.project_gaussians", "jaxsplat.v1.rasterize_gaussians_3d_forward")
    exported = jax.export.export(
        jax.jit(lambda means, K: render(scene._replace(means=means, Ks=K), colors).colors),
        disabled_checks=[jax.export.DisabledSafetyCheck.custom_call(t) for t in targets],
    )(scene.means, scene.Ks)
    loaded = jax.export.deserialize(exported.serialize())
    np.testing.assert_allclose(loaded.call(scene.means, scene.Ks), render(scene, colors).colors, atol=1e-6)


@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map_over_cameras_equals_one_device(check_vma):
    devices = jax.device_count()
    assert devices >= 4, "conftest.py asks for four fake devices"
    scene, colors = colored(cameras=8)
    weight = weight_like((8, HEIGHT, WIDTH, 3))
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("x")

    def part(means, viewmats, Ks, weight):
        return jax.lax.psum(loss(scene._replace(means=means, viewmats=viewmats, Ks=Ks), colors, weight), "x")

    sharded = jax.shard_map(
        part, mesh=mesh, in_specs=(PartitionSpec(), spec, spec, spec), out_specs=PartitionSpec(), check_vma=check_vma
    )
    value = jax.jit(sharded)(scene.means, scene.viewmats, scene.Ks, weight)
    want, gradients = jax.jit(jax.value_and_grad(lambda m: loss(scene._replace(means=m), colors, weight)))(scene.means)
    np.testing.assert_allclose(value, want, rtol=1e-4, atol=1e-2)
    if check_vma:  # without, the transpose of psum is the caller's business
        got = jax.jit(jax.grad(sharded))(scene.means, scene.viewmats, scene.Ks, weight)
        assert relative(got, gradients) <= SINGLE


def test_probe_through_the_pipeline_is_the_gradient_of_the_screen_position():
    scene, colors = colored(cameras=2)
    zeros = jnp.zeros((2, 60, 2))
    weight = weight_like((2, HEIGHT, WIDTH, 3))
    probe = gradient(lambda p: loss(scene, colors, weight, probe=p))(ScreenProbe(zeros, zeros))
    assert (np.abs(probe.grad) <= np.asarray(probe.absgrad) + 1e-4).all()
    culled = ~(np.asarray(render(scene, colors).info.projected.radii) > 0).all(-1)
    assert float(np.abs(np.asarray(probe.absgrad)[culled]).sum()) == 0
    # Moving the principal point moves every centre.
    moved = gradient(lambda K: loss(scene._replace(Ks=K), colors, weight))(scene.Ks)
    np.testing.assert_allclose(np.sum(probe.grad, 1), moved[:, :2, 2], rtol=1e-2, atol=1e-2)


def test_nothing_visible_gives_background_and_zero_gradients():
    scene, colors = colored()
    behind = scene._replace(viewmats=scene.viewmats.at[:, 2, 3].add(-100))
    background = jnp.tile(jnp.array([[0.1, 0.2, 0.3]]), (3, 1))
    output = render(behind, colors, backgrounds=background)
    np.testing.assert_array_equal(output.alphas, 0)
    np.testing.assert_array_equal(output.colors, jnp.broadcast_to(background[:, None, None], output.colors.shape))
    weight = weight_like(output.colors.shape)
    for g in jax.tree.leaves(gradient(lambda s: loss(s, colors, weight))(behind)):
        np.testing.assert_array_equal(g, 0)


@pytest.mark.parametrize("chunk", [None, 2])
def test_no_cameras_give_no_pictures(chunk):
    scene, colors = colored()
    nobody = scene._replace(viewmats=scene.viewmats[:0], Ks=scene.Ks[:0])
    assert render(nobody, colors, camera_chunk=chunk).colors.shape == (0, HEIGHT, WIDTH, 3)


def test_bad_rows_change_nothing_else_and_get_zero_gradients():
    scene, colors = colored()
    weight = weight_like((3, HEIGHT, WIDTH, 3))
    scene = scene._replace(opacities=scene.opacities.at[:6].set(0.9))
    broken = scene._replace(
        quats=scene.quats.at[0].set(0),
        scales=scene.scales.at[1].set(jnp.inf).at[2, 1].set(jnp.nan),
        means=scene.means.at[3].set(jnp.nan).at[4].set(jnp.inf),
        opacities=scene.opacities.at[5].set(jnp.nan),
    )
    without = scene._replace(opacities=scene.opacities.at[:6].set(0))
    np.testing.assert_array_equal(render(broken, colors).colors, render(without, colors).colors)
    got = gradient(lambda s, c: loss(s, c, weight), (0, 1))(broken, colors)
    want = gradient(lambda s, c: loss(s, c, weight), (0, 1))(without, colors)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(g, w)
    for g in (*got[0][:4], got[1]):
        np.testing.assert_array_equal(g[:6], 0)


def test_native_agrees_with_the_reference_in_float32_for_every_input():
    scene, colors = colored(80)
    weight, background = weight_like((3, HEIGHT, WIDTH, 3)), weight_like((3, 3), 9)

    def gradients(backend):
        return jax.jit(
            gradient(lambda s, c, b: loss(s, c, weight, backgrounds=b, antialiased=True, backend=backend), (0, 1, 2))
        )(scene, colors, background)

    for g, w in zip(*(jax.tree.leaves(gradients(b)) for b in ("native", "reference")), strict=True):
        assert relative(g, w) <= GRADIENT


_MEMORY = """
import resource, sys
sys.path.insert(0, {root!r})
import jax, jax.numpy as jnp, numpy as np
from jaxsplat import rasterization
rng = np.random.default_rng(0)
n, views = 50_000, 1000
means = jnp.asarray(rng.uniform(-1, 1, (n, 3)), jnp.float32)
quats = jnp.asarray(rng.normal(size=(n, 4)), jnp.float32)
scales = jnp.full((n, 3), 0.01)
opacities = jnp.full((n,), 0.5)
colors = jnp.asarray(rng.uniform(size=(n, 3)), jnp.float32)
viewmats = jnp.tile(jnp.eye(4), (views, 1, 1)).at[:, 2, 3].set(jnp.linspace(3, 4, views))
Ks = jnp.tile(jnp.array([[60.0, 0, 32], [0, 60, 32], [0, 0, 1]]), (views, 1, 1))
def render(means, viewmats, Ks, **settings):
    return rasterization(means, quats, scales, opacities, colors, viewmats, Ks, width=64, height=64, **settings)
jax.block_until_ready(render(means, viewmats[:1], Ks[:1]).colors)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{body}
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""


def peak_gib(body):
    """GiB that a program needs on top of JAX itself and the scene."""
    root = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "XLA_FLAGS": ""}
    result = subprocess.run(
        [sys.executable, "-c", _MEMORY.format(root=root, body=body)], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return float(result.stdout)


def test_a_thousand_small_views_in_one_vmapped_call_stay_under_4_gib():
    body = """
one = jax.jit(jax.vmap(lambda v, K: render(means, v[None], K[None]).colors[0]))
assert one(viewmats, Ks).block_until_ready().shape == (views, 64, 64, 3)
"""
    assert peak_gib(body) < 4


def test_a_thousand_small_views_in_chunks_stay_under_1_gib_forward_and_backward():
    body = """
loss = lambda m: jnp.mean(render(m, viewmats, Ks, camera_chunk=50).colors ** 2)
value, gradient = jax.jit(jax.value_and_grad(loss))(means)
assert np.isfinite(value) and np.abs(gradient).max() > 0
"""
    assert peak_gib(body) < 1


def change(**changes):
    scene, colors = colored(5, cameras=2)
    arguments = {**scene._asdict(), "colors": colors, **SIZE, **changes}
    return rasterization(**arguments)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"quats": jnp.zeros((5, 3))}, ValueError, r"rasterization: quats must have shape \[..., N, 4\] with N = 5, got \[5, 3\]"),  # noqa: E501
        ({"viewmats": jnp.zeros((2, 3, 4))}, ValueError, r"viewmats must have shape \[..., C, 4, 4\].*got \[2, 3, 4\]"),
        ({"Ks": jnp.zeros((3, 3, 3))}, ValueError, r"Ks must have shape \[..., C, 3, 3\].*C = 2.* got \[3, 3, 3\]"),
        ({"colors": jnp.zeros((4, 3))}, ValueError, r"colors must have shape \[..., N, D\] with N = 5"),
        ({"colors": jnp.zeros((5, 3), jnp.int8)}, TypeError, "colors must hold floating-point numbers, got int8"),
        ({"colors": jnp.zeros((5, 3, 3)), "sh_degree": 3}, ValueError, "K"),
        ({"sh_degree": 5}, ValueError, "degree must be one of 0, 1, 2, 3, 4, got 5"),
        ({"render_mode": "rgb"}, ValueError, "render_mode must be one of 'RGB', 'D', 'ED', 'RGB\\+D', 'RGB\\+ED', got 'rgb'"),  # noqa: E501
        ({"camera_model": "panorama"}, ValueError, "camera_model must be one of"),
        ({"camera_chunk": 0}, ValueError, "camera_chunk must be at least 1"),
        ({"backgrounds": jnp.zeros((2, 4))}, ValueError, r"backgrounds must have shape \[..., C, D\]"),
        ({"masks": jnp.ones((2, 1, 1), jnp.bool_)}, ValueError, r"masks must have shape \[..., 3, 3\]"),
        ({"blend": Blend(alpha_min=0.5, alpha_max=0.4)}, ValueError, "alpha_min < alpha_max"),
        ({"Ks": jnp.full((2, 3, 3), jnp.nan), "validate": True}, ValueError, "Ks must be finite"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named_with_what_was_expected_and_what_came(changes, error, message):
    with pytest.raises(error, match=message):
        change(**changes)


def test_validation_under_jit_works_through_checkify():
    from jax.experimental import checkify

    scene, colors = colored(5)
    checked = checkify.checkify(jax.jit(lambda m: render(scene._replace(means=m), colors, validate=True).colors))
    assert checked(scene.means)[0].get() is None
    assert "means must be finite" in checked(scene.means.at[2].set(jnp.nan))[0].get()
