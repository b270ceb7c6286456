"""The package's annotations: mypy's strict mode, and a stub that names what the extension has."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any, Dict, List

import pytest
import tilefold
from tilefold import _core

PACKAGE = Path(tilefold.__file__).parent


def functions_of(body: List[ast.stmt]) -> Dict[str, List[str]]:
    """The arguments' names of each function that a stub names; "/" of one that has only its place."""
    return {
        node.name: ["/"] * len(node.args.posonlyargs) + [argument.arg for argument in node.args.args]
        for node in body
        if isinstance(node, ast.FunctionDef)
    }


def arguments_of(function: Any) -> List[str]:
    """The arguments' names of a function that nanobind made."""
    ((signature, *_),) = function.__nb_signature__
    names = functions_of(ast.parse(signature + ": ...").body)[function.__name__]
    return ["/" if re.fullmatch(r"arg\d*", name) else name for name in names]


def test_the_stub_says_what_is_there() -> None:
    tree = ast.parse((PACKAGE / "_core.pyi").read_text())
    named = functions_of(tree.body)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):  # a submodule
            inner = functions_of(node.body)
            module = getattr(_core, node.name)
            assert set(inner) == {name for name in dir(module) if not name.startswith("_")}
            for name, arguments in inner.items():
                assert arguments_of(getattr(module, name)) == arguments, name
    for name, arguments in named.items():
        if name not in ("forward", "forward_of_operator"):  # of CPython's own kind, which count their arguments
            assert arguments_of(getattr(_core, name)) == arguments, name
    with pytest.raises(TypeError, match=f"takes {len(named['forward'])} arguments, 0 are given"):
        _core.forward()  # type: ignore[call-arg]
    others = {ast.unparse(node.target) for node in tree.body if isinstance(node, ast.AnnAssign)}
    others |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert set(named) | others == {name for name in dir(_core) if not name.startswith("_")}


def test_the_call_shows_its_signature() -> None:
    parameters = inspect.signature(tilefold.attention).parameters
    assert list(parameters)[:4] == ["q", "k", "v", "causal"] and len(parameters) == 14
    assert parameters["empty_row_lse"].default == "+inf"
    assert parameters["layout"].kind is inspect.Parameter.KEYWORD_ONLY
    assert (tilefold.attention.__doc__ or "").startswith("Attention, forward")


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
