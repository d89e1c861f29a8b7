"""The native rasterizer against the reference, and against what must hold by itself."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Blend, ScreenProbe, intersect_tiles, rasterize_gaussians_3d
from tests.splats2d import random_splats
from tests.tolerances import GRADIENT, PICTURE

WIDTH, HEIGHT = 53, 38


def test_listed_splats_that_cannot_be_drawn_get_zero_gradients_and_change_nothing_else():
    splats = random_splats(60, width=WIDTH, height=HEIGHT)
    tiles = intersect_tiles(splats.means2d, splats.radii, splats.depths, width=WIDTH, height=HEIGHT, capacity=5000)
    hidden = np.unique(np.asarray(tiles.gaussian_ids))[1:5]  # without the -1 behind the lists
    broken = splats._replace(
        opacities=splats.opacities.at[hidden[:2]].set(0.0), conics=splats.conics.at[hidden[2:]].set(jnp.nan)
    )
    unlisted = splats._replace(opacities=splats.opacities.at[hidden].set(0.0))

    def gradient(splats):
        def loss(floats):
            output = rasterize_gaussians_3d(*floats, width=WIDTH, height=HEIGHT, tiles=tiles)
            wc, wa = weights(output)
            return jnp.sum(output.colors * wc) + jnp.sum(output.alphas * wa)

        return jax.grad(loss)(splats[:4])

    for found, truth in zip(gradient(broken), gradient(unlisted), strict=True):
        np.testing.assert_array_equal(found, truth)
        assert not np.asarray(found)[hidden].any() and np.asarray(found).any()


# JAX raises an error of a kernel as the one or the other, depending on whether the program runs inline.
KERNEL_ERROR = (ValueError, jax.errors.JaxRuntimeError)


def render(splats, backend, **settings):
    # The reference is compiled: one operation at a time it takes longer than compiling the whole.
    if backend == "reference":
        return jax.jit(lambda s: render_eagerly(s, backend, **settings))(splats)
    return render_eagerly(splats, backend, **settings)


def render_eagerly(splats, backend, **settings):
    settings = {"width": WIDTH, "height": HEIGHT, **settings}
    return rasterize_gaussians_3d(
        splats.means2d, splats.conics, splats.colors, splats.opacities, depths=splats.depths, radii=splats.radii,
        backend=backend, **settings,
    )  # fmt: skip


def weights(output):
    rng = np.random.default_rng(5)
    return [jnp.asarray(rng.normal(size=x.shape), jnp.float32) for x in (output.colors, output.alphas)]


def gradients(splats, backend, probe=None, **settings):
    """Gradients of a random linear form of colors and alphas, to the floats of the splats and to backgrounds."""
    return picture_and_gradients(splats, backend, probe, **settings)[1]


def picture_and_gradients(splats, backend, probe=None, **settings):
    """In one program, which for the reference takes seconds to compile."""
    backgrounds = settings.pop("backgrounds", None)

    def loss(floats, backgrounds, probe):
        moved = splats._replace(**dict(zip(("means2d", "conics", "colors", "opacities"), floats, strict=True)))
        output = render(moved, backend, backgrounds=backgrounds, probe=probe, **settings)
        wc, wa = weights(output)
        return jnp.sum(output.colors * wc) + jnp.sum(output.alphas * wa), output

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))
    v_inputs, output = gradient(tuple(splats[:4]), backgrounds, probe)
    return output, v_inputs


def assert_same_picture(got, want):
    for name in ("colors", "alphas"):
        difference = np.abs(np.asarray(getattr(got, name)) - np.asarray(getattr(want, name)))
        assert np.mean(difference <= PICTURE.usual) >= PICTURE.share, f"{name}: {np.mean(difference > PICTURE.usual)}"
        assert difference.max(initial=0) <= PICTURE.worst, f"{name}: {difference.max()}"
    assert np.mean(np.asarray(got.last_ids) == np.asarray(want.last_ids)) >= PICTURE.share


def assert_same_gradients(got, want):
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        g, w = np.asarray(g, np.float64), np.asarray(w, np.float64)
        assert np.isfinite(g).all()
        assert np.linalg.norm(g - w) <= GRADIENT * np.linalg.norm(w) + 1e-12


def both(splats, **settings):
    want, v_want = picture_and_gradients(splats, "reference", **settings)
    assert_same_picture(render(splats, "native", **settings), want)
    assert_same_gradients(gradients(splats, "native", **settings), v_want)


@pytest.mark.parametrize("channels", [*range(1, 41)])
def test_every_channel_is_in_its_slot(channels):
    """Against pictures of one channel, whose gradient to the geometry adds up."""
    splats = random_splats(60, width=WIDTH, height=HEIGHT, channels=channels, seed=1)
    wc, _ = weights(render(splats, "native"))

    def loss(floats, weight):
        moved = splats._replace(**dict(zip(("means2d", "conics", "colors", "opacities"), floats, strict=True)))
        output = render(moved, "native")
        return jnp.sum(output.colors * weight), output.colors

    gradient = jax.grad(loss, has_aux=True)
    got, picture = gradient(splats[:4], wc)
    total = [jnp.zeros_like(x) for x in (*splats[:2], splats.opacities)]
    for c in range(channels):
        alone = (*splats[:2], splats.colors[:, c : c + 1], splats.opacities)
        one, one_picture = gradient(alone, wc[..., c : c + 1])
        np.testing.assert_allclose(picture[..., c], one_picture[..., 0], atol=1e-6)
        np.testing.assert_allclose(got[2][:, c], one[2][:, 0], rtol=1e-4, atol=1e-5)
        total = [t + g for t, g in zip(total, (one[0], one[1], one[3]), strict=True)]
    assert_same_gradients((got[0], got[1], got[3]), total)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 33])
def test_pictures_and_gradients_agree_with_the_reference(channels):
    splats = random_splats(60, width=WIDTH, height=HEIGHT, channels=channels, seed=channels)
    both(splats, backgrounds=jnp.linspace(0, 1, channels))


def test_512_channels_equal_512_pictures_of_one_channel():
    splats = random_splats(40, width=20, height=17, channels=512)
    settings = {"width": 20, "height": 17}
    whole = render(splats, "native", **settings)
    for channel in (0, 1, 31, 32, 33, 255, 511):
        one = render(splats._replace(colors=splats.colors[:, channel : channel + 1]), "native", **settings)
        np.testing.assert_allclose(whole.colors[..., channel], one.colors[..., 0], atol=1e-6)
    both(splats, **settings)


@pytest.mark.parametrize("tile_size", [4, 8, 12, 16, 20, 32])
def test_picture_does_not_depend_on_the_tile_size(tile_size):
    both(random_splats(150, width=WIDTH, height=HEIGHT), tile_size=tile_size)


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (16, 16), (17, 15), (1, 300), (300, 1)])
def test_any_image_size(size):
    width, height = size
    both(random_splats(80, width=width, height=height), width=width, height=height)


@pytest.mark.parametrize(
    "blend",
    [
        Blend(alpha_max=0.999),
        Blend(alpha_min=0.05),
        Blend(alpha_min=1e-4),
        Blend(transmittance_min=0.2),
        Blend(transmittance_min=0.2, blend_last=True),
        Blend(transmittance_min=0.0),
        Blend(max_contributors=1),
        Blend(max_contributors=3, blend_last=True, transmittance_min=0.1),
        Blend(alpha_gradient_max=0.5),
    ],
    ids=str,
)
def test_every_blend_rule(blend):
    both(random_splats(200, width=WIDTH, height=HEIGHT, largest=9), blend=blend, backgrounds=jnp.array([0.3, 0.6, 0.9]))


def test_clipped_gradients_are_those_of_all_channels_together():
    """More channels than the kernel differentiates at a time otherwise."""
    both(random_splats(40, width=WIDTH, height=HEIGHT, channels=70), blend=Blend(alpha_gradient_max=2.0))


def test_masked_tiles_show_the_background_with_alpha_zero():
    splats = random_splats(150, width=WIDTH, height=HEIGHT)
    background = jnp.array([0.25, 0.5, 0.75])
    mask = jnp.ones((3, 4), jnp.bool_).at[1, 2].set(False).at[2, 3].set(False)
    settings = {"masks": mask, "backgrounds": background}
    both(splats, **settings)
    output = render(splats, "native", **settings)
    for rows, columns in ((slice(16, 32), slice(32, 48)), (slice(32, 38), slice(48, 53))):
        np.testing.assert_array_equal(output.colors[rows, columns] - background.reshape(1, 1, 3), 0)
        np.testing.assert_array_equal(output.alphas[rows, columns], 0)
        np.testing.assert_array_equal(output.last_ids[rows, columns], -1)


def test_long_thin_splats_far_from_their_centre():
    rng = np.random.default_rng(3)
    n = 30
    splats = random_splats(n, width=WIDTH, height=HEIGHT)
    angle = rng.uniform(0, np.pi, n)
    along, across = 1 / rng.uniform(100, 1000, n) ** 2, np.full(n, 1 / 0.6**2)
    c, s = np.cos(angle), np.sin(angle)
    conics = np.stack([c**2 * along + s**2 * across, c * s * (along - across), s**2 * along + c**2 * across], -1)
    distance = rng.uniform(-300, 300, (n, 1))
    means = np.stack([c, s], -1) * distance + rng.uniform((0, 0), (WIDTH, HEIGHT), (n, 2))
    splats = splats._replace(
        means2d=jnp.asarray(means, jnp.float32), conics=jnp.asarray(conics, jnp.float32),
        radii=jnp.full((n, 2), 3000, jnp.int32),
    )  # fmt: skip
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x, splats)
        want = jax.tree.map(np.asarray, render(exact, "reference"))
    assert_same_picture(render(splats, "native"), want)


@pytest.mark.parametrize(("count", "largest"), [(200, 6.0), (100_000, 1.0)])
def test_given_lists_give_the_same_bits(count, largest):
    splats = random_splats(count, width=WIDTH, height=HEIGHT, largest=largest)
    tiles = intersect_tiles(
        splats.means2d, splats.radii, splats.depths, conics=splats.conics, opacities=splats.opacities, width=WIDTH,
        height=HEIGHT, capacity=25 * count,
    )  # fmt: skip

    def loss(floats, lists):
        order = {"tiles": tiles} if lists else {"depths": splats.depths, "radii": splats.radii}
        output = rasterize_gaussians_3d(*floats, width=WIDTH, height=HEIGHT, **order)
        wc, wa = weights(output)
        return jnp.sum(output.colors * wc) + jnp.sum(output.alphas * wa), output

    results = [jax.grad(lambda f, given=given: loss(f, given), has_aux=True)(splats[:4]) for given in (False, True)]
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_array_equal(a, b)


def test_given_lists_agree_with_the_reference():
    splats = random_splats(120, width=WIDTH, height=HEIGHT)
    tiles = intersect_tiles(splats.means2d, splats.radii, splats.depths, width=WIDTH, height=HEIGHT, capacity=5000)
    render_lists = functools.partial(
        rasterize_gaussians_3d, *splats[:4], width=WIDTH, height=HEIGHT, tiles=tiles
    )  # fmt: skip
    assert_same_picture(render_lists(backend="native"), render_lists(backend="reference"))


def test_incomplete_lists_are_refused():
    splats = random_splats(120, width=WIDTH, height=HEIGHT)
    tiles = intersect_tiles(splats.means2d, splats.radii, splats.depths, width=WIDTH, height=HEIGHT, capacity=10)
    with pytest.raises(KERNEL_ERROR, match=rf"{int(tiles.count)} intersections exceed the capacity of 10"):
        jax.block_until_ready(rasterize_gaussians_3d(*splats[:4], width=WIDTH, height=HEIGHT, tiles=tiles))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [("gaussian_ids", 120, "gaussian_ids must lie in"), ("gaussian_ids", -2, "gaussian_ids"), ("tile_offsets", 9999, "tile_offsets must ascend")],  # noqa: E501
)  # fmt: skip
def test_damaged_lists_are_refused_and_named(field, value, message):
    splats = random_splats(120, width=WIDTH, height=HEIGHT)
    tiles = intersect_tiles(splats.means2d, splats.radii, splats.depths, width=WIDTH, height=HEIGHT, capacity=5000)
    tiles = tiles._replace(**{field: getattr(tiles, field).at[3].set(value)})
    call = functools.partial(rasterize_gaussians_3d, *splats[:4], width=WIDTH, height=HEIGHT, tiles=tiles)
    with pytest.raises(KERNEL_ERROR, match=message):
        jax.block_until_ready(call())
    with pytest.raises(ValueError, match=field):
        call(validate=True)


def test_probe_gives_the_screen_gradient_and_its_absolute_sum():
    splats = random_splats(100, width=WIDTH, height=HEIGHT)
    zeros = jnp.zeros_like(splats.means2d)
    (means, *_), _, probe = gradients(splats, "native", ScreenProbe(zeros, zeros))
    np.testing.assert_array_equal(probe.grad, means)

    def pixel_gradient(weight):
        def loss(means2d):
            return jnp.sum(render(splats._replace(means2d=means2d), "native").colors * weight)

        return jax.grad(loss)(splats.means2d)

    # By definition: the sum over pixels of the absolute gradient of each pixel's part of the loss.
    wc, _ = weights(render(splats, "native"))
    pixels = jnp.eye(WIDTH * HEIGHT).reshape(-1, HEIGHT, WIDTH, 1) * wc[None]
    absolute = jnp.zeros_like(splats.means2d)
    for part in jnp.split(pixels, 19):
        absolute += jnp.abs(jax.vmap(pixel_gradient)(part)).sum(0)

    def colors_only(probe):
        return jnp.sum(render(splats, "native", probe=probe).colors * wc)

    got = jax.grad(colors_only)(ScreenProbe(zeros, zeros)).absgrad
    reference = gradients(splats, "reference", ScreenProbe(zeros, zeros))[2]
    assert_same_gradients(probe, reference)
    np.testing.assert_allclose(got, absolute, rtol=2e-3, atol=2e-4)
    assert float(got.max()) > 0


@pytest.mark.parametrize("channels", [33, 75, 130])
def test_probe_takes_all_channels_at_once(channels):
    splats = random_splats(60, width=WIDTH, height=HEIGHT, channels=channels)
    zeros = jnp.zeros_like(splats.means2d)
    native, reference = (gradients(splats, backend, ScreenProbe(zeros, zeros)) for backend in ("native", "reference"))
    assert_same_gradients(native[2], reference[2])
    assert_same_gradients(native[0], reference[0])


def test_opacity_one_on_a_pixel_centre_has_finite_gradients():
    splats = random_splats(1, width=8, height=8)._replace(
        means2d=jnp.array([[3.5, 4.5]]), opacities=jnp.ones(1), radii=jnp.array([[9, 9]])
    )
    both(splats, width=8, height=8)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
@pytest.mark.parametrize("field", ["means2d", "conics", "colors", "opacities", "depths"])
def test_a_row_that_is_not_finite_changes_nothing_else(field, bad):
    splats = random_splats(80, width=WIDTH, height=HEIGHT)
    splats = splats._replace(radii=splats.radii.at[7].set(5))
    without = splats._replace(radii=splats.radii.at[7].set(0))
    broken = splats._replace(**{field: getattr(splats, field).at[7].set(bad)})
    for a, b in zip(render(broken, "native"), render(without, "native"), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(
        jax.tree.leaves(gradients(broken, "native")), jax.tree.leaves(gradients(without, "native")), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_a_conic_that_is_not_positive_definite_is_not_drawn():
    splats = random_splats(3, width=WIDTH, height=HEIGHT)._replace(
        conics=jnp.array([[-1.0, 0, 1], [1, 2, 1], [0, 0, 0]]), radii=jnp.full((3, 2), 9, jnp.int32)
    )
    assert float(jnp.abs(render(splats, "native").colors).max()) == 0


def test_equal_depths_are_ordered_by_index():
    splats = random_splats(60, width=WIDTH, height=HEIGHT)._replace(depths=jnp.ones(60))
    both(splats)


def test_no_splats_show_the_background():
    splats = random_splats(0, width=WIDTH, height=HEIGHT)
    output = render(splats, "native", backgrounds=jnp.array([0.1, 0.2, 0.3]))
    np.testing.assert_allclose(output.colors, jnp.broadcast_to(jnp.array([0.1, 0.2, 0.3]), output.colors.shape))
    (means, conics, colors, opacities), background, _ = gradients(splats, "native", backgrounds=jnp.ones(3))
    assert [x.shape for x in (means, conics, colors, opacities)] == [(0, 2), (0, 3), (0, 3), (0,)]
    np.testing.assert_allclose(background, weights(output)[0].sum((0, 1)), rtol=1e-5)


def test_very_wide_pictures_equal_their_pieces():
    width = 16384
    splats = random_splats(400, width=width, height=8, largest=60)
    whole = render(splats, "native", width=width, height=8)
    for left in (0, 2048, 8176, 16320):
        moved = splats._replace(means2d=splats.means2d - jnp.array([[left, 0.0]]))
        piece = render(moved, "native", width=64, height=8)
        np.testing.assert_allclose(whole.colors[:, left : left + 64], piece.colors, atol=2e-3)


def test_more_intersections_than_lists_can_hold_are_counted_in_the_error():
    n = 70_000
    splats = random_splats(1, width=4, height=4)
    big = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], (n, *x.shape[1:])), splats)
    big = big._replace(
        conics=jnp.broadcast_to(jnp.array([1e-12, 0, 1e-12]), (n, 3)), opacities=jnp.full(n, 0.5), radii=jnp.ones((n, 2), jnp.int32)  # noqa: E501
    )  # fmt: skip
    with pytest.raises(KERNEL_ERROR, match=f"one image has {n * 200 * 200} tile intersections"):
        jax.block_until_ready(render(big, "native", width=800, height=800, tile_size=4))


_DIGEST = """
import hashlib, sys, jax, numpy as np
sys.path.insert(0, {root!r})
from tests.rasterize.test_gaussians_3d import gradients, render
from tests.splats2d import random_splats
from jaxsplat import _ffi
digest = hashlib.sha256()
for images in ((), (3,), (40,)):
    splats = random_splats(3000 if not images else 300, width=200, height=150, images=images, channels=5)
    for _ in range(2):
        for x in jax.tree.leaves([f(splats, "native", width=200, height=150) for f in (render, gradients)]):
            digest.update(np.asarray(x).tobytes())
