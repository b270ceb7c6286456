"""tilefold.draw: every picture is sound SVG and shows every place once."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from tilefold import draw
from tilefold._core import layouts


@pytest.mark.parametrize("name", sorted(draw.PICTURES))
def test_pictures(name: str, tmp_path: Path) -> None:
    assert draw.main(["--out", str(tmp_path), name]) == 0
    root = ElementTree.parse(tmp_path / f"{name}.svg").getroot()
    assert root.tag.endswith("svg") and len(root) > 10


def test_fragments_are_bijective() -> None:
    a = {layouts.mma_m16n8k16_a(t, r, h) for t in range(32) for r in range(4) for h in range(2)}
    assert a == {(m, k) for m in range(16) for k in range(16)}
    c = {layouts.mma_m16n8k16_c(t, r) for t in range(32) for r in range(4)}
    assert c == {(m, n) for m in range(16) for n in range(8)}


def test_block_ranges_agree_with_what_rows_see() -> None:
    for diagonals in [(-24, 0), (-24, 16), (-5, 3)]:
        for row in range(0, 24, 8):
            begin, full_begin, full_end, end = layouts.block_range(40, *diagonals, row, row + 8, 8)
            for block in range(5):
                seen = [
                    layouts.sees(40, *diagonals, i, j)
                    for i in range(row, row + 8)
                    for j in range(8 * block, 8 * block + 8)
                ]
                assert any(seen) == (begin <= block < end)
                assert all(seen) == (full_begin <= block < full_end)


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        draw.main(["nothing"])
    assert "no picture named nothing" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for out in (file, file / "below"):
        with pytest.raises(SystemExit):
            draw.main(["--out", str(out), "mma-a"])
        assert capsys.readouterr().err.startswith(f"tilefold.draw: {file}")
    (tmp_path / "mma-a.svg").mkdir()
    with pytest.raises(SystemExit):
        draw.main(["--out", str(tmp_path), "mma-a"])
    assert "mma-a.svg cannot be written: Is a directory" in capsys.readouterr().err


PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


@pytest.mark.skipif(not PICTURES.is_dir(), reason="the documentation is not beside the tests")
def test_the_documentations_pictures_are_current() -> None:
    assert {path.stem for path in PICTURES.glob("*.svg")} == set(draw.PICTURES)
    for name, picture in draw.PICTURES.items():
        assert (PICTURES / f"{name}.svg").read_text(encoding="utf-8") == picture().svg(), (
            f"{name}.svg: run python -m tilefold.draw --out docs/pictures"
        )


def test_an_error_without_a_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise OSError("libx.so: cannot open shared object file")

    monkeypatch.setattr(draw, "PICTURES", {"lanes": fails})
    with pytest.raises(SystemExit):
        draw.main(["--out", str(tmp_path), "lanes"])
    assert "tilefold.draw: libx.so: cannot open" in capsys.readouterr().err
