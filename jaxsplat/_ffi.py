"""The seam between JAX and the compiled kernels. The only module that touches `jax.ffi`.

Each module (`_cpu`, and `_cuda` where it was built) is a plain shared library with C symbols, so one file serves
every version of Python. Their handlers are registered under versioned names: a changed signature gets a new name, and
programs in a persistent cache keep meaning what they meant.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
import re
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

_PREFIX = "jaxsplat.v1."
_MALLOPT = {"arena_max": -8, "mmap_threshold": -3, "trim_threshold": -1}
"""Of glibc."""

_TARGETS = (
    "rasterize_gaussians_3d_forward",
    "rasterize_gaussians_3d_forward_static",
    "rasterize_gaussians_3d_backward",
    "rasterize_gaussians_3d_backward_static",
    "rasterize_gaussians_world_forward",
    "rasterize_gaussians_world_forward_static",
    "rasterize_gaussians_world_backward",
    "rasterize_gaussians_world_backward_static",
    "trace_contributors",
    "trace_contributors_world",
    "intersect_tiles",
    "project_gaussians",
    "project_gaussians_gradient",
    "spherical_harmonics",
    "spherical_harmonics_gradient",
    "ssim",
    "ssim_gradient",
    "adam",
    "adam_rows",
    "rasterize_meshes_forward",
    "rasterize_meshes_backward",
    "rasterize_silhouettes_forward",
    "rasterize_silhouettes_backward",
)

_CUDA_FUNCTIONS = (
    "rasterize_gaussians_3d",
    "rasterize_gaussians_world",
    "intersect_tiles",
    "rasterize_meshes",
    "rasterize_silhouettes",
)
"""Functions whose kernels the CUDA module has. The targets have the same names on both platforms."""


@functools.cache
def load() -> ctypes.CDLL:
    """Loads the CPU module and registers its targets, once.

    Raises:
      ImportError: if the module is missing, or was built against a newer XLA than the installed jaxlib has.
        (Registering such a module would keep JAX's CPU back end from starting.)
    """
    library = _open("_cpu.so")
    library.jaxsplat_isa.restype = ctypes.c_char_p
    library.jaxsplat_workspace_bytes.restype = ctypes.c_int64
    library.jaxsplat_workspace_bytes.argtypes = [ctypes.c_int64] * 9
    _register(library, _TARGETS, "cpu")
    return library


@functools.cache
def load_cuda() -> bool:
    """Loads the CUDA module and registers its targets, once. Called only where JAX has a CUDA device.

    Returns:
      Whether there is such a module: it is built only where there is a CUDA compiler.

    Raises:
      ImportError: if it was built against a newer XLA than the installed jaxlib has.
    """
    if _search("_cuda.so") is None:
        return False
    targets = [target for target in _TARGETS if target.startswith(_CUDA_FUNCTIONS)]
    _register(_open("_cuda.so"), targets, "CUDA")
    return True


def _open(name: str) -> ctypes.CDLL:
    library = ctypes.CDLL(str(_find(name)))
    built, running = library.jaxsplat_ffi_api_version(), _running_api_version()
    if built > running:
        raise ImportError(
            f"jaxsplat was built against version {_version(built)} of the XLA FFI, but the installed jaxlib has "
            f"{_version(running)}. Upgrade jax, or reinstall jaxsplat from source."
        )
    return library


def _register(library: ctypes.CDLL, targets: Sequence[str], platform: str) -> None:
    for target in targets:
        handler = jax.ffi.pycapsule(getattr(library, f"jaxsplat_{target}"))
        jax.ffi.register_ffi_target(_PREFIX + target, handler, platform=platform)


def instruction_set() -> str:
    """Name of the instruction set that the kernels use on this machine: avx512, avx2 or baseline."""
    return load().jaxsplat_isa().decode()


def constant(name: str) -> int:
    """Value of a constant of the native module: `max_tile_size` or `block_side`."""
    return getattr(load(), f"jaxsplat_{name}")()


def available(function: str, platform: str) -> bool:
    """Whether there are kernels of a function for a platform of JAX, such as "cpu" or "gpu"."""
    if platform in ("gpu", "cuda"):
        return function in _CUDA_FUNCTIONS and load_cuda()
    return platform == "cpu"


def how_to_build(function: str, platform: str) -> str:
    """A sentence for messages: how to get the kernels that `available` misses. Empty where there are none."""
    if platform not in ("gpu", "cuda") or function not in _CUDA_FUNCTIONS:
        return ""
    return " Build the CUDA module, with CUDA 12 or 13 installed: JAXSPLAT_CUDA=on pip install ."


def platform() -> str:
    """Platform that JAX computes on by default."""
    device = getattr(jax.config, "jax_default_device", None)
    if device is None:
        return jax.default_backend()
    return device if isinstance(device, str) else device.platform


def takes(*arrays: jax.Array) -> bool:
    """Whether the kernels that only CPUs have serve the default platform and the precision of these arrays."""
    return platform() == "cpu" and all(array.dtype == np.float32 for array in arrays)


def by_platform(native: Callable[..., Any], plain: Callable[..., Any], *operands: Any) -> Any:
    """Calls `native`, whose kernels only CPUs have, where the program is lowered for a CPU, and else `plain`.

    What is traced where JAX computes on a CPU may still be lowered for another platform, as by `jax.export`. Not to be
    differentiated: each form would keep what the other one needs.
    """
    return lax.platform_dependent(*operands, cpu=native, default=plain)


def workspace_bytes(
    images: int, *, size: int, channels: int, width: int, height: int, tile_size: int, capacity: int, backward: bool,
    rays: bool,
) -> int:  # fmt: skip
    """Memory that the rasterizer takes on a CUDA device for tile lists of a fixed capacity.

    Args:
      images: number of images.
      size: number of splats in each.
      channels: of the colors.
      width: image width in pixels.
      height: image height in pixels.
      tile_size: side of a tile in pixels.
      capacity: room for intersections in each image.
      backward: whether for the backward pass.
      rays: whether the splats are evaluated along rays.

    Returns:
      Bytes.
    """
    return load().jaxsplat_workspace_bytes(images, size, channels, width, height, tile_size, capacity, backward, rays)


def call(
    target: str,
    operands: Sequence[jax.Array],
    operand_ranks: Sequence[int],
    results: Sequence[tuple[tuple[int, ...], Any]],
    workspace: Callable[[int], int] | None = None,
    **attributes: int | float | bool,
) -> list[jax.Array]:
    """Calls a kernel over any leading axes.

    Operands are [leading axes, own axes], whose leading axes broadcast. An axis that is missing or of size 1 is shared
    by the kernel, not copied. Under `jax.vmap` a new leading axis is added, so that one call serves
    any nesting.

    Args:
      target: name of the kernel.
      operands: arrays.
      operand_ranks: number of own axes of each operand.
      results: (own shape, dtype) of each result; the leading axes are those that the operands broadcast to.
      workspace: for a kernel with one more result, bytes for its own use: how many it needs for so many images.
      **attributes: static numbers.

    Returns:
      The results, each with all leading axes.
    """
    load()
    attributes = {name: _attribute(value) for name, value in attributes.items()}
    most = max(o.ndim - rank for o, rank in zip(operands, operand_ranks, strict=True))
    operands = [
        o.reshape((1,) * (most - (o.ndim - rank)) + o.shape) for o, rank in zip(operands, operand_ranks, strict=True)
    ]

    @custom_vmap
    def run(*operands: jax.Array) -> list[jax.Array]:
        leading = np.broadcast_shapes(
            *(o.shape[: o.ndim - rank] for o, rank in zip(operands, operand_ranks, strict=True))
        )
        shapes = [jax.ShapeDtypeStruct((*leading, *shape), dtype) for shape, dtype in results]
        if workspace is not None:
            shapes.append(jax.ShapeDtypeStruct((workspace(math.prod(leading)),), np.uint8))
        outputs = jax.ffi.ffi_call(_PREFIX + target, shapes)(*operands, **attributes)
        return [_vary_like(output, operands) for output in outputs[: len(results)]]

    @run.def_vmap
    def _(axis_size: int, in_batched: Sequence[bool], *operands: jax.Array) -> tuple[list[jax.Array], list[bool]]:
        del axis_size
        batched = [o if is_batched else o[None] for o, is_batched in zip(operands, in_batched, strict=True)]
        return run(*batched), [True] * len(results)

    return run(*operands)


def adam(
    values: jax.Array,
    first: jax.Array,
    second: jax.Array,
    gradient: jax.Array,
    rule: jax.Array,
    rows: jax.Array | None = None,
    **attributes: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """One step of Adam in one pass, in place where the arrays are donated.

    Args:
      values: parameters, of any shape.
      first: moments.
      second: moments.
      gradient: of the parameters.
      rule: [3] learning rate, and 1 - beta^t for both moments.
      rows: [N] bool, the elements of the first axis to change; None for all.
      **attributes: beta1, beta2 and epsilon.

    Returns:
      The new values and moments.
    """
    load()
    results = [jax.ShapeDtypeStruct(values.shape, values.dtype)] * 3
    operands = (
        (values, first, second, gradient, rule) if rows is None else (values, first, second, gradient, rule, rows)
    )
    outputs = jax.ffi.ffi_call(
        _PREFIX + ("adam" if rows is None else "adam_rows"),
        results,
        vmap_method="sequential",
        input_output_aliases={0: 0, 1: 1, 2: 2},
    )(*operands, **{name: _attribute(value) for name, value in attributes.items()})
    new_values, new_first, new_second = (_vary_like(output, operands) for output in outputs)
    return new_values, new_first, new_second


def keep_freed_memory() -> bool:
    """Lets the C library keep what is freed, instead of handing it back and fetching it again at the next step.

    On a CPU, XLA allocates its buffers anew in each call. With glibc's defaults the large ones are fresh pages of the
    system, which cost about a fifth of a training step. Call it before the first use of JAX; the process then keeps up
    to 2 GiB that it no longer needs. `jaxsplat train` and `jaxsplat demo` do.

    Returns:
      Whether the C library took the settings: False where it is not glibc.

    Example:
      >>> jaxsplat.train.keep_freed_memory()
      True
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    # One arena: the others hold no more than 64 MiB each.
    settings = {"arena_max": 1, "mmap_threshold": 1 << 30, "trim_threshold": (1 << 31) - 1}
    return mallopt is not None and all([mallopt(_MALLOPT[name], value) == 1 for name, value in settings.items()])


def vary_alike(arrays: Sequence[Any]) -> list[Any]:
    """Marks arrays as varying over every mesh axis that any of them varies over; None is passed on.

    Inside `shard_map`, the transpose of this mark sums the gradient of a replicated array over the devices.
    """
    given = [a for a in arrays if a is not None]
    return [None if a is None else _vary_like(a, given) for a in arrays]


def _vary_like(x: jax.Array, others: Sequence[jax.Array]) -> jax.Array:
    axes = frozenset().union(*(_varying(o) for o in others)) - _varying(x)
    return lax.pcast(x, tuple(sorted(axes)), to="varying") if axes else x


def _varying(x: jax.Array) -> frozenset[str]:
    return frozenset(jax.typeof(x).manual_axis_type.varying)


def _attribute(value: int | float | bool) -> Any:
    # XLA decodes an attribute only as exactly the type that the kernel declares: int64, double or bool.
    if isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int | np.integer) else float(value)


def _find(name: str) -> Path:
    path = _search(name)
    if path is None:
        folders = [str(folder) for folder in _folders()]
        raise ImportError(f"jaxsplat: {name} is not in {folders}. Install the package: pip install .")
    return path


def _search(name: str) -> Path | None:
    return next((folder / name for folder in _folders() if (folder / name).is_file()), None)


def _folders() -> list[Path]:
    # An editable install, or a source folder that hides the installed package, keeps the library and the sources apart.
    import jaxsplat

    folders = [Path(folder) for folder in jaxsplat.__path__]
    with contextlib.suppress(metadata.PackageNotFoundError):
        folders.append(Path(str(metadata.distribution("jaxsplat").locate_file("jaxsplat"))))
    return folders


def _running_api_version() -> int:
    text = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()
    numbers = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR)\s+(\d+)", text))
    return int(numbers["MAJOR"]) * 1000 + int(numbers["MINOR"])


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000}"
