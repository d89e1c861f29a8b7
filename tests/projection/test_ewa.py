"""Projection of Gaussians against matrices in numpy, the golden files and finite differences."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import _constants as const
from jaxsplat import _ffi, project_gaussians, quat_scale_to_covar_preci
from tests import golden
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.scenes import HEIGHT, WIDTH, random_scene
from tests.tolerances import SINGLE

_projections = {
    path: jax.jit(
        functools.partial(project_gaussians, width=WIDTH, height=HEIGHT),
        static_argnames=("camera_model", "antialiased"),
    )
    for path in ("kernel", "plain")
}


def project(*arguments, **settings):
    """Compiled, once for each path."""
    return _projections["kernel" if _ffi.takes() else "plain"](*arguments, **settings)


MODELS = ("pinhole", "ortho", "fisheye")


def pytest_generate_tests(metafunc):
    """Every test runs with the kernel, for what it takes, and without."""
    if "camera_model" in metafunc.fixturenames:
        cases = [("kernel", "pinhole"), *(("plain", model) for model in MODELS)]
        metafunc.parametrize("path, camera_model", cases, indirect=["path"])
    else:
        covariances = "triu" in metafunc.fixturenames
        metafunc.parametrize("path", ["plain"] if covariances else ["kernel", "plain"], indirect=True)


@pytest.fixture(autouse=True)
def path(request):
    """Whether projections are computed by the kernel or by plain JAX."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain":
            patch.setattr(_ffi, "takes", lambda *arrays: False)
        yield request.param


def geometry(scene):
    return scene.means, scene.quats, scene.scales, scene.viewmats, scene.Ks


def floats(projected):
    return projected.means2d, projected.conics, projected.depths, projected.compensations


def camera(focal=40.0, **replace):
    """One camera at the origin that looks along z."""
    arguments = {
        "viewmats": jnp.eye(4)[None],
        "Ks": jnp.array([[[focal, 0, WIDTH / 2], [0, focal, HEIGHT / 2], [0, 0, 1]]]),
    }
    return {**arguments, **replace}


def one(mean=(0.0, 0, 2), quat=(1.0, 0, 0, 0), scale=(0.1, 0.1, 0.1), **settings):
    """Projects a single splat, and returns the row without its axes."""
    arrays = [jnp.array([x], jnp.float32) for x in (mean, quat, scale)]
    return jax.tree.map(lambda x: np.asarray(x[0, 0]), project(*arrays, **camera(), **settings))


def is_culled(row):
    return all((x == 0).all() for x in row)


@pytest.mark.parametrize("seed", range(3))
def test_pinhole_results_are_those_of_the_matrices(seed):
    scene = random_scene(seed=seed)
    got = project(*geometry(scene))
    means, _, _, viewmats, Ks = (np.asarray(x, np.float64) for x in geometry(scene))
    covars = np.asarray(quat_scale_to_covar_preci(scene.quats, scene.scales).covars, np.float64)
    for c, (view, K) in enumerate(zip(viewmats, Ks, strict=True)):
        for n, mean in enumerate(means):
            t = view[:3, :3] @ mean + view[:3, 3]
            J = np.array([[K[0, 0], 0, -K[0, 0] * t[0] / t[2]], [0, K[1, 1], -K[1, 1] * t[1] / t[2]]]) / t[2]
            flat = J @ view[:3, :3]
            before = flat @ covars[n] @ flat.T
            after = before + 0.3 * np.eye(2)
            np.testing.assert_allclose(got.means2d[c, n], (K @ t)[:2] / t[2], rtol=1e-5)
            np.testing.assert_allclose(got.depths[c, n], t[2], rtol=SINGLE)
            np.testing.assert_allclose(got.conics[c, n], np.linalg.inv(after)[[0, 0, 1], [0, 1, 1]], atol=1e-5)
            ratio = np.linalg.det(before) / np.linalg.det(after)
            np.testing.assert_allclose(got.compensations[c, n], np.sqrt(ratio), rtol=1e-5)
            np.testing.assert_array_equal(got.radii[c, n], np.ceil(3.33 * np.sqrt(np.diag(after))))


