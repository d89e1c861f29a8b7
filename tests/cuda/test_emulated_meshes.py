"""The CUDA kernels of meshes in the emulator: tests of the kernels for the CPU, and comparisons with these."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import rasterize_meshes, rasterize_silhouettes
from tests.cuda import emulated, mesh_scenes, scenes
from tests.meshes import GOLDEN, soup
from tests.rasterize import test_meshes as meshes
from tests.rasterize import test_silhouettes as silhouettes
from tests.tolerances import SINGLE

pytestmark = emulated.needs_emulator


@pytest.fixture(scope="module", autouse=True)
def library():
    return emulated.register(emulated.build("plain"))


@pytest.fixture
def everywhere():
    with emulated.emulated():
        yield


def assert_as_on_the_cpu(verts, **settings):
    scene = mesh_scenes.MeshScene(jnp.asarray(verts, jnp.float32), settings)
    want = mesh_scenes.mesh_results(scene)
    with emulated.emulated():
        got = mesh_scenes.mesh_results(scene)
    assert scenes.differences(got, want) == []


@pytest.mark.parametrize("name", GOLDEN)
def test_faces_are_exactly_those_of_pytorch3d(everywhere, name):
    meshes.test_the_kernel_finds_exactly_the_faces_of_pytorch3d(name)


@pytest.mark.parametrize("name", ["sphere_k2_noperspective", "sphere_k4_blur", "soup_k8_batch2"])
def test_fragments_and_gradients_are_those_of_pytorch3d(everywhere, name):
    meshes.test_fragments_and_gradients_are_those_of_pytorch3d(name, "native")


@pytest.mark.parametrize(
    "body",
    [
        *(functools.partial(meshes.test_a_surface_covers_each_pixel_exactly_once, x, "native") for x in (0.0, 0.7)),
        meshes.test_a_closed_surface_has_a_front_and_a_back_at_each_pixel,
        *(
            functools.partial(meshes.test_broken_faces_are_not_drawn_and_change_nothing_else, (kind,), "native")
            for kind in meshes.broken_faces()[1]
        ),
        functools.partial(meshes.test_empty_meshes_give_empty_pixels, "native"),
        functools.partial(meshes.test_of_two_halves_the_nearer_on_the_screen_is_kept, "native"),
        meshes.test_padded_and_packed_meshes_equal_single_meshes,
        meshes.test_corners_out_of_range_leave_the_face_out,
        meshes.test_bad_arguments_are_named,
        silhouettes.test_batches_and_packed_lists_equal_single_calls,
        silhouettes.test_opaque_and_empty_pixels_have_finite_gradients,
    ],
    ids=lambda body: getattr(body, "func", body).__name__.removeprefix("test_"),
)
def test_meshes(everywhere, body):
    body()


@pytest.mark.parametrize("faces_per_pixel", [1, 7, 16, 33])
def test_any_number_of_faces_per_pixel(faces_per_pixel):
    """Of 30 faces at each pixel, some equally deep."""
    verts = np.tile(soup(15, width=20, height=18, size=30), (2, 1, 1))
    assert_as_on_the_cpu(verts, width=20, height=18, faces_per_pixel=faces_per_pixel)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 40), (33, 16)])
@pytest.mark.parametrize("more", [{"faces_per_pixel": 2}, {"sigma": 1.0}], ids=["fragments", "silhouettes"])
def test_any_image_size(width, height, more):
    verts = soup(30, width=width, height=height, size=5)
    assert_as_on_the_cpu(verts, width=width, height=height, blur_radius=1.0, **more)


@pytest.mark.parametrize("bin_size", [4, 12, 32])
@pytest.mark.parametrize("more", [{"faces_per_pixel": 2}, {"sigma": 1.0}], ids=["fragments", "silhouettes"])
def test_any_size_of_tiles(bin_size, more):
    verts = soup(20, width=45, height=33)
    assert_as_on_the_cpu(verts, width=45, height=33, blur_radius=1.0, bin_size=bin_size, **more)


def test_screen_coordinates_of_pytorch3d():
    verts = soup(20, width=37, height=26) / [13, 13, 1] - [1.4, 1, 0]
    settings = {"faces_per_pixel": 3, "blur_radius": 1e-3, "convention": "pytorch3d", "clip_barycentric_coords": True}
    assert_as_on_the_cpu(verts, width=37, height=26, **settings)


def test_gradients_under_vmap_are_those_of_each_image(everywhere):
    verts = jnp.asarray(soup(24, width=20, height=18), jnp.float32).reshape(2, 12, 3, 3)
    near = jnp.array([0.0, 3.0])

    def fragments(verts, near):
        out = rasterize_meshes(verts, None, width=20, height=18, faces_per_pixel=2, near_plane=near)
        return jnp.sum(out.zbuf**2) + jnp.sum(out.bary_coords**2)

    def silhouette(verts, near):
        shape = {"width": 20, "height": 18, "sigma": 1.0, "blur_radius": 4.0}
        return jnp.sum(rasterize_silhouettes(verts, None, **shape, near_plane=near) ** 2)

    for loss in (fragments, silhouette):
        mapped = jax.vmap(jax.grad(loss))(verts, near)
        for image in range(2):
            # Where a warp begins among the slots of an image changes the rounding of its sums.
            alone = jax.grad(loss)(verts[image], near[image])
            assert np.linalg.norm(mapped[image] - alone) <= SINGLE * np.linalg.norm(alone)


def test_a_device_without_memory_for_the_lists_raises_the_error_of_jax(everywhere, monkeypatch):
    monkeypatch.setenv("EMULATOR_MEMORY", "1000")
    with pytest.raises(meshes.KERNEL_ERROR, match="RESOURCE_EXHAUSTED.*out of memory"):
        jax.block_until_ready(rasterize_meshes(jnp.ones((1, 3, 3)), None, width=8, height=8))


def test_gradients_have_the_same_bits_in_any_order_of_threads(everywhere, monkeypatch):
    for name, scene in mesh_scenes.mesh_scenes(small=True):
        found = []
        for order in ("0", "1", "2"):
            monkeypatch.setenv("EMULATOR_ORDER", order)
            found.append(mesh_scenes.mesh_results(scene))
        for other in found[1:]:
            for key, value in found[0].items():
                np.testing.assert_array_equal(other[key], value, err_msg=name)


def test_dense_scene_has_at_least_three_batches_in_a_tile_and_the_last_one_is_partial():
    """Two tiles beside each other: faces are listed in those that their boxes meet."""
    (scene,) = [scene for name, scene in mesh_scenes.mesh_scenes(small=True) if name == "dense mesh"]
    x = np.asarray(scene.verts)[..., 0]
    sizes = [np.sum((x.min(1) <= last) & (x.max(1) >= first)) for first, last in ((0, 16), (16, 21))]
    batch = mesh_scenes.BATCH
    assert any(size > 2 * batch and size % batch for size in sizes)
