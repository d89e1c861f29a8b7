"""Compiles `scalar_baseline.cc` for this machine and calls it on numpy arrays."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import native
from jaxsplat import _constants as const

SOURCE = Path(__file__).with_name("scalar_baseline.cc")
FLAGS = ("-O3", "-fopenmp")

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


class Lists(NamedTuple):
    """Splats of each tile: ids [M], offsets [T + 1]."""

    ids: I32
    tile_offsets: I32


class Picture(NamedTuple):
    """Colors [H, W, 3], transmittances [H, W], positions in the list of the last splats [H, W]."""

    colors: F32
    transmittances: F32
    last_positions: I32


class Splats(NamedTuple):
    """Splats of one image, or their gradients: means2d [N, 2], conics [N, 3], colors [N, 3], opacities [N]."""

    means2d: F32
    conics: F32
    colors: F32
    opacities: F32


class Baseline:
    """The scalar kernels, compiled when this is created.

    Raises:
      RuntimeError: there is no compiler, or it fails.

    Example:
      >>> baseline = Baseline(threads=2)
      >>> lists = baseline.intersect(means2d, radii, depths, width=640, height=480)
      >>> picture = baseline.forward(splats, lists, background, width=640, height=480)
    """

    def __init__(self, *, threads: int) -> None:
        self.threads = threads
        self._library = _compile()
        self._library.baseline_intersect.restype = ctypes.c_int64

    def intersect(self, means2d: F32, radii: I32, depths: F32, *, width: int, height: int) -> Lists:
        """List the splats of each tile by their boxes, nearest first.

        Args:
          means2d: [N, 2] pixels.
          radii: [N, 2] pixels, half sizes of the boxes; 0 leaves a splat out.
          depths: [N].
          width: image width in pixels.
          height: image height in pixels.

        Returns:
          The lists.
        """
        tiles = -(-width // const.TILE_SIZE) * -(-height // const.TILE_SIZE)
        offsets = np.zeros(tiles + 1, np.int32)
        ids = np.zeros(getattr(self, "_capacity", 0), np.int32)
        while True:
            count = self._library.baseline_intersect(
                *native.arguments(
                    len(means2d), means2d, radii, depths, width, height, self.threads, len(ids), ids, offsets
                )
            )
            if count <= len(ids):
                return Lists(ids[:count], offsets)
            # Kept, so that only the first call pays for guessing.
            self._capacity = count
            ids = np.zeros(count, np.int32)

    def forward(self, splats: Splats, lists: Lists, background: F32, *, width: int, height: int) -> Picture:
        """Blend.

        Args:
          splats: screen-space splats.
          lists: from `intersect`.
          background: [3].
          width: image width in pixels.
          height: image height in pixels.

        Returns:
          The picture.
        """
        shape = (height, width)
        out = Picture(np.empty((*shape, 3), np.float32), np.empty(shape, np.float32), np.empty(shape, np.int32))
        self._library.baseline_forward(
            *native.arguments(*splats, *lists, width, height, background, self.threads, *out)
        )
        return out

    def backward(
        self, splats: Splats, lists: Lists, background: F32, picture: Picture, v_colors: F32, v_alphas: F32
    ) -> Splats:
        """Differentiate.

        Args:
          splats: as in `forward`.
          lists: as in `forward`.
          background: as in `forward`.
          picture: from `forward`.
          v_colors: [H, W, 3] cotangent of the colors.
          v_alphas: [H, W] cotangent of 1 - transmittance.

        Returns:
          The gradients of the splats.
        """
        height, width = picture.transmittances.shape
        out = Splats(*(np.zeros_like(array) for array in splats))
        self._library.baseline_backward(
            *native.arguments(
                *splats, *lists, width, height, background, picture.transmittances, picture.last_positions
            ),
            *native.arguments(v_colors, v_alphas, self.threads, *out),
        )
        return out


def _compile() -> ctypes.CDLL:
    """Compile the source with the library's own constants."""
    constants = {
        "TILE_SIZE": f"{const.TILE_SIZE}",
        "ALPHA_MIN": f"{const.ALPHA_MIN!r}f",
        "ALPHA_MAX": f"{const.ALPHA_MAX!r}f",
        "TRANSMITTANCE_MIN": f"{const.TRANSMITTANCE_MIN!r}f",
    }
    return native.load(SOURCE, *FLAGS, *(f"-D{name}={value}" for name, value in constants.items()))
