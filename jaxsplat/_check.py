"""One checker of shapes, dtypes and settings for every public function, with one message format.

A specification is a string of axes, for example `"... C 4 4"`: a number is an exact size, a letter is bound on first
use and must agree afterwards, and a leading `...` stands for batch axes, which broadcast between the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxsplat.types import Blend, Splats

MAX_SIDE = 2**23


def shapes(function: str, **arguments: tuple[Any, str]) -> dict[str, Any]:
    """Checks that the arguments' shapes agree.

    Args:
      function: name for the message.
      **arguments: name=(array or None, specification). None is passed over.

    Returns:
      Size of each letter, and under `"..."` the broadcast shape of the leading axes.

    Raises:
      ValueError: naming the argument, the expected symbolic shape, and what came.
      TypeError: where a value is no array.

    Example:
      >>> shapes("f", means=(jnp.zeros((2, 7, 3)), "... N 3"))
      {'...': (2,), 'N': 7}
    """
    sizes: dict[str, Any] = {"...": ()}
    for name, (value, spec) in arguments.items():
        if value is None:
            continue
        shape = _shape_of(function, name, value)
        axes = spec.split()
        batched = axes[0] == "..."
        axes = axes[1:] if batched else axes
        if len(shape) < len(axes) or (not batched and len(shape) != len(axes)):
            raise _mismatch(function, name, spec, shape, sizes)
        leading, trailing = shape[: len(shape) - len(axes)], shape[len(shape) - len(axes) :]
        for axis, size in zip(axes, trailing, strict=True):
            expected = int(axis) if axis.isdigit() else sizes.setdefault(axis, size)
            if size != expected:
                raise _mismatch(function, name, spec, shape, sizes)
        try:
            sizes["..."] = np.broadcast_shapes(sizes["..."], leading)
        except ValueError:
            raise _mismatch(function, name, spec, shape, sizes, leading=True) from None
    return sizes


def splats(function: str, splats: Splats, *, batched: bool = True) -> dict[str, Any]:
    """Checks that the arrays of a stored scene are floats of shapes that fit; R are the coefficients of `sh_rest`."""
    specs = ("N 3", "N 4", "N 3", "N", "N 1 3", "N R 3")
    lead = "... " if batched else ""
    pairs = zip(splats._fields, splats, specs, strict=True)
    sizes = shapes(function, **{name: (x, lead + spec) for name, x, spec in pairs})
    floating(function, **splats._asdict())
    return sizes


def floating(function: str, **arguments: Any) -> None:
    """Raises TypeError unless every given array holds real floating-point numbers."""
    for name, value in arguments.items():
        if value is not None and not jnp.issubdtype(_dtype_of(value), jnp.floating):
            raise TypeError(f"{function}: {name} must hold floating-point numbers, got {_dtype_of(value)}.")


def kind(function: str, expected: Any, **arguments: Any) -> None:
    """Raises TypeError unless every given array is of the expected kind (for example `jnp.integer` or `jnp.bool_`)."""
    for name, value in arguments.items():
        if value is not None and not jnp.issubdtype(_dtype_of(value), expected):
            raise TypeError(f"{function}: {name} must be of type {expected.__name__}, got {_dtype_of(value)}.")


def choice(function: str, name: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raises ValueError unless the value is one of those allowed."""
    if not any(value is option or (isinstance(value, type(option)) and value == option) for option in allowed):
        raise ValueError(f"{function}: {name} must be one of {', '.join(map(repr, allowed))}, got {value!r}.")


def positive_int(function: str, **arguments: Any) -> None:
    """Raises unless every value is a static integer of at least 1."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise TypeError(f"{function}: {name} must be a static int (it sets a shape), got {value!r}.")
        if value < 1:
            raise ValueError(f"{function}: {name} must be at least 1, got {value}.")


def grid(function: str, tile_size: int, *, name: str = "tile_size", **sides: int) -> None:
    """Raises unless tiles of this size make a grid that can be numbered, over a picture with sides so named.

    Args:
      function: name of the public function.
      tile_size: of whole 4x4 blocks, at most 64 of them.
      name: of the tile size.
      **sides: width and height in pixels.
    """
    positive_int(function, **{name: tile_size}, **sides)
    if tile_size % 4 or tile_size > 32:
        raise ValueError(f"{function}: {name} must be a multiple of 4 up to 32, got {tile_size}.")
    for side, value in sides.items():
        if value > MAX_SIDE:
            raise ValueError(
                f"{function}: {side} must be at most {MAX_SIDE} (up to there float32 tells pixel centres apart), "
                f"got {value}."
            )
    tiles = math.prod(-(-value // tile_size) for value in sides.values())
    if tiles >= 2**31:
        raise ValueError(
            f"{function}: {' and '.join(sides)} must give fewer than {2**31} tiles of {tile_size}x{tile_size} pixels, "
            f"got {' x '.join(map(str, sides.values()))} with {tiles}."
        )


def blend(function: str, rule: Blend) -> None:
    """Raises unless the rule makes sense and has finite gradients."""
    if not 0 < rule.alpha_min < rule.alpha_max < 1:
        raise ValueError(
            f"{function}: blend must have 0 < alpha_min < alpha_max < 1 (the gradient divides by 1 - alpha), "
            f"got alpha_min={rule.alpha_min}, alpha_max={rule.alpha_max}."
        )
    if not 0 <= rule.transmittance_min < 1:
        raise ValueError(f"{function}: blend.transmittance_min must lie in [0, 1), got {rule.transmittance_min}.")
    if not rule.alpha_gradient_max > 0:
        raise ValueError(f"{function}: blend.alpha_gradient_max must be above 0, got {rule.alpha_gradient_max}.")
    if not 0 <= rule.compensation_min <= 1:
        raise ValueError(f"{function}: blend.compensation_min must lie in [0, 1], got {rule.compensation_min}.")
    if not rule.tile_sigmas >= 0:
        raise ValueError(f"{function}: blend.tile_sigmas must be at least 0, got {rule.tile_sigmas}.")
    if rule.max_contributors < 0:
        raise ValueError(f"{function}: blend.max_contributors must be at least 0, got {rule.max_contributors}.")


def _shape_of(function: str, name: str, value: Any) -> tuple[int, ...]:
    shape = getattr(value, "shape", None)
    if shape is None and not isinstance(value, int | float | list | tuple):
        raise TypeError(f"{function}: {name} must be an array, got {type(value).__name__}.")
    return np.shape(value)


def _dtype_of(value: Any) -> Any:
    return value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype


def _mismatch(
    function: str, name: str, spec: str, shape: tuple[int, ...], sizes: dict[str, Any], *, leading: bool = False
) -> ValueError:
    wanted = ", ".join(spec.split())
    axes = [axis for axis in spec.split() if axis in sizes and (axis != "..." or leading)]
    bound = ", ".join(f"{axis} = {list(sizes[axis]) if axis == '...' else sizes[axis]}" for axis in axes)
    where = f" with {bound}" if bound else ""
    return ValueError(f"{function}: {name} must have shape [{wanted}]{where}, got {list(shape)}.")
