"""The fused step against the plain composition, against differences, and against formulas known to be wrong."""

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from jaxsplat import (
    Blend,
    SHCoeffs,
    intersect_tiles,
    linearize_gamma,
    losses,
    opencv_lens,
    rasterization,
    rgb_to_sh,
    sh_factors,
)
from jaxsplat._linalg import rotation
from jaxsplat.cameras import camera_rays
from jaxsplat.clamps import Clamp, Clamps, clamped, limit_anisotropy
from jaxsplat.fused import FusedCamera, FusedConfig, init_fused_state, make_fused_gradients, make_fused_step
from jaxsplat.optim import LearningRates, splat_adam
from jaxsplat.types import Splats
from tests.data import double_precision
from tests.train.scenes import random_splats, trees_equal

SIZE = {"width": 40, "height": 24}
DC = 0.28209479177387814


def camera(dtype=np.float32, *, width=40, height=24):
    viewmat = np.eye(4)
    viewmat[:3, 3] = 0.1, -0.05, 3.0
    K = np.array([[width, 0, width / 2], [0, width, height / 2], [0, 0, 1]])
    return FusedCamera(jnp.asarray(viewmat, dtype), jnp.asarray(K, dtype))


def picture(dtype=np.float32, *, width=40, height=24):
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(0.3 * x), np.cos(0.4 * y), np.sin(0.2 * (x + y))], -1)
    return jnp.asarray(0.4 + 0.3 * waves, dtype)


def composed(splats, factors, camera, target, background, config):
    """The loss and the picture by the public functions, one after another."""
    if np.isfinite(config.max_anisotropy):
        splats = limit_anisotropy(splats, max_ratio=config.max_anisotropy)
    if config.linear_light:
        background = linearize_gamma(background)
    out = rasterization(
        splats.means, splats.quats, jnp.exp(splats.log_scales) * config.radius_scale,
        jax.nn.sigmoid(splats.logit_opacities), SHCoeffs(splats.sh_dc, splats.sh_rest, factors), camera.viewmat[None],
        camera.K[None], width=config.width, height=config.height, sh_degree=1, blend=config.blend,
        evaluate=config.evaluate, backgrounds=background[None], near_plane=config.near_plane, backend=config.backend,
        projection=config.projection, camera_model="pinhole" if camera.lens is None else camera.lens,
    )  # fmt: skip
    image = out.colors[0]
    settings: Any = {"valid": config.ssim_valid, "window": config.ssim_window, "c2": config.ssim_c2}
    loss = losses.photometric(image, target, difference="mse", ssim_weight=config.ssim_weight, **settings)
    return loss, (image, out)


# One compilation for most tests.
BOUNDED = FusedConfig(
    **SIZE, steps=50, keep_image=True, radius_scale=1.2, max_anisotropy=1.5, near_plane=2.8, scene_scale=1.5,
    ssim_window="uniform", ssim_c2=0.004,
    rates=LearningRates(means=1e-2), clamps=Clamps(means=Clamp(1e-4, 5e-3, -1.0, 1.0), logit_opacities=Clamp(high=1.0)),
)  # fmt: skip
BACKGROUND = jnp.array([0.2, -0.1, 0.7])


@pytest.fixture(scope="module")
def step():
    return make_fused_step(BOUNDED)