@pytest.mark.parametrize("name", golden.NAMES)
def test_golden_projections_agree(name):
    case = golden.load(name)
    arguments = [jnp.asarray(getattr(case, key)) for key in ("means", "quats", "scales", "viewmats", "Ks")]
    got = project_gaussians(
        *arguments, width=case.width, height=case.height, camera_model=case.camera_model, antialiased=case.antialiased
    )
    for key, expected in case.projected.items():
        if key == "radii":  # whole numbers, of a reach that may be one up to rounding
            drawn = expected.all(-1)
            a, b, c = np.moveaxis(case.projected["conics"][drawn], -1, 0)
            reach = const.EXTENT * np.sqrt(np.stack([c, a], -1) / (a * c - b * b)[..., None])
            assert not got.radii[~drawn].any()
            assert (got.radii[drawn] >= np.ceil(reach * (1 - 1e-6))).all()
            assert (got.radii[drawn] <= np.ceil(reach * (1 + 1e-6))).all()
            np.testing.assert_array_equal(expected[drawn], np.ceil(reach))
        else:
            np.testing.assert_allclose(getattr(got, key), expected, atol=2e-5, rtol=1e-5, err_msg=key)


def test_gradients_are_those_of_finite_differences(camera_model):
    with double_precision():
        scene = random_scene(dtype=np.float64)

        def outputs(means, quats, scales, viewmats, Ks, eps2d):
            projected = project(means, quats, scales, viewmats, Ks, eps2d=eps2d, camera_model=camera_model)
            return floats(projected)

        assert_gradients(outputs, (*geometry(scene), jnp.asarray(0.3)))


@pytest.mark.parametrize("triu", [False, True])
def test_covariances_stand_for_quaternions_and_scales_with_right_gradients(triu):
    with double_precision():
        scene = random_scene(dtype=np.float64)
        covars = quat_scale_to_covar_preci(scene.quats, scene.scales, triu=triu).covars
        assert covars is not None

        def outputs(means, covars, viewmats, Ks):
            return project(means, None, None, viewmats, Ks, covars=covars)

        got = outputs(scene.means, covars, scene.viewmats, scene.Ks)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-10), got, project(*geometry(scene)))
        assert_gradients(outputs, (scene.means, covars, scene.viewmats, scene.Ks))


def test_gradients_hold_where_the_jacobian_is_clamped():
    with double_precision():
        scene = random_scene(dtype=np.float64)
        scene = scene._replace(means=scene.means * 4, scales=scene.scales * 4)
        projected = project(*geometry(scene))
        beyond = np.abs(np.asarray(projected.means2d[..., 0]) / WIDTH - 0.5) > 0.65
        assert (beyond & (np.asarray(projected.radii) > 0).all(-1)).any()
        assert_gradients(lambda *a: floats(project(*a)), geometry(scene), step=1e-8)


@functools.partial(jax.jit, static_argnums=(0, 1))
def outputs_and_gradients(path, camera_model, *splats):
    """Results for one camera, and the gradients of their sum to splats and camera."""
    projection = functools.partial(_projections[path], camera_model=camera_model)
    projected, pullback = jax.vjp(lambda s, c: projection(*s, **c), splats, camera())
    ones = jax.tree.map(jnp.ones_like, projected)._replace(radii=np.zeros(projected.radii.shape, jax.dtypes.float0))
    return projected, pullback(ones)


