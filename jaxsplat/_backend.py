"""Chooses between the native kernels and the plain-JAX reference."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import jax.numpy as jnp

from jaxsplat import _check, _ffi

_warned: set[str] = set()


def resolve(function: str, backend: str, **arrays: Any) -> Literal["native", "reference"]:
    """Turns the `backend` argument of a public function into the back end to use.

    Args:
      function: name for messages.
      backend: "auto", "native" or "reference".
      **arrays: float operands, whose precision the native kernels must support.

    Raises:
      ValueError: for an unknown name, or for "native" on a platform that has no native module.
      TypeError: for float64 operands with the native kernels, which compute in float32.
    """
    _check.choice(function, "backend", backend, ("auto", "native", "reference"))
    if backend == "reference":
        return "reference"
    platform = _ffi.platform()
    if not _ffi.available(function, platform):
        message = f"{function}: there is no native module for platform {platform!r}"
        if backend == "native":
            raise ValueError(f'{message}; use backend="auto" or backend="reference".')
        if platform not in _warned:
            _warned.add(platform)
            hint = _ffi.how_to_build(function, platform)
            warnings.warn(f"{message}; the reference back end is used, which is much slower.{hint}", stacklevel=3)
        return "reference"
    for name, array in arrays.items():
        if array is not None and array.dtype == jnp.float64:
            raise TypeError(
                f"{function}: {name} is float64, but the native kernels compute in float32. "
                'Cast it, or use backend="reference".'
            )
    return "native"
