"""The Flax module: what it holds, that it renders what the function renders, and that nnx.Optimizer trains it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxsplat.nn import GaussianModel
from jaxsplat.rendering import rasterization
from jaxsplat.types import Splats

WIDTH, HEIGHT = 40, 24


def _cameras() -> tuple[jax.Array, jax.Array]:
    """Two cameras that look at the origin from 4 units, 30 degrees apart."""
    c, s = np.cos(np.pi / 6), np.sin(np.pi / 6)
    turn = np.array([[c, 0, s, 0], [0, 1, 0, 0], [-s, 0, c, 4], [0, 0, 0, 1]], np.float32)
    straight = np.eye(4, dtype=np.float32)
    straight[2, 3] = 4
    K = np.array([[40, 0, WIDTH / 2], [0, 40, HEIGHT / 2], [0, 0, 1]], np.float32)
    return jnp.asarray(np.stack([straight, turn])), jnp.asarray(np.stack([K, K]))


def _points(seed: int, count: int = 60) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.uniform(-1, 1, (count, 3)), jnp.float32), jnp.asarray(
        rng.uniform(0, 1, (count, 3)), jnp.float32
    )


def _model(seed: int = 0, sh_degree: int = 2) -> GaussianModel:
    return GaussianModel.from_points(*_points(seed), sh_degree=sh_degree, rngs=nnx.Rngs(seed))


def test_call_renders_the_activated_values() -> None:
    model, (viewmats, Ks) = _model(), _cameras()
    got = model(viewmats, Ks, WIDTH, HEIGHT, backgrounds=jnp.ones((2, 3)), backend="reference")
    s = model.splats
    expected = rasterization(
        s.means,
        s.quats,
        jnp.exp(s.log_scales),
        1 / (1 + jnp.exp(-s.logit_opacities)),
        jnp.concatenate([s.sh_dc, s.sh_rest], axis=-2),
        viewmats,
        Ks,
        width=WIDTH,
        height=HEIGHT,
        sh_degree=2,
        backgrounds=jnp.ones((2, 3)),
        backend="reference",
    )
    np.testing.assert_allclose(got.colors, expected.colors, atol=1e-6)
    assert float(got.alphas.max()) > 0.1


def test_points_become_splats_of_their_spacing_and_color() -> None:
    grid = jnp.stack(jnp.meshgrid(*[jnp.arange(5.0)] * 3, indexing="ij"), axis=-1).reshape(-1, 3) * 0.5
    colors = jnp.broadcast_to(jnp.array([[0.9, 0.5, 0.1]]), grid.shape)
    model = GaussianModel.from_points(grid, colors, sh_degree=0, rngs=nnx.Rngs(0))
    np.testing.assert_allclose(jnp.exp(model.log_scales[...]), 0.5, rtol=1e-5)  # three neighbours along the axes
    np.testing.assert_allclose(jax.nn.sigmoid(model.logit_opacities[...]), 0.1, rtol=1e-5)
    np.testing.assert_allclose(model.sh_dc[...][0, 0] * 0.28209479177387814 + 0.5, [0.9, 0.5, 0.1], rtol=1e-5)
    assert (model.sh_degree, model.sh_rest.shape) == (0, (125, 0, 3))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_coinciding_and_lone_points_give_finite_scales(count: int) -> None:
    model = GaussianModel.from_points(jnp.zeros((count, 3)), jnp.ones((count, 3)), rngs=nnx.Rngs(0))
    assert np.isfinite(model.log_scales[...]).all()


def test_same_rngs_give_the_same_model() -> None:
    for a, b in zip(_model(3).splats, _model(3).splats, strict=True):
        np.testing.assert_array_equal(a, b)


def test_bad_shapes_are_named() -> None:
    good = _model().splats
    with pytest.raises(ValueError, match="quats must have shape"):
        GaussianModel(good._replace(quats=good.quats[:, :3]))
    with pytest.raises(ValueError, match="sh_rest must hold 0, 3, 8, 15 or 24 coefficients, got 5"):
        GaussianModel(good._replace(sh_rest=good.sh_rest[:, :5]))
    with pytest.raises(ValueError, match="colors must have shape"):
        GaussianModel.from_points(good.means, jnp.ones((3, 3)), rngs=nnx.Rngs(0))
    with pytest.raises(ValueError, match="at least 1"):
        GaussianModel.from_points(jnp.zeros((0, 3)), jnp.zeros((0, 3)), rngs=nnx.Rngs(0))


def test_optimizer_with_a_rate_for_each_group_trains_the_model() -> None:
    viewmats, Ks = _cameras()
    target = _model(0)(viewmats, Ks, WIDTH, HEIGHT).colors
    # A scene with the right places, but other colours, rotations and sizes.
    start = _model(1).splats._replace(means=_points(0)[0])
    model = GaussianModel(start)
    rates = dict(means=1e-3, quats=1e-2, log_scales=1e-2, logit_opacities=3e-2, sh_dc=5e-2, sh_rest=2.5e-3)
    groups = optax.partition(
        {name: optax.adam(rate, eps=1e-15) for name, rate in rates.items()},
        lambda params: jax.tree_util.tree_map_with_path(lambda path, _: path[0].key, params),
    )
    optimizer = nnx.Optimizer(model, groups, wrt=nnx.Param)

    @nnx.jit
    def train_step(model: GaussianModel, optimizer: nnx.Optimizer) -> jax.Array:
        def loss_of(model: GaussianModel) -> jax.Array:
            return jnp.mean(jnp.square(model(viewmats, Ks, WIDTH, HEIGHT).colors - target))

        loss, gradients = nnx.value_and_grad(loss_of)(model)
        optimizer.update(model, gradients)
        return loss

    losses = [float(train_step(model, optimizer)) for _ in range(60)]
    assert losses[-1] < 0.1 * losses[0], (losses[0], losses[-1])
    moved = [float(jnp.abs(a - b).max()) for a, b in zip(model.splats, start, strict=True)]
    assert min(moved) > 1e-4, moved  # every group learned


def test_state_goes_through_split_and_merge() -> None:
    model, (viewmats, Ks) = _model(), _cameras()
    graph, params = nnx.split(model, nnx.Param)
    assert sorted(params.keys()) == sorted(Splats._fields)
    again = nnx.merge(graph, params)
    np.testing.assert_array_equal(again(viewmats, Ks, WIDTH, HEIGHT).colors, model(viewmats, Ks, WIDTH, HEIGHT).colors)
