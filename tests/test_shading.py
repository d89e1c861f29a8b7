"""Shading against pictures that PyTorch3D rendered, and against closed forms."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import (
    PointLight,
    blend_hard,
    blend_softmax,
    face_normals,
    interpolate_vertex_attributes,
    light_points,
    rasterize_meshes,
    rasterize_silhouettes,
    sample_texture,
    soft_silhouette,
    texture_levels,
    vertex_normals,
)
from jaxsplat.io import load_image, load_mesh
from tests.data import double_precision, shared
from tests.differences import assert_gradients
from tests.meshes import soup, sphere
from tests.tolerances import PYTORCH3D_PICTURE, SINGLE

DISTANCE = 2.7
FOCAL = 3**0.5
"""In NDC, for a field of view of 60 degrees."""


def picture(name):
    image = load_image(shared(f"data/meshes/pytorch3d_renders/test_{name}.png"))
    return image[..., :3].astype(np.float32) / 255


def screen(verts):
    """Vertices as PyTorch3D's camera at (0, 0, DISTANCE) sees them: x to the left, y up, from behind the z axis."""
    z = DISTANCE - verts[:, 2]
    return jnp.stack([-verts[:, 0] * FOCAL / z, verts[:, 1] * FOCAL / z, z], -1)


@functools.cache
def ball():
    verts, faces = (jnp.asarray(x) for x in sphere(5))
    return verts, faces, rasterize_meshes(screen(verts), faces, width=512, height=512, convention="pytorch3d")


def lit(shading, light):
    verts, faces, fragments = ball()
    camera = jnp.array([0.0, 0.0, DISTANCE])
    if shading == "phong":
        points, normals = (
            interpolate_vertex_attributes(fragments, x[faces]) for x in (verts, vertex_normals(verts, faces))
        )
        return light_points(points, normals, jnp.ones_like(points), camera, light)
    if shading == "gouraud":
        colors = light_points(verts, vertex_normals(verts, faces), jnp.ones_like(verts), camera, light)
        return interpolate_vertex_attributes(fragments, colors[faces])
    centres = verts[faces].mean(1)
    colors = light_points(centres, face_normals(verts[faces]), jnp.ones_like(centres), camera, light)
    return interpolate_vertex_attributes(fragments, jnp.repeat(colors[:, None], 3, 1))


@pytest.mark.parametrize(
    ("name", "shading", "z"),
    [
        ("light_phong", "phong", 2.0),
        ("light_gouraud", "gouraud", 2.0),
        ("light_flat", "flat", 2.0),
        ("dark", "phong", -2.0),
    ],
)
def test_lit_spheres_look_as_in_pytorch3d(name, shading, z):
    colors = lit(shading, PointLight(jnp.array([0.0, 0.0, z])))
    shown, _ = blend_hard(ball()[2], colors)
    error = np.abs(np.clip(shown, 0, 1) - picture(f"simple_sphere_{name}_FoVPerspectiveCameras"))
    assert error.max() <= PYTORCH3D_PICTURE


def test_the_mask_of_a_sphere_is_that_of_pytorch3d():
    mask = np.asarray(ball()[2].pix_to_face[..., 0]) >= 0
    np.testing.assert_array_equal(mask, picture("rasterized_sphere_MeshRasterizer")[..., 0] == 1)


def test_soft_silhouettes_are_those_of_pytorch3d_with_and_without_streaming():
    verts, faces, _ = ball()
    settings = {"width": 512, "height": 512, "blur_radius": float(np.log(1e4 - 1)) * 1e-4, "convention": "pytorch3d"}
    alphas = rasterize_silhouettes(screen(verts), faces, sigma=1e-4, **settings)
    expected = picture("FoVPerspectiveCameras_silhouette")[..., 0]
    assert np.abs(alphas - expected).max() <= PYTORCH3D_PICTURE
    fragments = rasterize_meshes(screen(verts), faces, faces_per_pixel=80, clip_barycentric_coords=True, **settings)
    assert np.abs(soft_silhouette(fragments, sigma=1e-4) - expected).max() <= PYTORCH3D_PICTURE