print(_ffi.instruction_set(), digest.hexdigest())
"""


def run_digest(**environment):
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    environment = {**os.environ, "XLA_FLAGS": "", **environment}
    result = subprocess.run(
        [sys.executable, "-c", _DIGEST.format(root=root)], env=environment, capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_threads_do_not_change_a_bit():
    digests = {run_digest(NPROC=threads)[1] for threads in ("1", "2", "5")}
    assert len(digests) == 1


_AGAINST_REFERENCE = """
import sys
sys.path.insert(0, {root!r})
from tests.rasterize.test_gaussians_3d import both
from tests.splats2d import random_splats
from jaxsplat import Blend, _ffi
for channels in (1, 3, 6):
    both(random_splats(150, width=53, height=38, channels=channels, seed=channels))
both(random_splats(150, width=53, height=38), blend=Blend(max_contributors=2))
print(_ffi.instruction_set())
"""


@pytest.mark.parametrize("isa", ["avx512", "avx2", "baseline"])
def test_every_instruction_set_that_this_machine_has_agrees_with_the_reference(isa):
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    environment = {**os.environ, "XLA_FLAGS": "", "JAXSPLAT_ISA": isa}
    result = subprocess.run(
        [sys.executable, "-c", _AGAINST_REFERENCE.format(root=root)], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    # A machine without the instruction set falls back to the baseline, which is then what was tested.
    assert result.stdout.strip() in (isa, "baseline")


def test_half_precision_is_computed_in_float32_and_gets_gradients_in_its_own_type():
    splats = random_splats(50, width=WIDTH, height=HEIGHT)
    half = splats._replace(colors=splats.colors.astype(jnp.bfloat16))
    output = render(half, "native")
    want = render(splats._replace(colors=half.colors.astype(jnp.float32)), "native")
    np.testing.assert_array_equal(output.colors, want.colors)
    assert jax.grad(lambda c: render(half._replace(colors=c), "native").colors.sum())(half.colors).dtype == jnp.bfloat16


def call(**changes):
    splats = random_splats(5, width=WIDTH, height=HEIGHT)
    arguments = {**splats._asdict(), "width": WIDTH, "height": HEIGHT, **changes}
    return rasterize_gaussians_3d(**arguments)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"means2d": jnp.zeros((5, 3))}, ValueError, r"means2d must have shape \[..., N, 2\].* got \[5, 3\]"),
        ({"conics": jnp.zeros((4, 3))}, ValueError, r"conics must have shape \[..., N, 3\] with N = 5, got \[4, 3\]"),
        ({"colors": jnp.zeros((5, 3), jnp.int32)}, TypeError, "colors must hold floating-point numbers, got int32"),
        ({"colors": jnp.zeros((5, 0))}, ValueError, "colors must have at least one channel"),
        ({"radii": jnp.zeros((5, 2))}, TypeError, "radii must be of type integer, got float32"),
        ({"masks": jnp.ones((2, 2), jnp.bool_)}, ValueError, r"masks must have shape \[..., 3, 4\].* got \[2, 2\]"),
        ({"depths": None}, ValueError, "give depths and radii, or tiles"),
        ({"width": 0}, ValueError, "width must be at least 1, got 0"),
        ({"width": 5.0}, TypeError, "width must be a static int"),
        ({"tile_size": 10}, ValueError, "tile_size must be a multiple of 4 up to 32, got 10"),
        ({"backend": "cuda"}, ValueError, "backend must be one of 'auto', 'native', 'reference', got 'cuda'"),
        ({"blend": Blend(alpha_max=1.0)}, ValueError, "alpha_max < 1"),
        ({"blend": Blend(alpha_gradient_max=0)}, ValueError, "blend.alpha_gradient_max must be above 0, got 0"),
        ({"backgrounds": jnp.zeros(4)}, ValueError, r"backgrounds must have shape \[..., D\] with D = 3, got \[4\]"),
        ({"means2d": jnp.full((5, 2), jnp.nan), "validate": True}, ValueError, "means2d must be finite"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named_with_what_was_expected_and_what_came(changes, error, message):
    with pytest.raises(error, match=message):
        call(**changes)


def test_float64_is_refused_by_the_native_kernels():
    with jax.enable_x64(True), pytest.raises(TypeError, match="means2d is float64"):
        call(means2d=jnp.zeros((5, 2), jnp.float64))
