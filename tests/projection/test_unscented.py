"""The unscented projection against the textbook's transform in numpy, the linear one, and finite differences."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import Lens, Shutter, Unscented, project_gaussians, project_unscented, quat_scale_to_covar_preci
from jaxsplat.cameras.pose import split_pose
from jaxsplat.cameras.shutter import DIRECTIONS, motion
from tests.cameras.lenses import LENSES, expected
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.scenes import HEIGHT, WIDTH, random_scene

project = jax.jit(
    functools.partial(project_unscented, width=WIDTH, height=HEIGHT),
    static_argnames=("camera_model", "antialiased", "transform"),
)


@functools.partial(jax.jit, static_argnames="transform")
def with_lens(lens, *arrays, transform=None, **settings):
    """The lens is traced."""
    settings["transform"] = transform or Unscented()
    return project_unscented(*arrays, camera_model=lens, width=WIDTH, height=HEIGHT, **settings)


WIDE = Lens("equidistant", radial=(0.02, -0.001))
K = np.array([[40.0, 0, WIDTH / 2], [0, 40, HEIGHT / 2], [0, 0, 1]])


def geometry(scene):
    return scene.means, scene.quats, scene.scales, scene.viewmats, scene.Ks


def floats(projected):
    return projected.means2d, projected.conics, projected.depths, projected.compensations


def moved(viewmats, by=0.05, seed=0):
    """Poses a little further on: rotations about small angles, and shifts."""
    rng = np.random.default_rng(seed)
    turns = []
    for _ in range(len(viewmats)):
        q, _ = np.linalg.qr(np.eye(3) + by * rng.normal(size=(3, 3)))
        turn = np.eye(4)
        turn[:3, :3], turn[:3, 3] = q * np.sign(np.diag(q)), by * rng.normal(size=3)
        turns.append(turn)
    return jnp.asarray(np.stack(turns) @ np.asarray(viewmats), viewmats.dtype)


def one(mean, scale=(0.1, 0.1, 0.1), lens=WIDE, **settings):
    """Projects a single splat from the origin, and returns the row without its axes."""
    arrays = [jnp.array([x], jnp.float32) for x in (mean, (1.0, 0, 0, 0), scale)]
    result = with_lens(lens, *arrays, jnp.eye(4)[None], jnp.asarray(K, jnp.float32)[None], **settings)
    return jax.tree.map(lambda x: np.asarray(x[0, 0]), result)


@pytest.mark.parametrize("transform", [Unscented(), Unscented(alpha=0.3, beta=1.5, kappa=0.5)])
def test_mean_and_covariance_are_those_of_the_weighted_points(transform):
    with double_precision():
        scene, lens = random_scene(dtype=np.float64), LENSES["opencv"]
        got = project(*geometry(scene), camera_model=lens, transform=transform)
        alpha, beta, kappa = transform.alpha, transform.beta, transform.kappa
        extra = alpha**2 * (3 + kappa) - 3
        weights = np.full(7, 1 / (2 * (3 + extra)))
        weights[0] = extra / (3 + extra)
        covar_weights = weights.copy()
        covar_weights[0] += 1 - alpha**2 + beta
        covars = np.asarray(quat_scale_to_covar_preci(scene.quats, scene.scales).covars)
        for n, mean in enumerate(np.asarray(scene.means)):
            values, vectors = np.linalg.eigh(covars[n])
            axes = np.sqrt((3 + extra) * values)[:, None] * vectors.T
            points = np.stack([mean, *(mean + s * a for a in axes for s in (1, -1))])
            for c, (view, k) in enumerate(zip(np.asarray(scene.viewmats), np.asarray(scene.Ks), strict=True)):
                pixels = expected(points @ view[:3, :3].T + view[:3, 3], lens) @ k[:2, :2].T + k[:2, 2]
                centre = weights @ pixels
                apart = pixels - centre
                covar = (covar_weights[:, None] * apart).T @ apart + 0.3 * np.eye(2)
                np.testing.assert_allclose(got.means2d[c, n], centre, rtol=1e-9)
                np.testing.assert_allclose(got.conics[c, n], np.linalg.inv(covar)[[0, 0, 1], [0, 1, 1]], rtol=1e-7)
                ratio = np.linalg.det(covar - 0.3 * np.eye(2)) / np.linalg.det(covar)
                np.testing.assert_allclose(got.compensations[c, n], np.sqrt(ratio), rtol=1e-7)


@pytest.mark.parametrize("camera_model", ["pinhole", "ortho", "fisheye", LENSES["opencv"], WIDE])
def test_small_splats_project_as_by_the_jacobian(camera_model):
    with double_precision():
        scene = random_scene(dtype=np.float64)
        Ks = scene.Ks.at[:, 0, 1].set(0.0)  # of a pinhole, the linearisation leaves skew out
        small = geometry(scene._replace(scales=scene.scales * 1e-3, Ks=Ks))
        got = project(*small, camera_model=camera_model, eps2d=1e-6)
        linear = project_gaussians(*small, camera_model=camera_model, width=WIDTH, height=HEIGHT, eps2d=1e-6)
        assert (np.asarray(got.radii) > 0).any()
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4), got, linear)


def test_gradients_reach_everything_that_is_traced():
    with double_precision():
        scene = random_scene(4, dtype=np.float64)
        leaves, kind = jax.tree.flatten(Lens(radial=np.array([0.1, -0.05]), tangential=np.array([0.01, -0.02])))

        def outputs(means, quats, scales, viewmats, Ks, end, *leaves):
            shutter = Shutter(end, "bottom_to_top")
            lens = jax.tree.unflatten(kind, leaves)
            return floats(with_lens(lens, means, quats, scales, viewmats, Ks, shutter=shutter))

        assert_gradients(outputs, (*geometry(scene), moved(scene.viewmats), *map(jnp.asarray, leaves)))


def test_gradients_hold_all_around_a_fisheye():
    with double_precision():
        rng = np.random.default_rng(4)
        directions = rng.normal(size=(12, 3)) + [0, 0, 0.5]
        scene = random_scene(dtype=np.float64, cameras=1)
        means = jnp.asarray(4 * directions / np.linalg.norm(directions, axis=1, keepdims=True))
        k = jnp.asarray([[[9.0, 0, WIDTH / 2], [0, 8, HEIGHT / 2], [0, 0, 1]]])

        def outputs(means, quats, scales):
            return floats(project(means, quats, scales, jnp.eye(4)[None], k, camera_model=WIDE))

        behind = np.asarray(means[:, 2]) < 0
        assert (np.asarray(outputs(means, scene.quats, scene.scales)[2][0]) > 0)[behind].any()
        assert_gradients(outputs, (means, scene.quats, scene.scales))


@pytest.mark.parametrize("direction", ["top_to_bottom", "right_to_left"])
def test_a_shutter_at_rest_changes_nothing(direction):
    with double_precision():
        scene = random_scene(dtype=np.float64)
        still = project(*geometry(scene))
        got = project(*geometry(scene), shutter=Shutter(scene.viewmats, direction))
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-12), got, still)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_under_a_shutter_a_point_is_where_its_own_line_sees_it(direction):
    with double_precision():
        scene = random_scene(dtype=np.float64)
        shutter = Shutter(moved(scene.viewmats), direction)
        points = scene.means, scene.quats, scene.scales * 1e-4
        got = np.asarray(project(*points, scene.viewmats, scene.Ks, shutter=shutter).means2d)
        # The ray through where it landed, of the line that is read there, passes through the point.
        for c in range(2):
            moving = motion(*(split_pose(pose[c], 0) for pose in (scene.viewmats, shutter.viewmats_end)))
            for n in range(len(scene.means)):
                time = shutter.time(*map(jnp.asarray, got[c, n]), WIDTH, HEIGHT)
                start = np.asarray(scene.viewmats[c] @ jnp.append(scene.means[n], 1.0))[:3]
                x, y, z = moving.later(tuple(map(jnp.asarray, start)), jnp.clip(time, 0, 1))
                pixel = np.asarray(scene.Ks[c]) @ [x / z, y / z, 1]
                np.testing.assert_allclose(got[c, n], pixel[:2], atol=1e-4)


def test_splats_behind_a_fisheye_are_seen_and_those_beyond_its_limit_are_culled():
    lens = Lens("equidistant", polynomial=(0.2, 0.0, -0.2 / (3 * 2.2**2)))  # turns back at 2.2 radians
    for angle, seen in ((0.5, True), (1.8, True), (2.5, False), (3.1, False)):
        row = one((4 * np.sin(angle), 0, 4 * np.cos(angle)), lens=lens)
        assert (row.radii > 0).all() == seen
        if seen:
            np.testing.assert_allclose(row.depths, 4, rtol=1e-5)
            np.testing.assert_allclose(
                row.means2d[0], WIDTH / 2 + 40 * (0.2 * angle - 0.2 / 14.52 * angle**3), atol=0.05
            )
        else:
            assert all((x == 0).all() for x in row)


def test_a_point_that_is_not_seen_is_replaced_by_the_mirror_image_of_the_other():
    """Of a splat that reaches behind a pinhole, the half in front says how wide it is."""
    row = one((0.0, 0, 0.5), scale=(0.01, 0.01, 0.4), lens=Lens())
    assert (row.radii > 0).all()
    np.testing.assert_allclose(row.means2d, [WIDTH / 2, HEIGHT / 2], atol=1e-4)
    hidden = one((0.0, 0, -0.1), scale=(0.01, 0.01, 0.4), lens=Lens())
    assert all((x == 0).all() for x in hidden)


def test_the_margin_culls_splats_without_a_point_near_the_picture():
    wall = {"mean": (0.0, 0.0, 1.0), "scale": (3.0, 0.001, 0.001), "lens": Lens()}
    row = one(**wall, transform=Unscented(margin=0.1))
    assert (row.radii > 0).all()  # its mean is in the picture
    beside = {**wall, "mean": (1.0, 0.0, 1.0)}
    assert (one(**beside).radii > 0).all()
    assert (one(**beside, transform=Unscented(margin=0.1)).radii == 0).all()


@functools.partial(jax.jit, static_argnums=0)
def gradients_and_outputs(camera_model, *splats):
    """Of a camera at the origin that moves."""
    end = jnp.eye(4).at[0, 3].set(0.1)[None]

    def loss(*splats):
        got = project(
            *splats, jnp.eye(4)[None], jnp.asarray(K, jnp.float32)[None], camera_model=camera_model,
            shutter=Shutter(end),
        )  # fmt: skip
        return sum(jnp.sum(x) for x in floats(got)), got

    return jax.grad(loss, (0, 1, 2), has_aux=True)(*splats)


@pytest.mark.parametrize("mean", [(np.nan, 0, 2), (0, 0, -2.0), (0, 0, 0.0), (1e38, 1e38, 2), (0, -np.inf, 2)])
@pytest.mark.parametrize("camera_model", ["pinhole", WIDE])
def test_a_bad_row_is_zero_and_leaves_the_others_as_they_are(mean, camera_model):
    scene = random_scene(4)
    if camera_model != "pinhole" and mean[2] in (-2.0, 0.0):
        mean = (0, 0, -1e38)  # it looks behind itself, and the shutter moves it
    good = [scene.means + jnp.array([[0.0, 0, 3]]), scene.quats, scene.scales]
    bad = [good[0].at[2].set(jnp.array(mean)), *good[1:]]
    (_, before), (gradients, after) = (gradients_and_outputs(camera_model, *splats) for splats in (good, bad))
    kept = np.array([0, 1, 3])
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new[:, 2], 0)
        np.testing.assert_array_equal(new[:, kept], old[:, kept])
    for gradient in gradients:
        assert np.isfinite(gradient).all() and (gradient[2] == 0).all()


def test_a_lens_that_is_not_finite_sees_nothing_and_spoils_nothing():
    scene = random_scene(4)
    broken = with_lens(Lens(radial=jnp.array([[0.1], [jnp.nan]])), *geometry(scene))
    intact = with_lens(Lens(radial=jnp.array([[0.1], [0.1]])), *geometry(scene))
    assert all((np.asarray(x[1]) == 0).all() for x in broken)
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[0], y[0]), broken, intact)


def test_cameras_with_lenses_of_their_own_equal_one_at_a_time_also_under_vmap():
    scene = random_scene(5, cameras=3)
    lens = Lens(radial=jnp.array([[0.1, 0.0], [-0.1, 0.02], [0.05, 0.01]]))
    got = with_lens(lens, *geometry(scene), shutter=Shutter(moved(scene.viewmats)))
    splats = geometry(scene)[:3]

    def single(view, k, lens, end):
        lens, shutter = jax.tree.map(lambda x: x[None], (lens, Shutter(end)))
        return jax.tree.map(lambda x: x[0], with_lens(lens, *splats, view[None], k[None], shutter=shutter))

    mapped = jax.vmap(single)(scene.viewmats, scene.Ks, lens, moved(scene.viewmats))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5), got, mapped)


def test_new_coefficients_and_poses_do_not_trace_again():
    traces, scene = [], random_scene(3)

    @jax.jit
    def run(lens, shutter, eps2d):
        traces.append(1)
        return project_unscented(
            *geometry(scene), width=WIDTH, height=HEIGHT, camera_model=lens, shutter=shutter, eps2d=eps2d
        )

    for k in range(3):
        run(Lens(radial=jnp.array([0.1 * k])), Shutter(moved(scene.viewmats, seed=k)), 0.1 * k)
    assert len(traces) == 1


def test_wrong_arguments_are_named():
    scene = random_scene(3)
    with pytest.raises(ValueError, match="project_unscented: transform must have alpha > 0 and kappa > -3"):
        project(*geometry(scene), transform=Unscented(kappa=-3.0))
    with pytest.raises(ValueError, match=r"shutter.viewmats_end must have shape .* with C = 2, got \[1, 4, 4\]"):
        project(*geometry(scene), shutter=Shutter(scene.viewmats[:1]))
    with pytest.raises(ValueError, match="project_unscented: Ks must have shape"):
        project(*geometry(scene)[:4], scene.Ks[0])
