"""What the inner loops alone could do on this machine, and how much work a picture is for them."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import native, scenes
from jaxsplat import _constants as const
from jaxsplat import _ffi

SOURCE = Path(__file__).with_suffix(".cc")
FLAGS = ("-O3", "-ffp-contract=off", "-Wno-psabi", "-Wno-ignored-attributes", "-pthread", f"-I{native.XLA_FFI}")
SECONDS = 0.3


class Limit(NamedTuple):
    """Pixel-splat pairs.

    Attributes:
      pairs: of the picture, after culling by 4x4 blocks and until all pixels of a block have ended.
      forward: a second, by the inner loop of the forward pass.
      backward: a second, by that of the backward pass.
    """

    pairs: int
    forward: float
    backward: float


def measure(screen: scenes.Screen, ids: np.ndarray, tile_offsets: np.ndarray, threads: int) -> Limit:
    """Measure the loops and count the pairs.

    Args:
      screen: projected splats.
      ids: [M] splats of the tiles.
      tile_offsets: [T + 1] where each tile's splats begin.
      threads: number of threads.

    Returns:
      The limit.
    """
    library = native.load(SOURCE, *FLAGS, *native.isa_flags(_ffi.instruction_set()))
    library.count_pairs.restype = ctypes.c_int64
    pairs = library.count_pairs(
        *native.arguments(len(screen.means2d), screen.means2d, screen.conics, screen.opacities, ids, tile_offsets),
        *native.arguments(screen.width, screen.height, const.TILE_SIZE),
    )
    rates = []
    for name in ("simd_limit_forward", "simd_limit_backward"):
        function = getattr(library, name)
        function.restype = ctypes.c_double
        rates.append(function(ctypes.c_int64(threads), ctypes.c_double(SECONDS)))
    return Limit(pairs, *rates)
