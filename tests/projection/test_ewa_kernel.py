"""The kernel of the projection against the form that it stands for, and what only it can get wrong."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import _ffi, project_gaussians
from tests.scenes import HEIGHT, WIDTH, random_scene

FLOATS = ("means2d", "conics", "depths", "compensations")


def value_and_gradients(scene, with_opacities, antialiased):
    """Everything that the projection gives, and the gradients of a random linear form of it; many splats are culled."""

    def total(means, quats, scales, viewmats, Ks, eps2d):
        projected = project_gaussians(
            means, quats, scales, viewmats, Ks, width=WIDTH, height=HEIGHT, eps2d=eps2d, antialiased=antialiased,
            opacities=scene.opacities if with_opacities else None, near_plane=jnp.array([0.01, 1.5, 0.01]),
        )  # fmt: skip
        rng = np.random.default_rng(4)
        parts = [getattr(projected, name) for name in FLOATS]
        return sum(jnp.sum(part * rng.normal(size=part.shape).astype(np.float32)) for part in parts), projected

    arguments = (4 * scene.means, scene.quats, scene.scales, scene.viewmats, scene.Ks, jnp.float32(0.3))
    return jax.jit(jax.value_and_grad(total, range(6), has_aux=True))(*arguments)


@pytest.mark.parametrize(("with_opacities", "antialiased"), [(False, False), (True, False), (True, True)])
def test_the_form_for_other_platforms_computes_the_same(with_opacities, antialiased, monkeypatch):
    scene = random_scene(150, cameras=3)  # not a multiple of the lanes of any instruction set
    (_, kernel), v_kernel = value_and_gradients(scene, with_opacities, antialiased)
    monkeypatch.setattr(_ffi, "by_platform", lambda native, plain, *operands: plain(*operands))
    (_, plain), v_plain = value_and_gradients(scene, with_opacities, antialiased)
    assert 0.1 < np.asarray(plain.radii > 0).mean() < 0.9
    assert (np.asarray(kernel.radii) != np.asarray(plain.radii)).mean() < 0.01
    for found, expected in zip((*kernel, *v_kernel), (*plain, *v_plain), strict=True):
        if jnp.issubdtype(found.dtype, jnp.floating):
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


_DIGEST = """
import hashlib, sys
sys.path.insert(0, {root!r})
import jax
from jaxsplat import _ffi
from tests.projection.test_ewa_kernel import random_scene, value_and_gradients
results = jax.tree.leaves(value_and_gradients(random_scene(5000, cameras=3), True, True))
print(_ffi.instruction_set(), hashlib.sha256(b"".join(x.tobytes() for x in results)).hexdigest())
"""


def run_digest(**environment):
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    done = subprocess.run(
        [sys.executable, "-c", _DIGEST.format(root=root)], env={**os.environ, "XLA_FLAGS": "", **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


def test_threads_do_not_change_a_bit():
    assert len({run_digest(NPROC=threads)[1] for threads in ("1", "2", "5")}) == 1