@pytest.mark.parametrize(
    "row",
    [
        {"quat": (0.0, 0, 0, 0)},
        {"quat": (np.nan, 0, 0, 0)},
        {"quat": (np.inf, 0, 0, 0)},
        {"scale": (0.0, 0.1, 0.1)},
        {"scale": (np.inf, 0.1, 0.1)},
        {"scale": (np.nan, 0.1, 0.1)},
        {"scale": (1e38, 0.1, 0.1)},
        {"mean": (np.nan, 0, 2)},
        {"mean": (0, -np.inf, 2)},
        {"mean": (1e38, 1e38, 2)},
        {"mean": (0, 0, 1e38)},
        {"mean": (0, 0, -2)},
        {"mean": (0, 0, 0)},
        {"mean": (0, 0, 1e-38)},
        {"mean": (9, 0, 2)},
    ],
)
def test_a_bad_row_is_zero_and_leaves_the_others_as_they_are(row, path, camera_model):
    if camera_model == "fisheye" and row.get("mean") == (9, 0, 2):
        row = {"mean": (9, 0, 0.02)}
    scene = random_scene(4, seed=5)
    good = [np.array(x) for x in (scene.means + jnp.array([[0, 0, 2.0]]), scene.quats, scene.scales)]
    bad = [x.copy() for x in good]
    for array, key in zip(bad, ("mean", "quat", "scale"), strict=True):
        array[2] = row.get(key, array[2])
    (before, _), (after, gradients) = (outputs_and_gradients(path, camera_model, *x) for x in (good, bad))
    kept = np.array([0, 1, 3])
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new[:, 2], 0)
        np.testing.assert_array_equal(new[:, kept], old[:, kept])
    for gradient in gradients[0]:
        np.testing.assert_array_equal(gradient[2], 0)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradients))


@pytest.mark.parametrize("eps2d", [0.3, 1e-6])
def test_extreme_values_never_give_nan(camera_model, eps2d):
    rng = np.random.default_rng(11)
    extremes = np.array([0, -0.0, 1e-38, -1e-38, 1e38, -1e38, 1e-42, 1e-20, 1e20, np.nan, np.inf, -np.inf], np.float32)

    def draw(*shape):
        ordinary, odd = rng.normal(size=shape), rng.choice(extremes, shape)
        return jnp.asarray(np.where(rng.random(shape) < 0.15, odd, ordinary), jnp.float32)

    @jax.jit
    def run(means, quats, scales, opacities):
        def loss(*arrays):
            projected = project(
                *arrays[:3], **camera(), opacities=arrays[3], eps2d=eps2d, near_plane=0.0, antialiased=True,
                camera_model=camera_model,
            )  # fmt: skip
            return sum(jnp.sum(x) for x in floats(projected))

        return jax.value_and_grad(loss, (0, 1, 2, 3))(means, quats, scales, opacities)

    for _ in range(20):
        value, gradients = run(draw(500, 3), draw(500, 4), draw(500, 3), draw(500))
        assert not np.isnan(value)
        assert not any(np.isnan(g).any() for g in gradients)


def test_a_camera_that_is_not_finite_sees_nothing_and_spoils_nothing():
    scene = random_scene(4)
    broken = scene._replace(viewmats=scene.viewmats.at[1, 0, 0].set(jnp.nan))
    projected, intact = project(*geometry(broken)), project(*geometry(scene))
    assert is_culled([np.asarray(x[1]) for x in projected])
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[0], y[0]), projected, intact)
    gradients = jax.grad(lambda a: sum(jnp.sum(x) for x in floats(project(*a))))(geometry(broken))
    assert all(np.isfinite(g).all() for g in gradients)


def test_planes_are_exclusive_and_may_differ_by_camera():
    assert is_culled(one(near_plane=2.0))
    assert not is_culled(one(near_plane=float(np.nextafter(np.float32(2), np.float32(0)))))
    assert is_culled(one(far_plane=2.0))
    scene = random_scene(6)
    projected = project(*geometry(scene), near_plane=jnp.array([0.01, 100]), far_plane=jnp.array([1e10, 1e10]))
    assert np.all(projected.radii[0] > 0) and np.all(projected.radii[1] == 0)


