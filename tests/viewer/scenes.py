"""A scene of three round splats whose places in the picture are known."""

import jax.numpy as jnp
import numpy as np

from jaxsplat.data.capture import Cameras
from jaxsplat.sh import rgb_to_sh
from jaxsplat.types import Splats

DEPTH = 5.0
WIDTH, HEIGHT = 1000, 800


def three_splats() -> Splats:
    """Red before a camera at the origin, green to the right of it, blue below."""
    colors = jnp.eye(3)
    return Splats(
        means=jnp.array([[0.0, 0, DEPTH], [1, 0, DEPTH], [0, 1, DEPTH]]),
        quats=jnp.array([[1.0, 0, 0, 0]] * 3),
        log_scales=jnp.full((3, 3), np.log(0.06)),
        logit_opacities=jnp.full(3, 6.0),
        sh_dc=rgb_to_sh(colors)[:, None],
        sh_rest=jnp.zeros((3, 0, 3)),
    )


def two_cameras() -> Cameras:
    """At the origin, and one unit to the right: a unit at the splats' depth is 160 pixels."""
    viewmats = np.tile(np.eye(4, dtype=np.float32), (2, 1, 1))
    viewmats[1, 0, 3] = -1.0
    K = np.array([[800, 0, 500], [0, 800, 400], [0, 0, 1]], np.float32)
    return Cameras(("middle", "right"), viewmats, np.stack([K, K]), WIDTH, HEIGHT)


def hues(picture: np.ndarray, *places: tuple[int, int]) -> list[str]:
    """Which of red, green, blue, black, grey is at each (x, y)."""
    names = []
    for x, y in places:
        color = picture[y, x].astype(int)
        if color.max() < 60:
            names.append("black")
        elif np.ptp(color) < 30:
            names.append("grey")
        else:
            names.append(("red", "green", "blue")[color.argmax()])
    return names
