"""A linear function whose transpose is given, where the one that JAX derives would be slow.

`jax.custom_vjp` gives up forward mode, and `jax.custom_derivatives.linear_call` gives up `vmap`. This is a primitive
that keeps all of them: the function itself is what forward mode and second derivatives see.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Function = Callable[..., Sequence[jax.Array]]


def linear_call(
    function: Function, transpose: Function, operands: Sequence[jax.Array], x: jax.Array
) -> list[jax.Array]:
    """Calls a function that is linear in x, and remembers its transpose.

    Args:
      function: (*operands, x) -> arrays, plain JAX. Hashable, and equal to another exactly if it does the same.
      transpose: (*operands, *cotangents) -> [cotangent of x]. Hashable likewise.
      operands: what the function depends on in any way.
      x: what it is linear in.

    Returns:
      What the function returns.

    Example:
      >>> linear_call(lambda a, x: [a * x], lambda a, v: [a * v], [jnp.float32(2)], jnp.float32(3))
      [Array(6., dtype=float32)]
    """
    return _primitive.bind(*operands, x, function=function, transpose=transpose)


@dataclasses.dataclass(frozen=True)
class _Mapped:
    """A function over a leading axis of some of its arguments, equal to another over the same axes."""

    function: Function
    in_axes: tuple[int | None, ...]

    def __call__(self, *arguments: jax.Array) -> Sequence[jax.Array]:
        return jax.vmap(self.function, self.in_axes)(*arguments)


def _call(*arguments: jax.Array, function: Function, transpose: Function) -> list[jax.Array]:
    del transpose
    return list(function(*arguments))


def _abstract(*arguments: Any, function: Function, transpose: Function) -> list[Any]:
    del transpose
    shapes = jax.eval_shape(function, *(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments))
    return [ShapedArray(s.shape, s.dtype) for s in shapes]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, function: Function, transpose: Function) -> Any:
    outputs = _primitive.bind(*primals, function=function, transpose=transpose)
    *operands, x = primals
    *v_operands, v_x = tangents
    parts = []
    if type(v_x) is not ad.Zero:
        parts.append(_primitive.bind(*operands, v_x, function=function, transpose=transpose))
    if any(type(v) is not ad.Zero for v in v_operands):
        known = [ad.instantiate_zeros(v) for v in v_operands]
        parts.append(jax.jvp(lambda *o: list(function(*o, x)), tuple(operands), tuple(known))[1])
    return outputs, [sum(part[1:], start=part[0]) for part in zip(*parts, strict=True)]


def _transpose(cotangents: Sequence[Any], *arguments: Any, function: Function, transpose: Function) -> list[Any]:
    del function
    operands = arguments[:-1]
    (v_x,) = transpose(*operands, *(ad.instantiate_zeros(v) for v in cotangents))
    return [None] * len(operands) + [v_x]


def _batch(arguments: Sequence[Any], axes: Sequence[Any], *, function: Function, transpose: Function) -> Any:
    size = next(a.shape[axis] for a, axis in zip(arguments, axes, strict=True) if axis is not None)
    moved = [a if axis is None else jnp.moveaxis(a, axis, 0) for a, axis in zip(arguments, axes, strict=True)]
    # x always has the axis, so that its cotangent has it too.
    if axes[-1] is None:
        moved[-1] = jnp.broadcast_to(moved[-1][None], (size, *moved[-1].shape))
    in_axes = tuple(None if axis is None else 0 for axis in axes[:-1])
    mapped = _Mapped(function, (*in_axes, 0))
    shapes = jax.eval_shape(mapped, *moved)
    outputs = _primitive.bind(*moved, function=mapped, transpose=_Mapped(transpose, in_axes + (0,) * len(shapes)))
    return outputs, [0] * len(outputs)


_primitive = Primitive("jaxsplat_linear_call")
_primitive.multiple_results = True
_primitive.def_impl(lambda *arguments, **functions: jax.jit(lambda *a: _call(*a, **functions))(*arguments))
_primitive.def_abstract_eval(_abstract)
ad.primitive_jvps[_primitive] = _jvp
ad.primitive_transposes[_primitive] = _transpose
batching.primitive_batchers[_primitive] = _batch
mlir.register_lowering(_primitive, mlir.lower_fun(_call, multiple_results=True))
