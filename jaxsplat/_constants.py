"""Numbers that more than one module needs, each with its reason. Their C++ twins live in `xla_ffi/core/constants.h`.

A test compares the values here with those that the native module exports, and forbids these literals elsewhere.
"""

TILE_SIZE = 16
"""Side of an image tile in pixels: the unit of work of the rasterizer."""

ALPHA_MIN = 1.0 / 255.0
"""Contributions below one 8-bit step are skipped; this bounds the extent of every splat."""

ALPHA_MAX = 0.99
"""Opacity of one splat at a pixel is clamped here, so that the transmittance never reaches zero."""

ALPHA_MAX_EARLY = 0.999
"""The clamp of gsplat before 1.6: the transmittance of two opaque splats then loses digits in float32."""

ALPHA_MAX_OPEN = 0.9999
"""For the rule of renderers that clamp nothing: as near to 1 as leaves 1 - alpha three digits in float32."""

TRANSMITTANCE_MIN = 1e-4
"""A pixel ends when its transmittance would reach this: (1 - ALPHA_MAX)^2, two opaque splats."""

INRIA_SIGMAS = 3.0
"""Radius of the original program, which ends opaque splats at alpha 0.011."""

COMPENSATION_MIN = 0.005
"""Floor of the anti-aliasing compensation, so that a very thin splat keeps a gradient."""

EXTENT = 3.33
"""Extent of a splat in standard deviations where no opacity is known: sqrt(2 ln 255) rounded up."""

EPS2D = 0.3
"""Variance, in squared pixels, added to the diagonal of every screen-space covariance (a low-pass filter)."""

NEAR = 0.01
"""Default near plane, in world units."""

FAR = 1e10
"""Default far plane, in world units."""

CLAMP_MARGIN = 0.15
"""The pinhole Jacobian is evaluated no further outside the image than this fraction of its size."""

NORM_FLOOR = 1e-12
"""Smallest length that a vector is divided by when it is normalised."""

GAMMA = 2.2
"""Exponent from colors as they are displayed to linear light."""

TRIANGLE_EPSILON = 1e-8
"""Triangles of this area or less are not drawn, nor are those with a depth below; no denominator is smaller."""

BARYCENTRIC_SUM_MIN = 1e-5
"""Smallest sum that clipped barycentric coordinates are divided by."""
