"""The native rasterizer along rays against golden file and reference, and against what must hold by itself."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Blend, intersect_tiles, rasterize_gaussians_world
from tests.data import double_precision
from tests.rays import FLOATS, HEIGHT, WIDTH, anywhere, check_golden, ray_scene
from tests.tolerances import GRADIENT, PICTURE, SINGLE


@functools.cache
def compiled(backend, items):
    """Pictures and the gradient of a random linear form of them, in one program."""
    static, arrays = dict(items[0]), items[1]

    def loss(arguments, more):
        output = rasterize_gaussians_world(
            **arguments, **dict(zip(arrays, more, strict=True)), **static, backend=backend
        )
        rng = np.random.default_rng(5)
        leaves = [x for x in jax.tree.leaves(output) if jnp.issubdtype(x.dtype, jnp.floating)]
        return sum(jnp.sum(x * jnp.asarray(rng.normal(size=x.shape), x.dtype)) for x in leaves), output

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


def run(arguments, depths, backend="native", **settings):
    """Pictures and gradients. Settings that are arrays are traced."""
    if "tiles" not in settings and "extents" not in settings:
        settings["extents"] = anywhere(depths)
    static = tuple((k, v) for k, v in settings.items() if isinstance(v, bool | int | Blend))
    arrays = tuple(k for k, v in settings.items() if not isinstance(v, bool | int | Blend))
    (_, output), gradient = compiled(backend, (static, arrays))(arguments, [settings[k] for k in arrays])
    return output, gradient


def assert_same_gradients(got, want, tolerance=GRADIENT):
    for name in want:
        g, w = np.asarray(got[name], np.float64), np.asarray(want[name], np.float64)
        assert np.isfinite(g).all(), name
        assert np.linalg.norm(g - w) <= tolerance * np.linalg.norm(w) + 1e-12, (name, np.linalg.norm(g - w))


def both(scene, **settings):
    """The native kernels and the reference agree on pictures and on every gradient."""
    (got, v_got), (want, v_want) = (run(*scene, backend, **settings) for backend in ("native", "reference"))
    for name, expected in want._asdict().items():
        if expected is None:
            assert getattr(got, name) is None
            continue
        error = np.abs(np.asarray(getattr(got, name)) - np.asarray(expected))
        assert np.mean(error <= PICTURE.usual) >= PICTURE.share, (name, np.mean(error > PICTURE.usual))
        if name != "last_ids":
            assert error.max(initial=0) <= PICTURE.worst * max(np.abs(expected).max(), 1), (name, error.max())
    assert_same_gradients(v_got, v_want)


def assert_same_bits(got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(a, b)


def test_golden_picture_and_every_gradient():
    check_golden("native")


@pytest.mark.parametrize(
    ("channels", "hits", "moving"),
    [(3, False, False), (3, True, False), (5, True, True), (40, False, True), (40, True, False)],
)
def test_pictures_and_gradients_agree_with_the_reference(channels, hits, moving):
    both(ray_scene(channels=channels, moving=moving, seed=channels), hits=hits)


@pytest.mark.parametrize(
    "blend",
    [
        Blend(alpha_max=0.999, alpha_min=0.05),
        Blend(transmittance_min=0.2, blend_last=True),
        Blend(max_contributors=2),
        Blend.rlx(alpha_gradient_max=0.5),
    ],
    ids=str,
)
def test_blend_rules_that_the_ellipses_have(blend):
    both(ray_scene(60), blend=blend, hits=True)


@pytest.mark.parametrize("tile_size", [4, 20])
def test_any_tile_size_and_masks(tile_size):
    arguments, depths = ray_scene()
    tiles = -(-HEIGHT // tile_size), -(-WIDTH // tile_size)
    mask = jnp.ones(tiles, jnp.bool_).at[-1, 0].set(False)
    both((arguments, depths), tile_size=tile_size, masks=mask, hits=True, backgrounds=jnp.array([0.2, 0.5, 0.8]))


def test_depth_limit_hides_what_lies_behind():
    arguments, depths = ray_scene()
    limit = jnp.broadcast_to(jnp.linspace(3.5, 4.5, WIDTH, dtype=jnp.float32), (2, HEIGHT, WIDTH))
    both((arguments, depths), depth_limit=limit)


def test_given_lists_show_the_same_picture():
    arguments, depths = ray_scene()
    extents = anywhere(depths)
    lists = intersect_tiles(
        extents.means2d, 1000 * extents.radii, depths, width=WIDTH, height=HEIGHT, capacity=40 * 4
    )  # fmt: skip
    (got, v_got), (want, v_want) = run(arguments, depths, tiles=lists), run(arguments, depths)
    assert_same_bits((got, v_got), (want, v_want))
    both((arguments, depths), tiles=lists)


def test_outlines_decide_where_a_splat_is_seen_in_blocks_of_four_pixels():
    arguments, depths = ray_scene()
    arguments["opacities"] = jnp.full_like(arguments["opacities"], 0.7)
    extents = anywhere(depths)
    outline = extents._replace(
        means2d=jnp.broadcast_to(jnp.array([9.0, 7.0]), extents.means2d.shape),
        conics=jnp.broadcast_to(jnp.array([1.2, 0.4, 0.8]), extents.conics.shape),
    )
    want = run(arguments, depths, hits=True)[0]
    # Points of each block, as far as its pixels' centres reach.
    y, x = (4 * np.arange(n)[:, None] + np.linspace(0.5, 3.5, 31) - centre for n, centre in ((4, 7), (5, 9)))
    y, x = y[:, None, :, None], x[None, :, None, :]
    touched = np.any(1.2 * x * x + 0.8 * x * y + 0.8 * y * y <= 2 * np.log(255 * 0.7), axis=(2, 3))
    assert 0 < touched.sum() < touched.size
    for tile_size in (4, 16, 20):
        got = run(arguments, depths, extents=outline, hits=True, tile_size=tile_size)[0]
        seen = np.zeros((4, 5), bool)
        for y, x in np.ndindex(seen.shape):
            block = np.s_[:, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4]
            seen[y, x] = got.alphas[block].any()
            for a, b in zip(got, want, strict=True):
                if seen[y, x] and a.ndim > 1:
                    np.testing.assert_allclose(a[block], b[block], atol=1e-5)
        np.testing.assert_array_equal(seen, touched)


def test_the_nearest_splats_that_fit_into_lists_of_a_fixed_capacity_are_drawn():
    arguments, depths = ray_scene()
    extents = anywhere(depths)  # which makes every splat touch all four tiles
    for most in (4 * 40, 4 * 40 - 1, 30):
        output, gradient = run(arguments, depths, max_intersections=most)
        rank = jnp.argsort(jnp.argsort(depths, -1, stable=True), -1)
        nearest = extents._replace(radii=jnp.where((rank < most // 4)[..., None], extents.radii, 0))
        want, want_gradient = run(arguments, depths, extents=nearest)
        np.testing.assert_array_equal(output.list_count, [160, 160])
        assert_same_bits((output.colors, output.alphas, gradient), (want.colors, want.alphas, want_gradient))


def test_flat_splats_have_exact_gradients():
    arguments, depths = ray_scene()
    scales = arguments["scales"] * jnp.array([[[1.0, 1.0, 1e-3]]])
    flat = {**arguments, "scales": scales}
    got = run(flat, depths, hits=True)[1]
    with double_precision():
        exact = {name: jnp.asarray(np.asarray(x), jnp.float64) for name, x in flat.items()}
        want = run(exact, jnp.asarray(np.asarray(depths), jnp.float64), "reference", hits=True)[1]
        want = {name: np.asarray(x) for name, x in want.items()}
    assert_same_gradients(got, want, tolerance=GRADIENT / 4)


def ball(**changes):
    """One ball of radius 0.5 at distance 3 on the axis, seen by one ray straight on and one half a unit beside."""
    arguments = {
        "means": jnp.array([[0.0, 0, 3]]), "quats": jnp.array([[1.0, 0, 0, 0]]), "scales": jnp.full((1, 3), 0.5),
        "opacities": jnp.array([0.8]), "colors": jnp.array([[1.0, 0.5, 0.25]]),
        "rays": jnp.array([[[0.0, 0, 0, 0, 0, 1], [0.5, 0, 0, 0, 0, 1]]]),
    }  # fmt: skip
    return {**arguments, **changes}, jnp.array([3.0])


def test_a_ball_is_hit_where_the_ray_comes_closest():
    output, _ = run(*ball(scales=jnp.array([[0.5, 0.5, 0.4]])), hits=True)
    alphas = 0.8 * np.exp([0, -0.5])
    np.testing.assert_allclose(output.alphas[0, :, 0], alphas, rtol=SINGLE)
    np.testing.assert_allclose(output.colors[0], alphas[:, None] * np.array([1, 0.5, 0.25]), rtol=SINGLE)
    np.testing.assert_allclose(output.distances[0, :, 0], 3 * alphas, rtol=SINGLE)
    # Towards the ray's origin.
    np.testing.assert_allclose(output.normals[0], alphas[:, None] * np.array([0, 0, -1]), rtol=SINGLE)


def test_a_splat_behind_the_origin_adds_nothing():
    rays = jnp.array([[[0.0, 0, 3.1, 0, 0, 1], [0.0, 0, 2.9, 0, 0, 1]]])
    output, gradient = run(*ball(rays=rays), hits=True)
    np.testing.assert_array_equal(output.alphas[0, :, 0] > 0, [False, True])
    np.testing.assert_array_equal(gradient["rays"][0, 0], 0)


@pytest.mark.parametrize("ray", [(0.0,) * 6, (0, 0, 0, jnp.nan, 0, 1), (jnp.inf, 0, 0, 0, 0, 1)])
def test_a_pixel_without_a_ray_shows_the_background_and_has_no_gradient(ray):
    arguments, depths = ray_scene()
    blind = {**arguments, "rays": arguments["rays"].at[:, :7, 3].set(jnp.array(ray, jnp.float32))}
    output, gradient = run(blind, depths, hits=True, backgrounds=jnp.array([0.1, 0.2, 0.3]))
    for x in jax.tree.leaves((output, gradient)):
        assert np.isfinite(x).all()
    np.testing.assert_array_equal(output.alphas[:, :7, 3], 0)
    np.testing.assert_array_equal(output.last_ids[:, :7, 3], -1)
    np.testing.assert_array_equal(output.colors[:, :7, 3], jnp.broadcast_to(jnp.array([0.1, 0.2, 0.3]), (2, 7, 3)))
    np.testing.assert_array_equal(gradient["rays"][:, :7, 3], 0)
    both((blind, depths), hits=True)


def test_opacity_one_along_the_axis_has_finite_gradients():
    both(ball(opacities=jnp.ones(1)), hits=True)


def test_turning_a_ball_changes_nothing():
    arguments, depths = ray_scene()
    _, gradient = run({**arguments, "scales": jnp.full_like(arguments["scales"], 0.1)}, depths)
    np.testing.assert_array_equal(gradient["quats"], 0)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
@pytest.mark.parametrize("field", [*FLOATS[:-1], "depths"])
def test_a_row_that_is_not_finite_changes_nothing_else(field, bad):
    assert_row_is_left_out(field, bad)


@pytest.mark.parametrize("field", ["quats", "scales"])
def test_a_row_without_a_shape_is_not_drawn(field):
    assert_row_is_left_out(field, 0.0)


def assert_row_is_left_out(field, value):
    arguments, depths = ray_scene()
    changed = {**arguments, "depths": depths}
    changed[field] = changed[field].at[:, 7].set(value)
    depths_changed = changed.pop("depths")
    got = run(changed, depths_changed, hits=True)
    extents = anywhere(depths)
    without = extents._replace(radii=extents.radii.at[:, 7].set(0))
    assert_same_bits(got, run(arguments, depths, hits=True, extents=without))


def test_no_splats_show_the_background():
    arguments, depths = ray_scene(0)
    output, gradient = run(arguments, depths, hits=True, backgrounds=jnp.array([0.1, 0.2, 0.3]))
    np.testing.assert_allclose(output.colors, jnp.broadcast_to(jnp.array([0.1, 0.2, 0.3]), output.colors.shape))
    assert gradient["quats"].shape == (1, 0, 4)
    np.testing.assert_array_equal(gradient["rays"], 0)


def test_vmap_equals_a_loop_and_so_does_its_gradient():
    scenes = [ray_scene(seed=seed) for seed in (1, 2)]
    arguments, depths = jax.tree.map(lambda *x: jnp.stack(x), *scenes)
    rays = arguments.pop("rays")[0]  # shared

    def loss(arguments, depths, rays):
        output = rasterize_gaussians_world(**arguments, rays=rays, extents=anywhere(depths), hits=True)
        return jnp.sum(output.colors**2) + jnp.sum(output.distances) + jnp.sum(output.normals**2)

    gradient = jax.jit(jax.vmap(jax.value_and_grad(loss, (0, 2)), (0, 0, None)))(arguments, depths, rays)
    for k in range(2):
        one = jax.value_and_grad(loss, (0, 2))(jax.tree.map(lambda x, k=k: x[k], arguments), depths[k], rays)
        for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(one), strict=True):
            np.testing.assert_allclose(a[k], b, rtol=1e-4, atol=1e-5)
    # One call that shares the rays, whose gradients add up.
    together = jax.grad(lambda r: jax.vmap(loss, (0, 0, None))(arguments, depths, r).sum())(rays)
    np.testing.assert_allclose(together, gradient[1][1].sum(0), rtol=1e-4, atol=1e-4)


def test_gradients_of_other_arguments_are_the_same_whether_or_not_rays_have_one():
    arguments, depths = ray_scene()
    rays = arguments.pop("rays")
    with_rays = run({**arguments, "rays": rays}, depths)[1]
    with_rays.pop("rays")
    assert_same_bits(run(arguments, depths, rays=rays)[1], with_rays)


_DIGEST = """
import hashlib, sys, jax, numpy as np
sys.path.insert(0, {root!r})
from tests.rasterize.test_gaussians_world import both, ray_scene, run
from jaxsplat import _ffi
digest = hashlib.sha256()
for n, moving in ((3000, False), (300, True)):
    for x in jax.tree.leaves(run(*ray_scene(n, moving=moving), hits=moving)):
        digest.update(np.asarray(x).tobytes())
