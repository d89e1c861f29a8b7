"""The choice of a back end, and what guards the loading of the native module."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsplat import _backend, _ffi, rasterize_gaussians_3d
from tests.splats2d import random_splats


@pytest.fixture
def no_native_module(monkeypatch):
    monkeypatch.setattr(_ffi, "available", lambda function, platform: False)
    monkeypatch.setattr(_backend, "_warned", set())


def render(**settings):
    s = random_splats(12, width=16, height=12)
    return rasterize_gaussians_3d(
        *s[:4], depths=s.depths, radii=s.radii, width=16, height=12, **settings
    )  # fmt: skip


def test_auto_uses_the_native_kernels_on_a_cpu():
    assert _backend.resolve("f", "auto") == "native"
    np.testing.assert_array_equal(render().colors, render(backend="native").colors)


def test_auto_falls_back_to_the_reference_with_a_single_warning(no_native_module):
    with pytest.warns(UserWarning, match="no native module for platform 'cpu'; the reference back end is used"):
        first = render()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = render()
    np.testing.assert_array_equal(first.colors, second.colors)
    np.testing.assert_array_equal(first.colors, render(backend="reference").colors)


def test_native_where_there_is_none_is_an_error_that_names_the_alternatives(no_native_module):
    with pytest.raises(
        ValueError, match='no native module for platform \'cpu\'; use backend="auto" or backend="reference"'
    ):
        render(backend="native")


def test_on_a_gpu_without_a_module_the_warning_says_how_to_build_one(monkeypatch):
    monkeypatch.setattr(_backend, "_warned", set())
    monkeypatch.setattr(_ffi, "platform", lambda: "gpu")
    monkeypatch.setattr(_ffi, "load_cuda", lambda: False)
    with pytest.warns(UserWarning, match=r"for platform 'gpu'; the reference .*: JAXSPLAT_CUDA=on pip install \."):
        assert _backend.resolve("rasterize_gaussians_3d", "auto") == "reference"


def test_on_a_gpu_with_a_module_only_the_functions_that_it_has_are_native(monkeypatch):
    monkeypatch.setattr(_backend, "_warned", set())
    monkeypatch.setattr(_ffi, "platform", lambda: "gpu")
    monkeypatch.setattr(_ffi, "load_cuda", lambda: True)
    assert _backend.resolve("rasterize_gaussians_3d", "auto") == "native"
    assert _backend.resolve("intersect_tiles", "native") == "native"
    assert _backend.resolve("rasterize_meshes", "auto") == _backend.resolve("rasterize_silhouettes", "auto") == "native"
    with pytest.warns(UserWarning, match="trace_contributors: there is no native module for platform 'gpu'"):
        assert _backend.resolve("trace_contributors", "auto") == "reference"
    assert not _ffi.takes(jnp.zeros(3))


def test_on_a_gpu_float64_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(_ffi, "platform", lambda: "gpu")
    monkeypatch.setattr(_ffi, "load_cuda", lambda: True)
    for function in ("rasterize_gaussians_3d", "rasterize_gaussians_world", "rasterize_meshes"):
        with pytest.raises(TypeError, match="colors is float64, but the native kernels compute in float32"):
            _backend.resolve(function, "auto", colors=np.zeros(3))


def test_arrays_on_different_devices_are_refused_and_named():
    s = random_splats(12, width=16, height=12)
    first, second = jax.devices()[:2]
    means2d, conics = jax.device_put(s.means2d, first), jax.device_put(s.conics, second)
    with pytest.raises(ValueError, match="incompatible devices"):
        rasterize_gaussians_3d(
            means2d, conics, *s[2:4], depths=s.depths, radii=s.radii, width=16, height=12
        )  # fmt: skip


def test_the_cuda_module_is_registered_where_it_was_built_and_missed_where_not(monkeypatch):
    registered = []
    monkeypatch.setattr(
        jax.ffi, "register_ffi_target", lambda name, handler, platform: registered.append((name, platform))
    )
    monkeypatch.setattr(_ffi, "_search", lambda name: None)
    assert not _ffi.load_cuda.__wrapped__() and not registered
    # Any module with the same symbols will do.
    cpu = _ffi._folders()
    monkeypatch.setattr(_ffi, "_search", lambda name: next(f / "_cpu.so" for f in cpu if (f / "_cpu.so").is_file()))
    assert _ffi.load_cuda.__wrapped__()
    assert {platform for _, platform in registered} == {"CUDA"}
    assert sorted(name.split(".")[-1] for name, _ in registered) == [
        "intersect_tiles", "rasterize_gaussians_3d_backward", "rasterize_gaussians_3d_backward_static",
        "rasterize_gaussians_3d_forward", "rasterize_gaussians_3d_forward_static",
        "rasterize_gaussians_world_backward", "rasterize_gaussians_world_backward_static",
        "rasterize_gaussians_world_forward", "rasterize_gaussians_world_forward_static",
        "rasterize_meshes_backward", "rasterize_meshes_forward", "rasterize_silhouettes_backward",
        "rasterize_silhouettes_forward",
    ]  # fmt: skip


def test_a_module_built_against_a_newer_interface_is_refused_before_it_is_registered(monkeypatch):
    monkeypatch.setattr(_ffi, "_running_api_version", lambda: 1)
    with pytest.raises(ImportError, match="built against version .* of the XLA FFI, but the installed jaxlib has 0.1"):
        _ffi.load.__wrapped__()
    # JAX itself lives on.
    assert float(jnp.sum(jax.jit(lambda x: x + 1)(jnp.zeros(3)))) == 3


def test_a_missing_module_says_how_to_install(monkeypatch):
    with pytest.raises(ImportError, match="_nothing.so is not in .*pip install"):
        _ffi._find("_nothing.so")


def test_instruction_set_is_one_that_is_compiled_in():
    assert _ffi.instruction_set() in ("avx512", "avx2", "baseline")