def test_a_textured_cow_looks_as_in_pytorch3d():
    cow = load_mesh(shared("data/meshes/cow_mesh/cow.obj"))
    assert cow.uvs is not None and cow.texture is not None
    verts, faces = jnp.asarray(cow.verts), jnp.asarray(cow.faces)
    fragments = rasterize_meshes(screen(verts), faces, width=512, height=512, convention="pytorch3d")
    points, normals = (interpolate_vertex_attributes(fragments, x[faces]) for x in (verts, _smooth_normals(cow)))
    albedo = sample_texture(
        jnp.asarray(cow.texture), interpolate_vertex_attributes(fragments, jnp.asarray(cow.uvs)[faces])
    )
    colors = light_points(
        points, normals, albedo, jnp.array([0.0, 0.0, DISTANCE]), PointLight(jnp.array([0.0, 0.0, 2.0]))
    )
    shown, _ = blend_hard(fragments, colors, backgrounds=jnp.ones(3))
    error = np.abs(np.clip(shown, 0, 1) - picture("texture_map_back_MeshRasterizer")).max(-1)
    # That picture is blended softly, which tells at outlines only.
    assert np.mean(error <= PYTORCH3D_PICTURE) > 0.99


def _smooth_normals(cow):
    """Across the seams of the texture, where vertices are there twice."""
    places, index = np.unique(cow.verts, axis=0, return_inverse=True)
    index = index.reshape(-1)
    return vertex_normals(jnp.asarray(places), jnp.asarray(index[cow.faces]))[index]


def test_textures_meet_their_texels_and_their_gradients():
    texture = jnp.asarray(np.random.default_rng(0).random((3, 4, 2)), jnp.float32)
    corners = jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [2.0, 7.0]])
    expected = jnp.stack([texture[2, 0], texture[2, 3], texture[0, 0], texture[0, 3]])
    for mode in ("bilinear", "nearest"):
        np.testing.assert_array_equal(sample_texture(texture, corners, mode=mode), expected)
    middle = sample_texture(texture, jnp.array([0.5, 0.5]))
    np.testing.assert_allclose(middle, texture[1, 1:3].mean(0), rtol=SINGLE)
    with double_precision():
        uvs = jnp.asarray(np.random.default_rng(1).random((20, 2)))
        assert_gradients(sample_texture, [texture.astype(jnp.float64), uvs])


def smaller_copies(texture):
    """Means of the 2x2 texels that exist; of a last odd row or column there is one."""
    copies = [texture]
    while copies[-1].shape[:2] != (1, 1):
        rows, columns = ([range(k, min(k + 2, n)) for k in range(0, n, 2)] for n in copies[-1].shape[:2])
        copies.append(np.array([[np.mean([copies[-1][i, j] for i in r for j in c], 0) for c in columns] for r in rows]))
    return copies


def trilinear(texture, uv, level):
    copies = smaller_copies(texture)
    level = min(max(level, 0), len(copies) - 1)
    total = np.zeros(texture.shape[2])
    for k, copy in enumerate(copies):
        height, width = copy.shape[:2]
        x = (uv[0] * (texture.shape[1] - 1) + 0.5) / 2**k - 0.5
        y = ((1 - uv[1]) * (texture.shape[0] - 1) + 0.5) / 2**k - 0.5
        for i in range(height):
            for j in range(width):
                near = [max(0, 1 - abs(min(max(p, 0), n - 1) - q)) for p, q, n in ((x, j, width), (y, i, height))]
                total += max(0, 1 - abs(level - k)) * near[0] * near[1] * copy[i, j]
    return total


def test_levels_blend_smaller_copies_of_the_texture_and_everything_has_a_gradient():
    rng = np.random.default_rng(2)
    texture, uvs, levels = rng.random((5, 6, 2)), rng.random((30, 2)), rng.uniform(-0.5, 3.5, 30)
    expected = [trilinear(texture, uv, level) for uv, level in zip(uvs, levels, strict=True)]
    with double_precision():
        sample = jax.jit(lambda t, u, k: sample_texture(t, u, levels=k))
        arguments = [jnp.asarray(x) for x in (texture, uvs, levels)]
        np.testing.assert_allclose(sample(*arguments), expected, rtol=1e-12)
        assert_gradients(sample, arguments)
        plain = sample_texture(arguments[0], arguments[1])
        np.testing.assert_allclose(sample(arguments[0], arguments[1], jnp.zeros(30)), plain, rtol=1e-12)


