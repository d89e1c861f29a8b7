"""Splats in one array: where each number lies, and back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import pack_splats, sh_to_rgb, unpack_splats
from tests.train.scenes import random_splats, trees_equal

N = 5


def test_rows_are_parameter_after_parameter():
    splats = random_splats(N, rest=3)
    packed = pack_splats(splats)
    assert packed.shape == (11 + 3 * 4, N)
    for i in range(N):
        coeffs = np.concatenate([splats.sh_dc[i], splats.sh_rest[i]]).ravel()  # red, green, blue of each function
        column = [*splats.means[i], *splats.log_scales[i], *splats.quats[i], *coeffs, splats.logit_opacities[i]]
        np.testing.assert_array_equal(packed[:, i], column)


def test_groups_are_splat_after_splat_with_colors_between():
    splats = random_splats(N, rest=8)
    packed = pack_splats(splats, layout="groups")
    coeffs = np.concatenate([splats.sh_dc, splats.sh_rest], 1)
    parts = (*splats[:1], splats.log_scales, splats.quats, splats.logit_opacities, sh_to_rgb(splats.sh_dc), coeffs)
    np.testing.assert_array_equal(packed, np.concatenate([np.asarray(part).ravel() for part in parts]))
    assert packed.shape == (14 * N + 3 * 9 * N,)


@pytest.mark.parametrize("rest", [0, 3, 15])
@pytest.mark.parametrize("layout", ["rows", "groups"])
def test_what_is_packed_comes_back(layout, rest):
    settings: Any = {"layout": layout}
    for count in (0, 1, N):
        if layout == "groups" and count == 0 and rest:
            continue  # nothing says how many coefficients there were
        splats = random_splats(count, rest=rest)
        assert trees_equal(unpack_splats(pack_splats(splats, **settings), num_splats=count, **settings), splats)
    batch = jax.tree.map(lambda *x: jnp.stack(x), *(random_splats(N, rest=rest, seed=seed) for seed in (1, 2)))
    packed = pack_splats(batch, **settings)
    assert trees_equal(packed[1], pack_splats(random_splats(N, rest=rest, seed=2), **settings))
    assert trees_equal(unpack_splats(packed, num_splats=N, **settings), batch)


@pytest.mark.parametrize("layout", ["rows", "groups"])
def test_activated_opacities_are_stored_as_they_look(layout):
    splats = random_splats(N)._replace(logit_opacities=jnp.array([-40.0, -2.0, 0.0, 3.0, 40.0]))
    settings: Any = {"layout": layout, "opacities": "activated"}
    packed = pack_splats(splats, **settings)
    stored = packed[-1] if layout == "rows" else packed[10 * N : 11 * N]
    np.testing.assert_allclose(stored, 1 / (1 + np.exp(-np.asarray(splats.logit_opacities))), rtol=1e-6)
    back = unpack_splats(packed, num_splats=N, **settings).logit_opacities
    np.testing.assert_allclose(back[1:4], splats.logit_opacities[1:4], rtol=1e-5, atol=1e-6)
    assert np.isfinite(back).all() and back[0] < -39 and back[4] > 16


@pytest.mark.parametrize("layout", ["rows", "groups"])
def test_a_gradient_has_the_layout_of_the_array(layout):
    splats, weights = random_splats(N), random_splats(N, seed=1)
    settings: Any = {"layout": layout}

    def loss(packed):
        terms = jax.tree.map(lambda x, w: jnp.sum(x * w), unpack_splats(packed, num_splats=N, **settings), weights)
        return jax.tree.reduce(jnp.add, terms)

    gradient = jax.grad(loss)(pack_splats(splats, **settings))
    assert trees_equal(unpack_splats(gradient, num_splats=N, **settings), weights)
    if layout == "groups":
        assert not gradient[11 * N : 14 * N].any()


@pytest.mark.parametrize(
    ("shape", "settings", "message"),
    [
        ((22, 5), {}, r"packed must have shape \[..., 11 \+ 3 K, N\] with K >= 1 and N = 5, got \[22, 5\]"),
        ((11, 5), {}, r"K >= 1 and N = 5, got \[11, 5\]"),
        ((23, 5), {"num_splats": 4}, r"N = 4, got \[23, 5\]"),
        ((85,), {"layout": "groups"}, 'num_splats must be given with layout="groups"'),
        ((86,), {"layout": "groups", "num_splats": 5}, r"\[..., 14 N \+ 3 K N\] with K >= 1 and N = 5, got \[86\]"),
        ((70,), {"layout": "groups", "num_splats": 5}, r"K >= 1 and N = 5, got \[70\]"),
        ((23, 5), {"layout": "columns"}, "layout must be one of 'rows', 'groups', got 'columns'"),
        ((23, 5), {"opacities": "raw"}, "opacities must be one of 'logit', 'activated', got 'raw'"),
    ],
)
def test_sizes_that_do_not_fit_are_named(shape, settings, message):
    with pytest.raises(ValueError, match=f"unpack_splats: .*{message}"):
        unpack_splats(jnp.zeros(shape), **settings)


def test_splats_that_disagree_are_named():
    splats = random_splats(N)._replace(quats=jnp.zeros((4, 4)))
    with pytest.raises(ValueError, match=r"pack_splats: quats must have shape \[..., N, 4\] with N = 5, got \[4, 4\]"):
        pack_splats(splats)