def test_the_step_equals_the_plain_composition_to_rounding(step):
    splats, target = random_splats(30), picture()
    optimizer = clamped(splat_adam(BOUNDED.rates, steps=BOUNDED.steps, scene_scale=1.5), BOUNDED.clamps)
    factors = jnp.ones(4)
    differentiate = jax.jit(jax.value_and_grad(functools.partial(composed, config=BOUNDED), has_aux=True))
    state, expected, opt_state = init_fused_state(splats, BOUNDED), splats, optimizer.init(splats)
    for _ in range(3):
        (loss, (image, out)), gradients = differentiate(expected, factors, camera(), target, BACKGROUND)
        updates, opt_state = optimizer.update(gradients, opt_state, expected)
        expected = jax.tree.map(jnp.add, expected, updates)
        state, result = step(state, camera(), target, BACKGROUND)
        np.testing.assert_allclose(result.loss, loss, rtol=1e-5)
        np.testing.assert_allclose(result.image, image, atol=1e-5)
        np.testing.assert_allclose(result.mse, losses.mse(image, target), rtol=1e-5)
        alike = losses.ssim(image, target, window="uniform", c2=0.004)
        np.testing.assert_allclose(result.ssim, alike, rtol=1e-5)
        np.testing.assert_allclose(result.loss, 0.8 * result.mse + 0.2 * (1 - result.ssim), rtol=1e-5)
        projected = out.info.projected
        tiles = intersect_tiles(
            projected.means2d, projected.radii, projected.depths, conics=projected.conics, opacities=out.info.opacities,
            capacity=1000, **SIZE,
        )  # fmt: skip
        assert int(result.list_count) == int(tiles.count[0]) == int((tiles.gaussian_ids >= 0).sum()) > 30
        assert int(result.visible_count) == int((tiles.tiles_per_gaussian > 0).sum())
    assert int(state.step) == 3
    for name, got, wanted, start in zip(splats._fields, state.splats, expected, splats, strict=True):
        moved = np.abs(wanted - start).max()
        np.testing.assert_allclose(got, wanted, atol=0.02 * moved + 1e-6, err_msg=name)
    assert float(jnp.abs(state.splats.means).max()) <= 1.0 and float(state.splats.logit_opacities.max()) <= 1.0


def test_the_state_is_donated_and_the_splats_given_are_not(step):
    splats = random_splats(30)
    state = init_fused_state(splats, BOUNDED)
    after, _ = step(state, camera(), picture(), BACKGROUND)
    assert state.splats.means.is_deleted() and state.opt_state[0].mu.sh_rest.is_deleted()
    assert trees_equal(splats, random_splats(30)) and not after.splats.means.is_deleted()


