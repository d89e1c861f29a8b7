"""The backward pass takes the tile lists that the forward pass kept, and only where they are those of its operands."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import project_outlines, rasterize_gaussians_3d, rasterize_gaussians_world
from jaxsplat.cameras import camera_rays
from jaxsplat.types import Projected
from tests.scenes import random_scene
from tests.splats2d import random_splats

WIDTH, HEIGHT = 45, 30
ELLIPSES = ("means2d", "conics", "colors", "opacities")
RAYS = ("means", "quats", "scales", "opacities", "colors", "rays")
BOUNDS = ("means2d", "conics", "depths", "radii")


def scene_of(kind, n=150, seed=0):
    """Arguments by name."""
    if kind == "ellipses":
        return random_splats(n, width=WIDTH, height=HEIGHT, seed=seed)._asdict()
    base = random_scene(n, cameras=1, seed=seed)
    size = {"width": WIDTH, "height": HEIGHT}
    outlines = project_outlines(
        base.means, base.quats, base.scales, base.viewmats, base.Ks, opacities=base.opacities, **size
    )
    rays = camera_rays(base.viewmats, base.Ks, **size)[0]
    colors = jnp.asarray(np.random.default_rng(seed).uniform(0, 1, (n, 3)), jnp.float32)
    splats = (base.means, base.quats, base.scales, base.opacities, colors, rays)
    return {**dict(zip(RAYS, splats, strict=True)), **{name: getattr(outlines, name)[0] for name in BOUNDS}}


@functools.partial(jax.jit, static_argnames=("width", "height", "hits", "most"))
def forward(scene, width=WIDTH, height=HEIGHT, hits=True, most=None):
    """The pictures, and their pullback with what it remembers."""

    def ellipses(*floats):
        size = {"width": width, "height": height, "max_intersections": most}
        output = rasterize_gaussians_3d(*floats, depths=scene["depths"], radii=scene["radii"], **size, backend="native")
        return output.colors, output.alphas

    def rays(*floats):
        extents = Projected(**{name: scene[name] for name in BOUNDS}, compensations=jnp.ones_like(scene["depths"]))
        output = rasterize_gaussians_world(
            *floats, extents=extents, hits=hits, max_intersections=most, backend="native"
        )
        return output.colors, output.alphas, *((output.distances, output.normals) if hits else ())

    picture, names = (rays, RAYS) if "rays" in scene else (ellipses, ELLIPSES)
    return jax.vjp(picture, *(scene[name] for name in names))


@jax.jit
def pull_back(pullback, pictures):
    rng = np.random.default_rng(3)
    return pullback(tuple(jnp.asarray(rng.normal(size=picture.shape), jnp.float32) for picture in pictures))


def gradients(result):
    return pull_back(result[1], result[0])


def assert_same_bits(found, truth):
    for a, b in zip(found, truth, strict=True):
        np.testing.assert_array_equal(a, b)


def forget():
    """More forward passes than the library keeps lists of."""
    for seed in range(20):
        forward(scene_of("ellipses", 5, 100 + seed))


@pytest.fixture(scope="module", params=["ellipses", "rays"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def scene(kind):
    return scene_of(kind)


def test_gradients_have_the_same_bits_with_kept_and_with_new_lists(scene):
    result = forward(scene)
    kept = gradients(result)
    again = gradients(result)  # taken only once
    result = forward(scene)
    forget()
    assert_same_bits(again, kept)
    assert_same_bits(gradients(result), kept)
    assert np.asarray(kept[0]).any()


def test_the_order_of_pullbacks_does_not_matter(kind, scene):
    scenes = (scene, scene_of(kind, seed=1))
    truth = [gradients(forward(s)) for s in scenes]
    results = [forward(s) for s in scenes]
    for result, expected in zip(results, truth, strict=True):
        assert_same_bits(gradients(result), expected)
    results = [forward(s) for s in scenes]
    for result, expected in zip(results[::-1], truth[::-1], strict=True):
        assert_same_bits(gradients(result), expected)


def changed(scene, field):
    """The smallest change of two visible entries, the kind that cancels in a careless sum."""
    visible = np.flatnonzero(np.asarray(scene["radii"]).all(-1) & (np.asarray(scene["opacities"]) > 0.1))[[3, 40]]
    value = np.asarray(scene[field])
    new = value.copy()
    if field == "rays":
        new[0, 0, :2] *= 1.01  # where the first ray starts
    elif field == "radii":
        new[visible] = 0
    elif field in ("depths", "opacities"):
        new[visible] = value[visible[::-1]]
    else:
        new[visible, 1] *= -1 if field != "scales" else 1.01
    return {**scene, field: jnp.asarray(new)}


@pytest.mark.parametrize(
    ("kind", "field"),
    [*(("ellipses", field) for field in (*ELLIPSES, "depths", "radii")), *(("rays", field) for field in RAYS + BOUNDS)],
)
def test_lists_kept_for_splats_that_differ_in_a_bit_are_not_taken(kind, field):
    scene = scene_of(kind)
    other = changed(scene, field)
    forget()
    truth = gradients(forward(other))
    forget()
    result = forward(other)
    # The residuals of the changed splats, while only lists of the others are kept.
    forget()
    forward(scene)
    assert_same_bits(gradients(result), truth)


def test_lists_of_another_capacity_are_not_taken(scene):
    truth, cut = (gradients(forward(scene, most=most)) for most in (None, 60))
    assert (np.asarray(cut[3]) != np.asarray(truth[3])).any()
    results = [forward(scene, most=most) for most in (None, 60)]
    forget()
    for kept, result, expected in ((60, results[0], truth), (None, results[1], cut)):
        forward(scene, most=kept)
        assert_same_bits(gradients(result), expected)


def test_lists_of_another_image_size_are_not_taken():
    scene = scene_of("ellipses")
    truth = gradients(forward(scene))
    result = forward(scene)
    forget()
    forward(scene, width=WIDTH + 40)
    forward(scene, height=HEIGHT + 17)
    assert_same_bits(gradients(result), truth)


def test_what_was_kept_without_normals_is_not_taken_with_them():
    scene = scene_of("rays")
    truth = gradients(forward(scene))
    result = forward(scene)
    forget()
    forward(scene, hits=False)
    assert_same_bits(gradients(result), truth)
