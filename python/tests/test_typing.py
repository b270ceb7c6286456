"""The package's annotations: mypy's strict mode, and a stub that names what the extension has."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import tilefold
from tilefold import _core

PACKAGE = Path(tilefold.__file__).parent


def test_the_stub_names_what_is_there() -> None:
    tree = ast.parse((PACKAGE / "_core.pyi").read_text())
    named = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            named.add(node.name)
        if isinstance(node, ast.AnnAssign):
            named.add(ast.unparse(node.target))
        if isinstance(node, ast.ClassDef) and node.name == "layouts":
            members = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
            assert members == {name for name in dir(_core.layouts) if not name.startswith("_")}
    assert named == {name for name in dir(_core) if not name.startswith("_")}


def test_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_mypy(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    for needed in ("torch", "jax"):
        pytest.importorskip(needed)
    configuration = PACKAGE.parents[1] / "pyproject.toml"
    if not configuration.exists():
        pytest.skip("the package is installed: its sources, with mypy's settings, are elsewhere")
    output, errors, status = api.run(
        ["--config-file", str(configuration), "--cache-dir", str(tmp_path), str(PACKAGE)]
    )
    assert status == 0, output + errors
