"""Rules of the code base that no single module can keep: who imports whom, one home for each number, signatures."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import jaxsplat
from jaxsplat import _constants, _ffi

PACKAGE = Path(jaxsplat.__path__[-1]) if len(jaxsplat.__path__) == 1 else Path(__file__).parents[1] / "jaxsplat"
FILES = sorted(PACKAGE.rglob("*.py"))

# Lower layers come first; a module imports only from its own layer or from lower ones.
LAYERS = (
    {"types", "_constants"},
    {"_check", "_ffi", "_validate"},
    {"_linalg", "_backend", "_index", "_linear", "_similarity", "_triangles", "gamma", "gradients"},
    {"sh", "initialization", "cameras", "losses", "lpips"}
    | {"reference", "reference_blend", "reference_meshes", "reference_tiles", "reference_world"},
    {"packing", "projection", "tiles", "rasterize", "shading"},
    {"_camera_chunks", "rendering", "rendering_meshes"},
    {"strategy", "optim", "clamps", "nn"},
    {"train", "viewer", "fused"},
    {"cli"},
    {"__main__"},
)
# These know nothing of rendering.
DATA = {"io", "data"}


def module_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """First name below `jaxsplat` of everything that a file imports from the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jaxsplat":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("jaxsplat.")}
    return found


@pytest.mark.parametrize(
    "path",
    [f for f in FILES if f.parent != PACKAGE or f.name != "__init__.py"],
    ids=lambda p: p.relative_to(PACKAGE).as_posix(),
)
def test_dependencies_go_one_way(path):
    level = {name: k for k, layer in enumerate(LAYERS) for name in layer}
    module = module_of(path)
    for name in imports_of(path) - {module}:
        if module in DATA:
            assert name in DATA | {"types", "_constants", "_check", "sh", "losses", "cameras"}, (
                f"{module} must not import {name}"
            )
        elif name not in DATA:
            assert level[name] <= level[module], f"{module} must not import {name}"


def test_only_the_seam_touches_jax_ffi():
    for path in FILES:
        if path.name != "_ffi.py":
            assert not re.search(r"jax\.ffi|ctypes", path.read_text()), path


def test_shared_numbers_have_one_home():
    literals = {"1 / 255", "1/255", "1.0 / 255", "0.99", "3.33", "1e10"}
    for path in FILES:
        if path.name == "_constants.py":
            continue
        code = "\n".join(
            ast.unparse(n)
            for n in ast.walk(ast.parse(path.read_text()))
            if isinstance(n, ast.BinOp | ast.Constant) and not isinstance(getattr(n, "value", None), str)
        )
        for literal in literals:
            assert literal not in code.splitlines(), f"{path.name} repeats {literal}"


def test_python_and_native_module_agree_on_tiles():
    assert _constants.TILE_SIZE % _ffi.constant("block_side") == 0
    from jaxsplat import _check

    largest = _ffi.constant("max_tile_size")
    _check.grid("f", largest, width=1, height=1)
    with pytest.raises(ValueError, match="tile_size"):
        _check.grid("f", largest + _ffi.constant("block_side"), width=1, height=1)


PUBLIC = {name: getattr(jaxsplat, name) for name in dir(jaxsplat) if not name.startswith("_")}
FUNCTIONS = {n: f for n, f in PUBLIC.items() if inspect.isfunction(f)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_settings_are_keyword_only_and_everything_is_annotated(name):
    for parameter in inspect.signature(FUNCTIONS[name]).parameters.values():
        assert parameter.annotation is not inspect.Parameter.empty, parameter
        if parameter.default is not inspect.Parameter.empty:
            assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, parameter


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_document_every_argument_and_the_result(name):
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    if len(parameters) > 1:
        for parameter in parameters:
            assert re.search(rf"^\s+{parameter}: ", text, re.MULTILINE), f"{parameter} is not documented"
        assert "Returns:" in text