def test_very_small_scenes_are_seen():
    assert not is_culled(one(mean=(0, 0, 0.011), scale=(1e-4, 1e-4, 1e-4)))


def test_radii_follow_the_opacity():
    sigma = np.sqrt((40 / 2 * 0.1) ** 2 + const.EPS2D)
    for opacity in (1.0, 0.5, 0.01):
        row = one(opacities=jnp.array([opacity]))
        np.testing.assert_array_equal(row.radii, np.ceil(sigma * np.sqrt(2 * np.log(255 * opacity))))
    np.testing.assert_array_equal(one().radii, np.ceil(3.33 * sigma))


def test_an_opacity_at_the_cut_off_is_kept_and_one_below_is_culled():
    cut = np.float32(1 / 255)
    assert not is_culled(one(opacities=jnp.array([cut])))
    assert is_culled(one(opacities=jnp.array([np.nextafter(cut, np.float32(0))])))
    assert is_culled(one(opacities=jnp.array([0.001])))
    assert is_culled(one(opacities=jnp.array([np.nan])))
    thin = {"scale": (1e-3, 1e-3, 1e-3), "opacities": jnp.array([0.1])}
    assert not is_culled(one(**thin)) and is_culled(one(**thin, antialiased=True))


def test_small_splats_are_culled_by_radius_and_boxes_by_the_border():
    radii = one().radii
    assert is_culled(one(radius_clip=float(radii.max()))) and not is_culled(one(radius_clip=float(radii.max()) - 1))
    edge = (WIDTH / 2 + radii[0]) * 2 / 40  # world x where the box starts to leave the picture
    assert not is_culled(one(mean=(edge * 0.99, 0, 2)))
    assert is_culled(one(mean=(edge * 1.5, 0, 2)))


def test_huge_splats_keep_a_positive_radius():
    row = one(scale=(4e7, 4e7, 4e7))
    np.testing.assert_array_equal(row.radii, 2**30)


@pytest.mark.parametrize("eps2d", [0.3, 1e-4, 1e-7])
@pytest.mark.parametrize("form", ["quats", "covars"])
def test_compensation_is_accurate_for_splats_below_a_pixel(eps2d, form):
    rng = np.random.default_rng(2)
    n = 200
    means = rng.uniform((-1.5, -1, 1), (1.5, 1, 3), (n, 3)).astype(np.float32)
    sigma = np.sqrt(10 ** rng.uniform(-8, -3, (n, 3))) * means[:, 2:] / 40  # screen variance 1e-8 .. 1e-3
    quats, scales = rng.normal(size=(n, 4)).astype(np.float32), sigma.astype(np.float32)
    if form == "covars":
        quats = np.eye(4, dtype=np.float32)[[0] * n]  # a float32 covariance does not hold thin rotated splats
    view = camera()

    def run(means, quats, scales, viewmats, Ks):
        if form == "covars":
            covars = jnp.square(scales)[:, :, None] * jnp.eye(3, dtype=scales.dtype)[None]
            return project(means, None, None, viewmats, Ks, covars=covars, eps2d=eps2d).compensations
        return project(means, quats, scales, viewmats, Ks, eps2d=eps2d).compensations

    arrays = (means, quats, scales, *view.values())
    got, gradient = jax.value_and_grad(lambda *a: jnp.sum(run(*a)), 2)(*map(jnp.asarray, arrays))
    values = run(*map(jnp.asarray, arrays))
    with double_precision():
        doubles = [jnp.asarray(x, jnp.float64) for x in arrays]
        expected, slope = run(*doubles), jax.grad(lambda *a: jnp.sum(run(*a)), 2)(*doubles)
    visible = np.asarray(expected) > 0
    assert visible.sum() > 50
    np.testing.assert_allclose(values, expected, rtol=2e-5)
    assert np.isfinite(got) and np.isfinite(gradient).all()
    np.testing.assert_allclose(gradient, slope, rtol=2e-3, atol=2e-4 * np.abs(slope).max())


