"""Corrections of cameras: the formula, its gradients, and perturbed cameras recovered."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

from jaxsplat.optim import LearningRates
from jaxsplat.strategy import Fixed
from jaxsplat.train import Batch, TrainConfig, init_state, make_train_step, render_splats
from jaxsplat.train.poses import CameraRefinement, refined_intrinsics, refined_viewmats, rotation_from_axis_angle
from tests.data import double_precision
from tests.differences import assert_gradients
from tests.train.scenes import look_at_origin, random_splats

SIZE = {"width": 32, "height": 24}
STILL = LearningRates(means=0.0, quats=0.0, log_scales=0.0, logit_opacities=0.0, sh_dc=0.0, sh_rest=0.0)


def test_rotations_are_those_of_scipy_at_every_angle():
    axis = np.array([0.48, -0.6, 0.64])
    for angle in (0.0, 1e-6, 1e-3, 0.03, 0.1, 1.0, 3.1):
        matrix = rotation_from_axis_angle(jnp.asarray(axis * angle, jnp.float32))
        np.testing.assert_allclose(matrix, Rotation.from_rotvec(axis * angle).as_matrix(), atol=3e-7)


def test_gradients_equal_finite_differences_at_zero_and_elsewhere():
    with double_precision():
        for scale in (0.0, 0.02, 0.5):
            vectors = jnp.asarray(np.random.default_rng(0).normal(size=(3, 3)) * scale)
            viewmats = jnp.asarray(np.random.default_rng(1).normal(size=(3, 4, 4)))
            assert_gradients(refined_viewmats, (viewmats, vectors, vectors + 0.1))


def test_zero_changes_nothing_and_motion_is_in_the_frame_of_the_camera():
    viewmats = jnp.asarray(np.linalg.inv(look_at_origin(0.3))[None], jnp.float32)
    zero = jnp.zeros((1, 3))
    assert np.array_equal(refined_viewmats(viewmats, zero, zero), viewmats)
    turned = refined_viewmats(viewmats, jnp.array([[0.0, 0.2, 0.0]]), jnp.array([[0.1, 0.0, 0.0]]))
    motion = np.eye(4)
    motion[:3, :3] = Rotation.from_rotvec([0, 0.2, 0]).as_matrix()
    motion[0, 3] = 0.1
    np.testing.assert_allclose(turned[0], motion @ np.asarray(viewmats[0]), atol=1e-6)


def test_intrinsics_scale_with_the_size_of_the_picture():
    Ks = jnp.array([[[40.0, 1.0, 16], [0, 30, 12], [0, 0, 1]]])
    moved = refined_intrinsics(Ks, jnp.log(jnp.array([2.0, 3.0])), jnp.array([0.5, 0.25]), width=32, height=24)
    np.testing.assert_allclose(moved[0], [[80, 1, 32], [0, 90, 18], [0, 0, 1]], rtol=1e-6)


def views(count=4):
    flip = np.diag([1.0, -1.0, -1.0, 1.0])
    poses = [np.linalg.inv(look_at_origin(0.4 * k) @ flip) for k in range(count)]
    viewmats = jnp.asarray(np.stack(poses), jnp.float32)
    Ks = jnp.tile(jnp.array([[[40.0, 0, 16], [0, 40, 12], [0, 0, 1]]]), (count, 1, 1))
    return viewmats, Ks


def learned(config, batch, truth, steps):
    """The corrections after training with a scene that is known and stays."""
    state = init_state(config, np.zeros((len(truth.means), 3), np.float32), np.zeros((len(truth.means), 3)), views=4)
    state = state._replace(splats=truth)
    step = jax.jit(make_train_step(config))
    for _ in range(steps):
        state, metrics = step(state, batch)
    return state.extras.values.cameras, metrics


def test_perturbed_poses_are_recovered_and_half_of_a_wrong_focal_length():
    truth = random_splats(60, rest=0)
    viewmats, Ks = views()
    photographs = render_splats(truth, viewmats, Ks, **SIZE).colors
    noise = jax.random.normal(jax.random.key(5), (2, 4, 3)) * 0.03
    wrong = refined_viewmats(viewmats, noise[0], noise[1])
    config = TrainConfig(
        steps=200, sh_degree=0, strategy=Fixed(), rates=STILL, cameras=CameraRefinement(2e-3, 2e-3), ssim_weight=0.0
    )
    batch = Batch(photographs, wrong, Ks.at[:, :2, :2].multiply(1.05), jnp.arange(4))
    deltas, metrics = learned(config, batch, truth, 200)
    found = refined_viewmats(wrong, deltas.rotations, deltas.translations)

    def error(poses):
        return float(jnp.abs(poses - viewmats).max())

    assert error(found) < 0.25 * error(wrong)
    # Focal length and distance look much alike, so it comes part of the way only.
    np.testing.assert_allclose(np.exp(deltas.log_focals), 1 / 1.05, atol=0.6 * (1 - 1 / 1.05))
    assert float(metrics.psnr) > 35


def test_cameras_stay_where_they_are_unless_asked():
    config = TrainConfig(steps=4, sh_degree=0, strategy=Fixed())
    assert init_state(config, np.zeros((3, 3)), np.zeros((3, 3))).extras is None
    only_poses = dataclasses.replace(config, rates=STILL, cameras=CameraRefinement(pose_rate=1e-3))
    viewmats, Ks = views()
    batch = Batch(jnp.zeros((4, 24, 32, 3)), viewmats, Ks, jnp.arange(4))
    deltas, _ = learned(only_poses, batch, random_splats(10, rest=0), 2)
    assert deltas.rotations.any() and not deltas.log_focals.any() and not deltas.centers.any()
