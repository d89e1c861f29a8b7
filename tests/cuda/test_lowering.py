"""What programs for CUDA hold, lowered where there is no such device."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import optax
import pytest

from jaxsplat import (
    Blend,
    MeshBlend,
    ScreenProbe,
    intersect_tiles,
    losses,
    optim,
    project_gaussians,
    rasterization,
    rasterize_gaussians_3d,
    rasterize_gaussians_world,
    rasterize_meshes,
    rasterize_silhouettes,
    render_meshes,
    spherical_harmonics,
)
from jaxsplat.types import Splats
from tests.rays import anywhere, ray_scene
from tests.scenes import random_scene
from tests.splats2d import random_splats

SIZE = {"width": 20, "height": 17}
SPLATS = random_splats(7, **SIZE)


def lowered(function, *arguments):
    """StableHLO of a program for CUDA."""
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()


def targets(text):
    return re.findall(r"custom_call @([\w.]+)\(", text)


def picture(floats, probe=None):
    return rasterize_gaussians_3d(
        *floats, depths=SPLATS.depths, radii=SPLATS.radii, **SIZE, probe=probe, blend=Blend(max_contributors=9)
    )


def call_of(text, target):
    (call,) = [line for line in text.splitlines() if f"@{target}(" in line]
    return call


def test_rasterizer_calls_its_kernels_with_row_major_operands_and_the_blend_rule():
    probe = ScreenProbe(jnp.zeros_like(SPLATS.means2d), jnp.zeros_like(SPLATS.means2d))
    text = lowered(jax.grad(lambda floats, probe: picture(floats, probe).colors.sum(), (0, 1)), SPLATS[:4], probe)
    assert targets(text) == [f"jaxsplat.v1.rasterize_gaussians_3d_{way}" for way in ("forward", "backward")]
    forward = call_of(text, "jaxsplat.v1.rasterize_gaussians_3d_forward")
    for attribute in ("tile_size = 16 : i64", "max_contributors = 9 : i64", "blend_last = false", "alpha_max = "):
        assert attribute in forward
    assert "mhlo.backend_config = {" in forward  # typed attributes
    assert re.search(r"operand_layouts = \[dense<\[1, 0\]> : tensor<2xindex>, dense<\[1, 0\]>", forward)
    assert re.search(
        r"-> \(tensor<17x20x3xf32>, tensor<17x20xf32>, tensor<17x20xi32>, tensor<i32>, tensor<i32>, tensor<0xui8>\)",
        forward,
    )
    backward = call_of(text, "jaxsplat.v1.rasterize_gaussians_3d_backward")
    results = "tensor<7x2xf32>, tensor<7x3xf32>, tensor<7x3xf32>, tensor<7xf32>, tensor<7x2xf32>, tensor<0xui8>"
    assert f"-> ({results})" in backward


def test_lists_of_a_fixed_capacity_have_kernels_of_their_own_and_memory_that_the_program_sets_aside():
    def loss(means2d, *others):
        return rasterize_gaussians_3d(
            means2d, *others, depths=SPLATS.depths, radii=SPLATS.radii, max_intersections=1000, **SIZE
        ).colors.sum()

    text = lowered(jax.vmap(jax.grad(loss), (0, None, None, None)), jnp.stack([SPLATS.means2d] * 3), *SPLATS[1:4])
    names = [f"jaxsplat.v1.rasterize_gaussians_3d_{way}_static" for way in ("forward", "backward")]
    assert targets(text) == names
    for name in names:
        call = call_of(text, name)
        assert "max_intersections = 1000 : i64" in call
        (size,) = re.findall(r"tensor<(\d+)xui8>", call)
        slots = 1000 * (4 + 8) * 4 if name.endswith("backward_static") else 0
        assert int(size) > 3 * (1000 * 24 + slots)


def test_rasterizer_along_rays_calls_its_kernels():
    arguments, depths = ray_scene(7, cameras=2)

    def loss(arguments):
        out = rasterize_gaussians_world(**arguments, extents=anywhere(depths), hits=True)
        return out.colors.sum() + out.distances.sum()

    text = lowered(jax.grad(loss), arguments)
    names = [f"jaxsplat.v1.rasterize_gaussians_world_{way}" for way in ("forward", "backward")]
    assert targets(text) == names
    assert "tensor<2x18x23x4xf32>" in call_of(text, names[0]) and "hits = true" in call_of(text, names[0])
    # The splats are shared by the cameras, and each of them has its gradient.
    assert "(tensor<1x7x3xf32>, tensor<1x7x4xf32>" in call_of(text, names[1])
    assert "tensor<2x7x3xf32>, tensor<2x7x4xf32>, tensor<2x7x3xf32>, tensor<2x7xf32>" in call_of(text, names[1])


def test_meshes_call_their_kernels_with_shared_operands():
    verts = jnp.ones((3, 5, 3, 3))
    text = lowered(
        jax.grad(lambda v: rasterize_meshes(v, None, **SIZE, faces_per_pixel=4, cull_backfaces=True).zbuf.sum()), verts
    )
    names = [f"jaxsplat.v1.rasterize_meshes_{way}" for way in ("forward", "backward")]
    assert targets(text) == names
    forward, backward = (call_of(text, name) for name in names)
    assert "(tensor<3x5x9xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1x0xi32>, tensor<1x3xf32>" in forward
    assert "-> (tensor<3x17x20x4xi32>, tensor<3x17x20x4xf32>, tensor<3x17x20x4x3xf32>" in forward
    assert "cull_backfaces = true" in forward and "tile_size = 16 : i64" in forward
    assert "(tensor<15x9xf32>, tensor<3x17x20x4xi32>" in backward and "-> tensor<15x9xf32>" in backward


def test_silhouettes_call_their_kernels():
    def loss(verts):
        return rasterize_silhouettes(verts, None, **SIZE, sigma=1.0, blur_radius=4.0).sum()

    text = lowered(jax.vmap(jax.grad(loss)), jnp.ones((3, 5, 3, 3)))
    names = [f"jaxsplat.v1.rasterize_silhouettes_{way}" for way in ("forward", "backward")]
    assert targets(text) == names
    assert "-> tensor<3x17x20xf32>" in call_of(text, names[0])
    assert "-> tensor<3x5x9xf32>" in call_of(text, names[1])


def test_the_pipeline_of_meshes_for_cuda_calls_only_kernels_that_cuda_has():
    scene = random_scene(7, cameras=2)
    faces = jnp.array([[0, 1, 2], [2, 3, 4]])

    def loss(verts, viewmats):
        out = render_meshes(verts, faces, verts, viewmats, scene.Ks, **SIZE, blend=MeshBlend(sigma=1.0))
        return out.colors.sum()

    ours = [t for t in targets(lowered(jax.grad(loss, (0, 1)), scene.means, scene.viewmats)) if "jaxsplat" in t]
    assert ours == [f"jaxsplat.v1.rasterize_meshes_{way}" for way in ("forward", "backward")]


@pytest.mark.parametrize("evaluate", ["ellipse", "ray"])
def test_the_pipeline_for_cuda_calls_only_kernels_that_cuda_has(evaluate):
    scene = random_scene(7, cameras=2)

    def loss(means, viewmats):
        out = rasterization(
            means, scene.quats, scene.scales, scene.opacities, jnp.ones((7, 4, 3)), viewmats, scene.Ks, **SIZE,
            sh_degree=1, evaluate=evaluate, render_mode="RGB+ED", max_intersections=500,
        )  # fmt: skip
        return out.colors.sum()

    ours = targets(lowered(jax.grad(loss, (0, 1)), scene.means, scene.viewmats))
    kind = {"ellipse": "3d", "ray": "world"}[evaluate]
    assert {t.split(".")[-1] for t in ours if t.startswith("jaxsplat")} == {
        f"rasterize_gaussians_{kind}_{way}_static" for way in ("forward", "backward")
    }


def test_tile_lists_call_their_kernel():
    text = lowered(
        lambda s: intersect_tiles(s.means2d, s.radii, s.depths, capacity=50, **SIZE), SPLATS
    )  # fmt: skip
    assert targets(text) == ["jaxsplat.v1.intersect_tiles"]
    call = call_of(text, "jaxsplat.v1.intersect_tiles")
    assert "width = 20 : i64" in call and "height = 17 : i64" in call
    assert "-> (tensor<50xi32>, tensor<5xi32>, tensor<7xi32>, tensor<i32>)" in call


def test_vmap_is_one_call_that_shares_what_is_not_mapped():
    text = lowered(jax.vmap(lambda c: picture((*SPLATS[:2], c, SPLATS.opacities)).colors), jnp.ones((5, 7, 3)))
    call = call_of(text, "jaxsplat.v1.rasterize_gaussians_3d_forward")
    assert "(tensor<1x7x2xf32>, tensor<1x7x3xf32>, tensor<5x7x3xf32>, tensor<1x7xf32>" in call


def adam(splats):
    return optim.apply_splat_adam(splats, splats, optim.splat_adam(steps=9).init(splats), steps=9)


ROWS = Splats(*(jnp.ones(shape) for shape in ((4, 3), (4, 4), (4, 3), (4,), (4, 1, 3), (4, 3, 3))))


@pytest.mark.parametrize(
    ("function", "argument"),
    [
        (lambda x: spherical_harmonics(2, x[:, 0, :], x), jnp.ones((5, 9, 3))),
        (jax.grad(lambda x: spherical_harmonics(2, x[:, 0, :], x).sum()), jnp.ones((5, 9, 3))),
        (lambda x: losses.ssim(x, 0.5 * x), jnp.ones((16, 16, 3))),
        (jax.grad(lambda x: losses.ssim(x, 0.5 * x)), jnp.ones((16, 16, 3))),
        (adam, ROWS),
    ],
    ids=["spherical harmonics", "their gradient", "SSIM", "its gradient", "Adam"],
)
def test_what_has_kernels_for_cpus_only_is_plain_jax_elsewhere(function, argument):
    assert not [t for t in targets(lowered(function, argument)) if t.startswith("jaxsplat")]
    on_cpu = jax.jit(function).lower(argument).as_text()
    assert [t for t in targets(on_cpu) if t.startswith("jaxsplat")]


def test_a_training_step_for_cuda_calls_only_kernels_that_cuda_has():
    target = jnp.zeros((17, 20, 3))

    def step(floats, state):
        loss, gradients = jax.value_and_grad(lambda f: 1 - losses.ssim(picture(f).colors, target))(floats)
        updates, state = optax.adam(1e-2).update(gradients, state, floats)
        return optax.apply_updates(floats, updates), state, loss

    floats = tuple(SPLATS[:4])
    ours = [t for t in targets(lowered(step, floats, optax.adam(1e-2).init(floats))) if t.startswith("jaxsplat")]
    assert {t.split(".")[-1] for t in ours} == {"rasterize_gaussians_3d_forward", "rasterize_gaussians_3d_backward"}


def test_projection_takes_its_plain_form():
    scene = random_scene(4, cameras=2)

    def total(means, viewmats, limit):
        projected = project_gaussians(
            means, scene.quats, scene.scales, viewmats, scene.Ks, width=20, height=17, eps2d=limit
        )
        return projected.means2d.sum() + projected.conics.sum()

    text = lowered(jax.value_and_grad(total, (0, 1, 2)), scene.means, scene.viewmats, jnp.float32(0.3))
    assert targets(text) == []