def test_splats_without_an_area_have_the_least_compensation_and_finite_gradients():
    scales = jnp.array([[1e-18, 1e-18, 1e-18], [0.1, 1e-18, 1e-18], [0.1, 0.1, 0.1]])
    means, quats = jnp.tile(jnp.array([[0.0, 0, 2]]), (3, 1)), jnp.tile(jnp.array([[1.0, 0, 0, 0]]), (3, 1))

    @jax.jit
    def run(*splats):
        def loss(*splats):
            projected = project(*splats, **camera())
            return sum(jnp.sum(x) for x in floats(projected)), projected

        return jax.grad(loss, (0, 1, 2), has_aux=True)(*splats)

    gradients, projected = run(means, quats, scales)
    assert (projected.radii > 0).all()
    np.testing.assert_array_equal(projected.compensations[0, :2], np.float32(const.COMPENSATION_MIN))
    assert projected.compensations[0, 2] > 0.9
    assert all(np.isfinite(g).all() for g in gradients)


def test_no_splats_give_empty_arrays():
    projected = project(*(jnp.zeros((0, k)) for k in (3, 4, 3)), **camera(), opacities=jnp.zeros(0))
    assert projected.means2d.shape == (1, 0, 2) and projected.radii.dtype == jnp.int32


def test_batches_of_scenes_and_cameras_equal_their_parts():
    scenes = [random_scene(5, cameras=3, seed=s) for s in range(2)]
    batch = jax.tree.map(lambda *x: jnp.stack(x), *scenes)
    got = project(*geometry(batch), opacities=batch.opacities)
    mapped = jax.vmap(lambda s: project(*geometry(s), opacities=s.opacities))(batch)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
    jax.tree.map(close, got, mapped)
    for b, scene in enumerate(scenes):
        jax.tree.map(lambda x, y, b=b: close(x[b], y), got, project(*geometry(scene), opacities=scene.opacities))
    shared = project(scenes[0].means, scenes[0].quats, scenes[0].scales, batch.viewmats, batch.Ks)
    assert shared.depths.shape == (2, 3, 5)


def test_new_cameras_and_settings_do_not_trace_again():
    traces = []

    @jax.jit
    def run(arrays, eps2d, near, clip):
        traces.append(1)
        return project(*arrays, eps2d=eps2d, near_plane=near, radius_clip=clip)

    scene = random_scene(3)
    for k in range(3):
        run((*geometry(scene)[:4], scene.Ks * (1 + k)), 0.1 * k, 0.01 * k, 0.5 * k)
    assert len(traces) == 1


def test_float64_in_gives_float64_out():
    with double_precision():
        assert all(x.dtype == jnp.float64 for x in floats(project(*geometry(random_scene(dtype=np.float64)))))


def test_wrong_arguments_are_named():
    scene = random_scene(3)
    with pytest.raises(ValueError, match="either quats and scales, or covars alone, got quats"):
        project(scene.means, scene.quats, None, scene.viewmats, scene.Ks)
    with pytest.raises(ValueError, match="got quats and scales and covars"):
        project(*geometry(scene), covars=jnp.ones((3, 6)))
    with pytest.raises(ValueError, match=r"viewmats must have shape \[..., C, 4, 4\].*got \[4, 4\]"):
        project(*geometry(scene)[:3], scene.viewmats[0], scene.Ks)
    with pytest.raises(ValueError, match=r"near_plane must have shape \[..., C\] with C = 2, got \[3\]"):
        project(*geometry(scene), near_plane=jnp.ones(3))
    with pytest.raises(ValueError, match="camera_model must be one of"):
        project(*geometry(scene), camera_model="spherical")  # pyright: ignore
    with pytest.raises(TypeError, match="means must hold floating-point numbers, got int32"):
        project(jnp.ones((3, 3), jnp.int32), *geometry(scene)[1:])
