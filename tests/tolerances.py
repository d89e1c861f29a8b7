"""Every tolerance of the test suite, with its reason."""

from __future__ import annotations

from typing import NamedTuple


class PictureTolerance(NamedTuple):
    """Absolute differences of pictures: `usual` for a `share` of the values, `worst` for all."""

    usual: float
    share: float
    worst: float


PICTURE = PictureTolerance(usual=1e-4, share=0.998, worst=5e-3)
"""A pixel may fall on the other side of the 1/255 cut-off: that moves it by up to 1/255."""

GRADIENT = 2e-3
"""Relative L2 error of a float32 gradient."""

PICTURE_DOUBLE = 1e-5
"""Largest difference of a float64 picture from the golden one, which was stored in float32."""

GRADIENT_DOUBLE = 2e-4
"""Relative L2 error of a float64 gradient; the golden fisheye files were made with a small epsilon in the angle."""

DIFFERENCES = 1e-6
"""Error of a float64 gradient against central differences, relative to the product of the norms of both vectors."""

SINGLE = 2e-6
"""Relative error of a short float32 computation."""

MESH = PictureTolerance(usual=1e-4, share=0.998, worst=1e-4)
"""Fragments: two faces of almost equal depth may change places."""

MESH_GRADIENT = 1e-2
"""Relative L2 error of a float32 gradient to the corners of faces that are not seen too obliquely."""

PYTORCH3D_PICTURE = 0.02
"""Pictures that PyTorch3D rendered, which are stored in 8 bits."""