def test_a_small_picture_of_a_checkerboard_is_grey_with_levels_and_aliases_without():
    size, cells = 20, 64
    board = jnp.asarray((np.indices((cells, cells)).sum(0) % 2)[..., None], jnp.float32)
    corners = np.array([[0, 1], [1, 1], [1, 0], [0, 0]])  # as texture coordinates; rows go down
    screen = np.concatenate([corners * [1, -1] * size + [0, size], np.full((4, 1), 2)], 1)
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    fragments = rasterize_meshes(jnp.asarray(screen, jnp.float32), jnp.asarray(faces), width=size, height=size)

    @jax.jit
    def pictures(board):
        uvs = interpolate_vertex_attributes(fragments, jnp.asarray(corners[faces], jnp.float32))
        levels = texture_levels(fragments, uvs, board)
        return levels, sample_texture(board, uvs, levels=levels), sample_texture(board, uvs)

    levels, smooth, rough = pictures(board)
    # From pixel to pixel 63 / 20 texels: the first smaller copy is grey.
    np.testing.assert_allclose(levels, np.log2((cells - 1) / size), atol=1e-4)
    np.testing.assert_allclose(smooth, 0.5, atol=1e-6)
    assert np.std(rough) > 0.1
    with pytest.raises(ValueError, match='levels must be None with mode "nearest"'):
        sample_texture(board, jnp.zeros((3, 2)), mode="nearest", levels=jnp.zeros(3))


def test_softmax_blending_is_the_formula_and_tends_to_the_hard_picture():
    fragments = rasterize_meshes(
        jnp.asarray(soup(12, width=20, height=16), jnp.float32), None, width=20, height=16, faces_per_pixel=5,
        blur_radius=4.0, clip_barycentric_coords=True,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    colors, background = rng.random((16, 20, 5, 3)).astype(np.float32), np.array([0.2, 0.5, 0.9], np.float32)
    sigma, gamma, near, far = 0.5, 0.05, 1.0, 9.0
    got, alphas = blend_softmax(
        fragments, jnp.asarray(colors), backgrounds=jnp.asarray(background), sigma=sigma, gamma=gamma, near_plane=near,
        far_plane=far,
    )  # fmt: skip
    faces, depths, _, dists = (np.asarray(x, np.float64) for x in fragments)
    there = faces >= 0
    coverage = np.where(there, 1 / (1 + np.exp(dists / sigma)), 0)
    weights = coverage * np.exp(np.where(there, (far - depths) / (far - near), 0) / gamma)
    expected = ((weights[..., None] * colors).sum(-2) + background) / (weights.sum(-1) + 1)[..., None]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(alphas[..., 0], 1 - np.prod(1 - coverage, -1), rtol=1e-4, atol=1e-6)
    sharp = blend_softmax(fragments, jnp.asarray(colors), sigma=1e-9, gamma=1e-5, near_plane=near, far_plane=far)[0]
    inside = (dists[..., 0] < 0) & there[..., 0]
    np.testing.assert_allclose(sharp[inside], colors[..., 0, :][inside], atol=1e-4)


def test_shading_has_finite_gradients_in_the_corner_cases():
    zero = jnp.zeros((1, 3))
    gradient = jax.jit(
        jax.grad(
            lambda p, n: light_points(p, n, jnp.ones((1, 3)), jnp.zeros(3), PointLight(jnp.zeros(3))).sum(), (0, 1)
        )
    )
    assert all(np.isfinite(g).all() for g in gradient(zero, zero))
    flat = jnp.zeros((2, 3, 3))
    assert (
        not np.any(face_normals(flat)) and np.isfinite(jax.jit(jax.grad(lambda v: face_normals(v).sum()))(flat)).all()
    )
    with pytest.raises(ValueError, match=r"interpolate_vertex_attributes: face_attributes must have shape"):
        interpolate_vertex_attributes(ball()[2], jnp.zeros((3, 2)))
