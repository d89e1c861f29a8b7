"""Scenes without what no picture shows."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat.cli import main
from jaxsplat.data import load_cameras
from jaxsplat.io import load_splats, save_splats
from jaxsplat.train import render_splats
from jaxsplat.train.export import picture_weights
from tests.train.scenes import random_splats, write_capture


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """Splats in front of cameras, one hidden inside an opaque one, and one that no camera looks at."""
    folder = tmp_path_factory.mktemp("export")
    splats = random_splats(40)
    splats = splats._replace(
        means=splats.means.at[0].set(0.0).at[1].set(0.0).at[2].set(jnp.array([0.0, 0, 50])),
        log_scales=splats.log_scales.at[0].set(-6.0).at[1].set(-0.5),
        logit_opacities=splats.logit_opacities.at[0].set(-3.0).at[1].set(6.0),
    )
    save_splats(folder / "in.ply", splats)
    return folder, write_capture(folder / "c", views=3)


@pytest.mark.parametrize("antialiased", [False, True])
def test_weights_are_what_white_splats_alone_add_to_black_pictures(scene, antialiased):
    folder, capture = scene
    splats, cameras = load_splats(folder / "in.ply"), load_cameras(capture)
    weights = picture_weights(splats, cameras, antialiased=antialiased)
    # White where the SH sum is 0.5 above the middle, black where it is as far below.
    dark = splats._replace(sh_dc=jnp.full_like(splats.sh_dc, -0.5 / 0.28209479), sh_rest=jnp.zeros_like(splats.sh_rest))
    for row in (1, 2, 7, 23):
        white = dark._replace(sh_dc=dark.sh_dc.at[row].set(0.5 / 0.28209479))
        pictures = render_splats(
            white, jnp.asarray(cameras.viewmats), jnp.asarray(cameras.Ks), width=24, height=20, antialiased=antialiased
        ).colors
        np.testing.assert_allclose(weights[row], pictures[..., 0].sum(), rtol=1e-4, atol=1e-4)
    assert weights[1] > 50 and weights[2] == 0


def test_export_drops_what_the_pictures_do_not_show(scene, capsys):
    folder, capture = scene
    out = folder / "out.ply"
    arguments = ["export", str(folder / "in.ply"), str(out), "--overwrite", "--prune-weight", "0.5"]
    assert main([*arguments, "--cameras", str(capture)]) == 0
    splats = load_splats(folder / "in.ply")
    keep = picture_weights(splats, load_cameras(capture)) >= 0.5
    assert 0 < keep.sum() < 38 and not keep[2]
    np.testing.assert_array_equal(load_splats(out).means, splats.means[keep])
    assert f"Dropped {(~keep).sum()}: weight in 3 pictures below 0.5." in capsys.readouterr().out
    assert main(arguments) == 1
    assert "give both --prune-weight and --cameras, or neither" in capsys.readouterr().err
