"""The reference pages name every public thing, with its comment."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("mkdocs")
if not (ROOT / "docs" / "api_reference.py").exists():
    pytest.skip("the documentation is not beside the tests", allow_module_level=True)
sys.path.insert(0, str(ROOT / "docs"))

import api_reference  # noqa: E402

INCLUDE = ROOT / "include" / "tilefold"


def test_every_function_of_the_c_interface() -> None:
    text = (INCLUDE / "tilefold.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"^TILEFOLD_API [\w* ]*?(tilefold_\w+)\(", text, re.M))
    page = api_reference.header_page(INCLUDE / "tilefold.h", "C", "c")
    assert declared <= set(re.findall(r"^## (\w+)$", page, re.M))
    assert "- `workspace_bytes`: Its size, bytes." in page


def test_the_cpp_interface() -> None:
    page = api_reference.header_page(INCLUDE / "tilefold.hpp", "C++", "cpp")
    for name in ("forward", "explain", "Options", "ConstTensor", "Workspace", "devices", "kernels"):
        assert f"## {name}\n" in page
    assert "const Options& options = {}" in page and "///" not in re.sub(r"```.*?```", "", page, flags=re.S)


def test_the_python_package() -> None:
    page = api_reference.python_page()
    for name in (
        "tilefold.attention",
        "tilefold.explain",
        "tilefold.Device",
        "tilefold.flash_attn.flash_attn_func",
        "tilefold.sdpa.scaled_dot_product_attention",
        "tilefold.jax.attention",
    ):
        assert f"### {name}\n" in page
    assert page.count("### tilefold.attention\n") == 1
