"""The Python lines of the README and of the quick start run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "python/README.md", "docs/quick-start.md"]


@pytest.mark.parametrize("page", PAGES)
def test_python_lines(page: str) -> None:
    path = ROOT / page
    if not path.exists():
        pytest.skip(f"{page} is not beside the tests")
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.S | re.M)
    assert blocks
    for block in blocks:
        if "tilefold.sdpa" in block:
            pytest.importorskip("torch")
        exec(compile(block, page, "exec"), {})  # noqa: S102
