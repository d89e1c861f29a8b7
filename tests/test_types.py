"""Named blend rules against loops that say what each renderer does at a pixel."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Blend, project_gaussians, rasterization, rasterize_gaussians_3d, rasterize_gaussians_world
from tests.rays import anywhere


def keep_the_last(alphas, *, cutoff, most, clamp=1.0, least=1e-4):
    """Blends, then looks whether the pixel has ended: the rlx renderer. Returns transmittance and last id."""
    transmittance, last, steps = 1.0, -1, 0
    for i, alpha in enumerate(alphas):
        if steps >= most:
            break
        if alpha < cutoff:
            continue
        transmittance *= 1 - min(alpha, clamp)
        last, steps = i, steps + 1
        if transmittance < least:
            break
    return transmittance, last


def stop_before(alphas, *, clamp, cutoff=1 / 255, least=1e-4):
    """Ends the pixel before the splat that would leave too little: gsplat and the original program."""
    transmittance, last = 1.0, -1
    for i, alpha in enumerate(alphas):
        alpha = min(alpha, clamp)
        if alpha < cutoff:
            continue
        if transmittance * (1 - alpha) <= least:
            break
        transmittance, last = transmittance * (1 - alpha), i
    return transmittance, last


def blended(alphas, blend, backend):
    """The same for splats whose centres lie on the ray of one pixel."""
    count = len(alphas)
    means = jnp.asarray(np.stack([np.zeros(count), np.zeros(count), 1.0 + np.arange(count)], -1), jnp.float32)
    quats, scales = jnp.tile(jnp.array([1.0, 0, 0, 0]), (count, 1)), jnp.full((count, 3), 0.1)
    rays = jnp.array([[[0.0, 0, 0, 0, 0, 1]]])
    out = rasterize_gaussians_world(
        means, quats, scales, jnp.asarray(alphas, jnp.float32), jnp.ones((count, 1)), rays,
        extents=anywhere(means[:, 2]), blend=blend, backend=backend,
    )  # fmt: skip
    return 1 - float(out.alphas[0, 0, 0]), int(out.last_ids[0, 0])


RULES = {
    "rlx": (Blend.rlx(alpha_min=0.02, max_contributors=4), lambda a: keep_the_last(a, cutoff=0.02, most=4)),
    "gsplat 1.6": (Blend.gsplat(), lambda a: stop_before(a, clamp=0.99)),
    "gsplat 1.0": (Blend.gsplat_1_0(), lambda a: stop_before(a, clamp=0.999)),
    "inria": (Blend.inria(), lambda a: stop_before(a, clamp=0.99)),
}
STACKS = {
    "clear": [0.3, 0.01, 0.5, 0.002, 0.2, 0.6, 0.7, 0.4],
    "an opaque one first": [0.9985, 0.7, 0.8, 0.5, 0.1, 0.1],
    "crossing the limit": [0.9, 0.95, 0.985, 0.5, 0.3],
}


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("name", RULES)
def test_named_rules_blend_as_their_renderers_do(name, stack, backend):
    blend, truth = RULES[name]
    transmittance, last = truth(STACKS[stack])
    got = blended(STACKS[stack], blend, backend)
    assert got[1] == last
    # What is left of 1 - alpha of an opaque splat in float32.
    np.testing.assert_allclose(got[0], transmittance, rtol=1e-3, atol=1e-7)


def test_the_rules_tell_the_stacks_apart():
    outcomes = {name: [truth(stack) for stack in STACKS.values()] for name, (_, truth) in RULES.items()}
    assert outcomes["gsplat 1.6"] == outcomes["inria"]
    assert len({str(outcome) for outcome in outcomes.values()}) == 3


@pytest.mark.parametrize("limit", [0.05, 0.4, np.inf])
@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("along_rays", [False, True])
def test_the_gradient_to_each_alpha_is_clipped_by_itself(along_rays, backend, limit):
    """At two pixels that see the same stack with opposite weights: what is added up is clipped before."""
    alphas, colors, weights = np.array([0.3, 0.6, 0.5]), np.array([0.9, -0.4, 2.0]), np.array([1.0, -0.8])
    blend = Blend(alpha_gradient_max=limit)
    before = np.cumprod([1, *(1 - alphas)])
    behind = [np.sum((before[:-1] * alphas * colors)[i + 1 :]) for i in range(3)]
    slopes = before[:-1] * colors - behind / (1 - alphas)
    truth = sum(np.clip(weight * slopes, -limit, limit) for weight in weights)
    assert np.isinf(limit) or np.abs(truth - weights.sum() * slopes).max() > 0.1
    arrays = [jnp.asarray(x, jnp.float32) for x in (alphas, colors[:, None])]
    depths = 1.0 + jnp.arange(3.0)

    def loss(opacities):
        if along_rays:
            means = jnp.stack([0 * depths, 0 * depths, depths], -1)
            out = rasterize_gaussians_world(
                means, jnp.tile(jnp.array([1.0, 0, 0, 0]), (3, 1)), jnp.full((3, 3), 0.1), opacities, arrays[1],
                jnp.tile(jnp.array([0.0, 0, 0, 0, 0, 1]), (1, 2, 1)), extents=anywhere(depths), blend=blend,
                backend=backend,
            )  # fmt: skip
        else:
            # So wide that both pixels see the same.
            flat = jnp.tile(jnp.array([1e-9, 0, 1e-9]), (3, 1))
            out = rasterize_gaussians_3d(
                jnp.ones((3, 2)), flat, arrays[1], opacities, depths=depths, radii=jnp.full((3, 2), 9), width=2,
                height=1, blend=blend, backend=backend,
            )  # fmt: skip
        return jnp.sum(out.colors[0, :, 0] * jnp.asarray(weights, jnp.float32))

    np.testing.assert_allclose(jax.grad(loss)(arrays[0]), truth, rtol=1e-4, atol=1e-5)


def drawn_by_tiles(mean, covariance, opacity, size, sigmas):
    """Alphas [H, W] of one splat that is listed in the tiles that a square about it touches, as a plain loop."""
    longer = np.linalg.eigvalsh(covariance)[-1]
    radius = np.ceil(sigmas * np.sqrt(longer))
    alphas = np.zeros((size, size))
    for row in range(size):
        for column in range(size):
            corner = np.array([column // 16, row // 16]) * 16
            listed = (mean + radius > corner).all() and (mean - radius < corner + 16).all()
            offset = np.array([column, row]) + 0.5 - mean
            alpha = min(0.99, opacity * np.exp(-0.5 * offset @ np.linalg.inv(covariance) @ offset))
            alphas[row, column] = alpha if listed and alpha >= 1 / 255 else 0
    return alphas


@pytest.mark.parametrize("projection", ["ewa", "unscented"])
def test_the_rule_of_the_original_program_ends_splats_at_the_tiles_of_three_sigmas(projection):
    mean, scales, focal, z = np.array([16.7, 20.4]), np.array([10.0, 5.0]), 40.0, 400.0
    K = jnp.array([[[focal, 0, 0], [0, focal, 0], [0, 0, 1]]])
    position = jnp.asarray([[*(mean * z / focal), z]], jnp.float32)
    axes = jnp.asarray([[*(scales * z / focal), 1e-3]], jnp.float32)
    shown = {}
    for name, blend in {"inria": Blend.inria(), "gsplat": Blend.gsplat()}.items():
        out = rasterization(
            position, jnp.array([[1.0, 0, 0, 0]]), axes, jnp.ones(1), jnp.ones((1, 1)), jnp.eye(4)[None], K,
            width=64, height=64, blend=blend, projection=projection,
        )  # fmt: skip
        shown[name] = np.asarray(out.alphas[0, :, :, 0])
    covariance = np.diag(scales**2 + 0.3)
    for name, sigmas in (("inria", 3.0), ("gsplat", 9.0)):
        truth = drawn_by_tiles(mean, covariance, 1.0, 64, sigmas)
        np.testing.assert_allclose(shown[name], truth, atol=2e-3)
        np.testing.assert_array_equal(shown[name] > 0, truth > 0)
    assert (shown["inria"] > 0).sum() < (shown["gsplat"] > 0).sum()


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_the_rule_of_gsplat_1_0_compensates_in_full(backend):
    sigma, opacities = 0.02, jnp.array([0.9])
    K = jnp.array([[[100.0, 0, 8.5], [0, 100, 8.5], [0, 0, 1]]])
    splat = jnp.array([[0.0, 0, 1]]), jnp.array([[1.0, 0, 0, 0]]), jnp.full((1, 3), sigma / 100)
    factors = {}
    for name, blend in {"old": Blend.gsplat_1_0(), "new": Blend.gsplat()}.items():
        out = project_gaussians(
            *splat, jnp.eye(4)[None], K, width=17, height=17, compensation_min=blend.compensation_min, backend=backend
        )
        factors[name] = float(out.compensations[0, 0])
    assert factors["old"] == pytest.approx(sigma**2 / (sigma**2 + 0.3), rel=1e-4)
    assert factors["new"] == pytest.approx(0.005)
    bright = {
        name: rasterization(
            *splat, opacities, jnp.ones((1, 1)), jnp.eye(4)[None], K, width=17, height=17, antialiased=True,
            blend=dataclasses.replace(blend, alpha_min=1e-6), backend=backend,
        ).colors.max()
        for name, blend in {"old": Blend.gsplat_1_0(), "new": Blend.gsplat()}.items()
    }  # fmt: skip
    assert float(bright["old"]) == pytest.approx(0.9 * factors["old"], rel=1e-3)
    assert float(bright["new"]) == pytest.approx(0.9 * 0.005, rel=1e-3)


def test_the_rlx_rule_has_no_clamp_that_a_splat_feels():
    assert blended([0.9995], Blend.rlx(), "native")[0] == pytest.approx(5e-4, rel=1e-3)