def test_steps_reduce_the_loss_and_nothing_new_compiles(step):
    state = init_fused_state(random_splats(30), BOUNDED)
    target = picture()
    seen = []
    for i in range(25):
        state = state._replace(sh_factors=sh_factors(i // 10, degree=1))
        moved = camera()._replace(viewmat=camera().viewmat.at[2, 3].add(1e-4 * i))
        state, result = step(state, moved, target, BACKGROUND + 1e-3 * i)
        seen.append(float(result.loss))
    assert seen[-1] < 0.8 * seen[0]
    assert step._cache_size() == 1


def test_bands_that_are_not_in_use_do_not_move(step):
    splats = random_splats(30)
    state = init_fused_state(splats, BOUNDED)._replace(sh_factors=sh_factors(0, degree=1))
    state, _ = step(state, camera(), picture(), BACKGROUND)
    assert trees_equal(state.splats.sh_rest, splats.sh_rest)
    assert not trees_equal(state.splats.sh_dc, splats.sh_dc)


def test_gradients_alone_leave_the_state_and_can_clip_the_picture():
    """Without SSIM and picture; ellipses through a lens; the background as it is."""
    config = FusedConfig(
        **SIZE, ssim_weight=0.0, evaluate="ellipse", projection="unscented", linear_light=False, blend=Blend.gsplat()
    )
    view = camera()._replace(lens=opencv_lens(jnp.array([0.1, -0.05, 0.01, 0.02])))
    state = init_fused_state(random_splats(30), config)

    @jax.jit
    def pulled(splats, limit):
        """Gradients by hand of the mean squared difference, whose gradient to the picture is clipped."""

        def render(splats):
            return composed(splats, state.sh_factors, view, picture(), BACKGROUND, config)[1][0]

        image, pull = jax.vjp(render, splats)
        v_image = 2 * (image - picture()) / image.size
        return pull(jnp.clip(v_image, -limit, limit))[0], jnp.abs(v_image).max()

    for limit in (np.inf, 1e-5):
        gradients = make_fused_gradients(dataclasses.replace(config, image_gradient_max=limit))
        got, result = gradients(state, view, picture(), BACKGROUND)
        assert result.ssim is None and result.image is None and float(result.loss) == float(result.mse)
        expected, largest = pulled(state.splats, limit)
        assert largest > 5e-5
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4 * float(jnp.abs(other).max()))


class Exact(NamedTuple):
    """A scene in float64, as numpy arrays: gradients of the fused step, and central differences of the composition."""

    splats: Splats
    got: Splats
    truth: Splats


TINY = {"width": 14, "height": 12}
PRECISE = FusedConfig(
    **TINY, backend="reference", blend=Blend.rlx(alpha_min=1e-12), ssim_valid=True, radius_scale=1.1, ssim_weight=0.3
)


def differentiated(splats, config):
    """Central differences by every number, in float64."""
    arguments = (jnp.ones(4), camera(np.float64, **TINY), picture(np.float64, **TINY), jnp.array([0.3, 0.6, 0.1]))
    flat, restore = ravel_pytree(splats)
    loss = jax.jit(lambda flat: composed(restore(flat), *arguments, config)[0])
    moves = 1e-6 * np.eye(len(flat))
    return restore(jnp.asarray([(loss(flat + move) - loss(flat - move)) / 2e-6 for move in moves])), arguments


@pytest.fixture(scope="module")
def exact():
    """Three splats that cover one another, without view dependence, so that colors do not move with positions."""
    with double_precision():
        splats = Splats(
            jnp.array([[0.1, 0.2, 0.0], [-0.2, 0.1, 0.4], [0.15, -0.1, 0.8]]),
            jnp.array([[0.9, 0.3, -0.4, 0.2], [0.5, -0.6, 0.4, 0.7], [0.8, 0.1, 0.5, -0.6]]),
            jnp.log(jnp.array([[0.5, 0.2, 0.35], [0.3, 0.6, 0.25], [0.7, 0.4, 0.3]])),
            jnp.array([0.8, 1.2, 0.3]),
            rgb_to_sh(jnp.array([[[0.8, 0.3, 0.5]], [[0.2, 0.7, 0.4]], [[0.5, 0.6, 0.9]]])),
            jnp.zeros((3, 3, 3)),
        )
        truth, arguments = differentiated(splats, PRECISE)
        state = init_fused_state(splats, PRECISE)
        got, _ = make_fused_gradients(PRECISE)(state._replace(sh_factors=arguments[0]), *arguments[1:])
        return Exact(*(jax.tree.map(np.asarray, tree) for tree in (splats, got, truth)))


def assert_right_and_not_wrong(got, truth, wrong):
    scale = np.abs(truth).max()
    np.testing.assert_allclose(got, truth, atol=1e-6 * scale)
    assert np.abs(wrong - truth).max() > 0.05 * scale


def hits(exact):
    """Opacities [3, H, W] and colors [3, 3] of the splats at each pixel, by hand, nearest first."""
    with double_precision():
        view = camera(np.float64, **TINY)
        rays = np.asarray(camera_rays(view.viewmat[None], view.K[None], **TINY)[0])
    alphas = []
    for mean, quat, log_scale, logit in zip(*exact.splats[:4], strict=True):
        turn = np.array(rotation(*quat)).T / (PRECISE.radius_scale * np.exp(log_scale))[:, None]
        g, a = (rays[..., :3] - mean) @ turn.T, rays[..., 3:] @ turn.T
        squared = np.sum(np.cross(g, a) ** 2, -1) / np.sum(a * a, -1)
        alphas.append(np.exp(-0.5 * squared) / (1 + np.exp(-logit)))
    order = np.argsort(exact.splats.means[:, 2])
    assert list(order) == [0, 1, 2]
    return np.array(alphas), 0.5 + DC * exact.splats.sh_dc[:, 0]


def by_logit(exact, *, divided):
    """Gradient to the logits by hand; `divided`: what lies behind a splat is divided by 1 - alpha once too often."""
    alphas, colors = hits(exact)
    background = np.maximum([0.3, 0.6, 0.1], 0) ** 2.2
    before = np.cumprod(np.concatenate([np.ones((1, *alphas.shape[1:])), 1 - alphas]), 0)
    image = np.einsum("nhw,nd->hwd", before[:-1] * alphas, colors) + before[-1][..., None] * background
    with double_precision():
        target = picture(np.float64, **TINY)
        settings: Any = {"difference": "mse", "ssim_weight": 0.3, "valid": True}
        v = np.asarray(jax.grad(lambda image: losses.photometric(image, target, **settings))(jnp.asarray(image)))
    behind, gradient = v @ background, np.zeros(3)
    for i in (2, 1, 0):
        term = behind / (1 - alphas[i]) if divided else behind
        v_alpha = before[i] * (v @ colors[i] - term)
        gradient[i] = np.sum(v_alpha * alphas[i]) / (1 + np.exp(exact.splats.logit_opacities[i]))
        behind = behind * (1 - alphas[i]) + alphas[i] * (v @ colors[i])
    return gradient


def test_what_lies_behind_a_splat_is_not_divided_by_its_transmittance(exact):
    by_hand = by_logit(exact, divided=False)
    np.testing.assert_allclose(by_hand, exact.truth.logit_opacities, atol=1e-6 * np.abs(by_hand).max())
    assert_right_and_not_wrong(exact.got.logit_opacities, exact.truth.logit_opacities, by_logit(exact, divided=True))


def test_the_gradient_to_an_opacity_is_counted_once(exact):
    assert_right_and_not_wrong(exact.got.logit_opacities, exact.truth.logit_opacities, 2 * exact.got.logit_opacities)


def test_the_gradient_to_a_position_is_turned_back_into_the_world(exact):
    turns = np.array([np.array(rotation(*quat)) for quat in exact.splats.quats])
    wrong = np.einsum("nji,nj->ni", turns, exact.got.means)
    assert_right_and_not_wrong(exact.got.means, exact.truth.means, wrong)


def test_the_gradient_to_a_scale_has_the_slope_of_its_inverse(exact):
    wrong = exact.got.log_scales * np.exp(exact.splats.log_scales) * PRECISE.radius_scale
    assert_right_and_not_wrong(exact.got.log_scales, exact.truth.log_scales, wrong)


def test_each_sh_coefficient_has_its_own_gradient(exact):
    copied = np.broadcast_to(exact.got.sh_dc / DC, exact.got.sh_rest.shape)
    assert_right_and_not_wrong(exact.got.sh_rest, exact.truth.sh_rest, copied)
    assert_right_and_not_wrong(exact.got.sh_dc, exact.truth.sh_dc, exact.got.sh_dc / DC)


def test_gradients_agree_with_differences_where_colors_depend_on_the_view():
    config = dataclasses.replace(PRECISE, max_anisotropy=2.0, linear_light=False)
    with double_precision():
        splats = jax.tree.map(lambda x: x.astype(np.float64), random_splats(3, seed=4))
        splats = splats._replace(log_scales=splats.log_scales + 1.0, sh_dc=0.3 * splats.sh_dc)
        truth, arguments = differentiated(splats, config)
        got, _ = make_fused_gradients(config)(init_fused_state(splats, config), *arguments[1:])
    for name, one, other in zip(splats._fields, got, truth, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6 * np.abs(other).max(), err_msg=name)


def test_every_tile_shows_its_own_splats_in_any_order():
    """Ranges that are read from keys before they are sorted hold other splats."""
    splats, size = random_splats(40, seed=3), {"width": 64, "height": 40}
    shuffled = jax.tree.map(lambda x: x[np.random.default_rng(0).permutation(40)], splats)
    blend, view = Blend.rlx(), camera(**size)

    def render(splats, backend):
        return rasterization(
            splats.means, splats.quats, jnp.exp(splats.log_scales), jax.nn.sigmoid(splats.logit_opacities),
            splats.sh_dc[:, 0], view.viewmat[None], view.K[None], **size, blend=blend, evaluate="ray", backend=backend,
        )  # fmt: skip

    out, mixed, dense = render(splats, "native"), render(shuffled, "native"), render(splats, "reference")
    np.testing.assert_array_equal(out.colors, mixed.colors)
    np.testing.assert_allclose(out.colors, dense.colors, atol=1e-4)
    projected = out.info.projected
    tiles = intersect_tiles(
        projected.means2d[0], projected.radii[0], projected.depths[0], conics=projected.conics[0],
        opacities=out.info.opacities[0], capacity=1000, **size,
    )  # fmt: skip
    offsets = np.asarray(tiles.tile_offsets)
    lists = [set(np.asarray(tiles.gaussian_ids[a:b])) for a, b in itertools.pairwise(offsets)]
    by_splat = [(tile, i) for i in range(40) for tile in range(len(lists)) if i in lists[tile]]
    values = [i for _, i in sorted(by_splat)]
    wrong = {}
    for place, (tile, _) in enumerate(by_splat):
        if place == 0 or by_splat[place - 1][0] != tile:
            wrong[tile] = (place, place)
        wrong[tile] = (wrong[tile][0], place + 1)
    assert any(set(values[a:b]) != lists[tile] for tile, (a, b) in wrong.items())


def test_a_tile_without_splats_is_clear_and_shows_the_background():
    splats, view = random_splats(1), camera(width=64, height=24)
    background = linearize_gamma(BACKGROUND)[None]
    out = rasterization(
        splats.means, splats.quats, jnp.full((1, 3), 0.05), jnp.array([0.9]), jnp.ones((1, 3)),
        view.viewmat.at[0, 3].add(-1.0)[None], view.K[None], width=64, height=24, blend=Blend.rlx(), evaluate="ray",
        backgrounds=background,
    )  # fmt: skip
    assert float(out.alphas[0, :, :32].max()) > 0.5
    assert not out.alphas[0, :, 48:].any()
    np.testing.assert_array_equal(out.colors[0, :, 48:], np.broadcast_to(background[0], (24, 16, 3)))
    np.testing.assert_allclose(background[0], [0.2**2.2, 0, 0.7**2.2], rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": 0}, "FusedConfig: width must be at least 1, got 0"),
        ({"steps": 0.5}, "FusedConfig: steps must be a static int"),
        ({"ssim_weight": 1.5}, "FusedConfig: ssim_weight must lie in 0..1, got 1.5"),
        ({"image_gradient_max": 0.0}, "FusedConfig: image_gradient_max must be above 0, got 0.0"),
        ({"radius_scale": -1.0}, "FusedConfig: radius_scale must be above 0, got -1.0"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        FusedConfig(**{**SIZE, **settings})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": jnp.zeros((24, 39, 3))}, r"target must have shape \[24, 40, 3\], got \[24, 39, 3\]"),
        ({"target": jnp.zeros((24, 40, 3), jnp.uint8)}, "target must hold floating-point numbers, got uint8"),
        ({"background": jnp.zeros(4)}, r"background must have shape \[3\], got \[4\]"),
        ({"camera": FusedCamera(jnp.eye(3), jnp.eye(3))}, r"camera.viewmat must have shape \[4, 4\], got \[3, 3\]"),
        ({"factors": jnp.ones(9)}, r"state.sh_factors must have shape \[4\], got \[9\]"),
    ],
)
def test_arguments_that_do_not_fit_are_named(changes, message):
    config = FusedConfig(**SIZE)
    state = init_fused_state(random_splats(3), config)
    arguments = {"camera": camera(), "target": picture(), "background": BACKGROUND, **changes}
    state = state._replace(sh_factors=arguments.pop("factors", state.sh_factors))
    with pytest.raises((ValueError, TypeError), match=f"fused step: {message}"):
        make_fused_gradients(config)(state, *arguments.values())


def test_coefficients_of_half_a_degree_are_refused():
    with pytest.raises(ValueError, match="init_fused_state: sh_rest must hold 0, 3, 8, 15 or 24 coefficients, got 4"):
        init_fused_state(random_splats(3, rest=4), FusedConfig(**SIZE))