if {check}:
    for hits in (False, True):
        both(ray_scene(moving=hits), hits=hits)
print(_ffi.instruction_set(), digest.hexdigest())
"""


def run_digest(*, check=False, **environment):
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    environment = {**os.environ, "XLA_FLAGS": "", **environment}
    code = _DIGEST.format(root=root, check=check)
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_threads_do_not_change_a_bit():
    assert len({run_digest(NPROC=threads)[1] for threads in ("1", "3")}) == 1


@pytest.mark.parametrize("isa", ["avx2", "baseline"])
def test_every_instruction_set_agrees_with_the_reference(isa):
    assert run_digest(check=True, JAXSPLAT_ISA=isa)[0] in (isa, "baseline")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"means": jnp.zeros((1, 2))}, ValueError, r"means must have shape \[..., N, 3\].* got \[1, 2\]"),
        ({"quats": jnp.zeros((2, 4))}, ValueError, r"quats must have shape \[..., N, 4\] with N = 1, got \[2, 4\]"),
        ({"rays": jnp.zeros((4, 5, 3))}, ValueError, r"rays must have shape \[..., H, W, 6\].* got \[4, 5, 3\]"),
        ({"rays": jnp.zeros((0, 5, 6))}, ValueError, "height of rays must be at least 1, got 0"),
        ({"scales": jnp.ones((1, 3), jnp.int32)}, TypeError, "scales must hold floating-point numbers, got int32"),
        ({"colors": jnp.zeros((1, 0))}, ValueError, "colors must have at least one channel"),
        ({"extents": None}, ValueError, "give either extents or tiles, got neither"),
        ({"depth_limit": jnp.ones((3, 3))}, ValueError, r"depth_limit must have shape \[..., H, W\].* got \[3, 3\]"),
        ({"backgrounds": jnp.zeros(4)}, ValueError, r"backgrounds must have shape \[..., D\] with D = 3, got \[4\]"),
        ({"masks": jnp.ones((2, 2), jnp.bool_)}, ValueError, r"masks must have shape \[..., 1, 1\].* got \[2, 2\]"),
        ({"blend": Blend(alpha_max=1.0)}, ValueError, "alpha_max < 1"),
        ({"means": jnp.full((1, 3), jnp.nan), "validate": True}, ValueError, "means must be finite"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named_with_what_was_expected_and_what_came(changes, error, message):
    arguments, depths = ball()
    with pytest.raises(error, match=message):
        rasterize_gaussians_world(**{**arguments, "extents": anywhere(depths), **changes})
