"""Pictures of the kernels' index maps, schedules and masks, as SVG.

    python -m tilefold.draw --out docs/pictures [NAME ...]

Each picture is drawn by calling the library's own layout functions (src/layout, the ones that the
kernels call), so it shows what the code does. Nothing but the standard library is needed.
"""

from __future__ import annotations

import argparse
import sys
from html import escape
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from tilefold._core import layouts

INK = "#1f2933"
FAINT = "#9aa5b1"
PAPER = "#ffffff"
FULL = "#3e8e7e"
MASKED = "#f2a65a"
SKIPPED = "#eef1f4"
FONT = "font-family='ui-monospace, Menlo, Consolas, monospace'"


def hue(position: float, lightness: int = 82) -> str:
    """A colour for a place in [0, 1)."""
    return f"hsl({360 * position:.0f},62%,{lightness}%)"


class Canvas:
    """Lines of an SVG file, in pixels."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.title = title
        self.width, self.height = width, height
        self.parts: List[str] = []

    def box(
        self, x: float, y: float, w: float, h: float, fill: str, stroke: str = PAPER, hint: str = ""
    ) -> None:
        inside = f"<title>{escape(hint)}</title>" if hint else ""
        self.parts.append(
            f"<rect x='{x:g}' y='{y:g}' width='{w:g}' height='{h:g}' fill='{fill}' "
            f"stroke='{stroke}'>{inside}</rect>"
        )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 11,
        anchor: str = "middle",
        fill: str = INK,
        weight: str = "normal",
    ) -> None:
        self.parts.append(
            f"<text x='{x:g}' y='{y:g}' font-size='{size:g}' text-anchor='{anchor}' fill='{fill}' "
            f"font-weight='{weight}'>{escape(words)}</text>"
        )

    def line(self, points: Sequence[Tuple[float, float]], stroke: str = INK, wide: float = 1) -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(
            f"<polyline points='{path}' fill='none' stroke='{stroke}' stroke-width='{wide:g}'/>"
        )

    def svg(self) -> str:
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width:g} {self.height:g}' "
            f"width='{self.width:g}' height='{self.height:g}' role='img' {FONT}>"
        )
        back = f"<rect width='{self.width:g}' height='{self.height:g}' fill='{PAPER}'/>"
        return "\n".join([head, f"<title>{escape(self.title)}</title>", back, *self.parts, "</svg>\n"])


def _grid(
    title: str,
    note: str,
    rows: int,
    columns: int,
    cells: Dict[Tuple[int, int], Tuple[str, str, str]],
    cell: Tuple[float, float],
    row_name: str,
    column_name: str,
) -> Canvas:
    """A matrix of cells {(row, column): (words, fill, hint)} with its axes numbered."""
    left, top = 58.0, 66.0
    wide, high = cell
    text_width = max(8.6 * len(title), 6.2 * len(note))
    canvas = Canvas(left + max(columns * wide, text_width) + 20, top + rows * high + 34, title)
    canvas.text(left, 22, title, 14, "start", weight="bold")
    canvas.text(left, 40, column_name, 10, "start", FAINT)
    canvas.text(10, top - 8, row_name, 10, "start", FAINT)
    for column in range(columns):
        canvas.text(left + (column + 0.5) * wide, top - 8, str(column), 10, fill=FAINT)
    for row in range(rows):
        canvas.text(left - 8, top + (row + 0.5) * high + 4, str(row), 10, "end", FAINT)
        for column in range(columns):
            words, fill, hint = cells.get((row, column), ("", SKIPPED, ""))
            canvas.box(left + column * wide, top + row * high, wide, high, fill, hint=hint)
            if words:
                size = min(10.5, 1.5 * wide / max(len(words), 1))
                canvas.text(left + (column + 0.5) * wide, top + (row + 0.5) * high + 4, words, size)
    canvas.text(left, top + rows * high + 22, note, 10, "start")
    return canvas


def _fragment(
    title: str,
    note: str,
    shape: Tuple[int, int],
    place: Callable[[int, int, int], Tuple[int, int]],
    registers: int,
    halves: int,
    letter: str,
    axes: Tuple[str, str],
) -> Canvas:
    cells = {}
    for lane in range(32):
        for register in range(registers):
            for half in range(halves):
                where = place(lane, register, half)
                part = f".{half}" if halves == 2 else ""
                words = f"{lane}:{letter}{register}{part}"
                hint = f"lane {lane}, register {letter}{register}{part} -> {where}"
                cells[where] = (words, hue(lane / 32), hint)
    return _grid(title, note, *shape, cells, (50, 22), *axes)


def mma_a() -> Canvas:
    return _fragment(
        "mma.m16n8k16: operand A (Q, and P)",
        "lane:register.half, a colour for each lane. layout::mma_m16n8k16_a",
        (16, 16),
        layouts.mma_m16n8k16_a,
        4,
        2,
        "a",
        ("row M", "column K"),
    )


def mma_b() -> Canvas:
    return _fragment(
        "mma.m16n8k16: operand B (K transposed, and V)",
        "lane:register.half. layout::mma_m16n8k16_b",
        (16, 8),
        layouts.mma_m16n8k16_b,
        2,
        2,
        "b",
        ("row K", "column N"),
    )


def mma_c() -> Canvas:
    return _fragment(
        "mma.m16n8k16: accumulator (S, and O)",
        "lane:register. A row lies in the four lanes of a quad. layout::mma_m16n8k16_c",
        (16, 8),
        lambda lane, register, _: layouts.mma_m16n8k16_c(lane, register),
        4,
        1,
        "c",
        ("row M", "column N"),
    )


def scores_become_operand() -> Canvas:
    """Two accumulators side by side are one A operand: the lanes agree place by place."""
    cells = {}
    for lane in range(32):
        for block in range(2):
            for register in range(4):
                row, column = layouts.mma_m16n8k16_c(lane, register)
                where = (row, column + 8 * block)
                for a_register in range(4):
                    for half in range(2):
                        if layouts.mma_m16n8k16_a(lane, a_register, half) == where:
                            words = f"{lane}: c{register}'{block}=a{a_register}.{half}"
                            cells[where] = (words, hue(a_register / 4), f"lane {lane}")
    return _grid(
        "Scores become the next operand without leaving their lane",
        "accumulators c of two n8 blocks (0, 1), and the same place of operand A; a colour for each "
        "register of A",
        16,
        16,
        cells,
        (84, 22),
        "row M",
        "column: keys of S = columns K of P",
    )


def swizzle() -> Canvas:
    rows, columns = 16, 64
    cells = {}
    for row in range(rows):
        for chunk in range(columns // 8):
            offset = layouts.tile_offset_bytes(rows, columns, row, chunk)
            place = (offset // 128, offset % 128 // 16)
            hint = f"row {row}, columns {8 * chunk} to {8 * chunk + 7}, byte {offset}"
            cells[place] = (f"r{row} c{chunk}", hue(chunk / 8), hint)
    return _grid(
        "A tile of 64 columns in shared memory",
        "row and 16-byte chunk that lie there. Eight rows of one chunk (one colour) fall into eight "
        "different bank groups",
        rows,
        columns // 8,
        cells,
        (92, 22),
        "128 bytes",
        "bank group: four banks of 4 bytes",
    )


def ldmatrix_phases() -> Canvas:
    """Which bank group each lane's address of one ldmatrix.x4 (operand K) falls into."""
    cells = {}
    for lane in range(32):
        row, chunk = layouts.ldmatrix_x4_b(lane)
        offset = layouts.tile_offset_bytes(64, 64, row, chunk)
        cells[(lane // 8, offset % 128 // 16)] = (
            f"T{lane}: r{row} c{chunk}",
            hue(lane // 8 / 4),
            f"byte {offset}",
        )
    return _grid(
        "ldmatrix.x4 of K: one row of banks for each of its four phases",
        "lane: row and chunk whose address it gives. Every phase fills all eight bank groups: no "
        "conflict",
        4,
        8,
        cells,
        (104, 26),
        "phase",
        "bank group",
    )


def wgmma_accumulator() -> Canvas:
    rows, columns = 32, 8
    cells = {}
    for thread in range(128):
        for register in range(4):
            row, column = layouts.wgmma_accumulator(thread, register)
            if row < rows and column < columns:
                fill = hue(thread % 32 / 32, 84 - 8 * (thread // 32))
                cells[(row, column)] = (f"{thread}:d{register}", fill, f"warp {thread // 32}")
    return _grid(
        "wgmma m64nNk16: accumulator, 32 of its 64 rows, first 8 columns",
        "thread:register; warp w holds rows 16w to 16w + 15. layout::wgmma_accumulator",
        rows,
        columns,
        cells,
        (62, 16),
        "row M",
        "column N",
    )


def _mask_picture(
    title: str, nq: int, nk: int, diagonals: Tuple[int, int], block_m: int, block_n: int
) -> Canvas:
    left, top, step = 52.0, 64.0, 11.0
    canvas = Canvas(left + nk * step + 190, top + nq * step + 26, title)
    canvas.text(left, 22, title, 14, "start", weight="bold")
    canvas.text(left, 40, f"Nq = {nq}, Nk = {nk}, tiles of {block_m} x {block_n}", 10, "start", FAINT)
    canvas.text(left, top - 8, "keys", 10, "start", FAINT)
    canvas.text(10, top + 8, "rows", 10, "start", FAINT)
    for row_begin in range(0, nq, block_m):
        row_end = min(row_begin + block_m, nq)
        begin, full_begin, full_end, end = layouts.block_range(
            nk, *diagonals, row_begin, row_end, block_n
        )
        for block in range((nk + block_n - 1) // block_n):
            fill = SKIPPED
            if begin <= block < end:
                fill = FULL if full_begin <= block < full_end else MASKED
            width = min(block_n, nk - block * block_n) * step
            canvas.box(
                left + block * block_n * step,
                top + row_begin * step,
                width,
                (row_end - row_begin) * step,
                fill,
            )
    for row in range(nq):
        for key in range(nk):
            if layouts.sees(nk, *diagonals, row, key):
                canvas.parts.append(
                    f"<circle cx='{left + (key + 0.5) * step:g}' cy='{top + (row + 0.5) * step:g}' "
                    f"r='2' fill='{INK}'/>"
                )
    x = left + nk * step + 16
    for index, (fill, words) in enumerate(
        [(FULL, "visited, no mask"), (MASKED, "visited, masked"), (SKIPPED, "never visited")]
    ):
        canvas.box(x, top + 22 * index, 14, 14, fill)
        canvas.text(x + 22, top + 22 * index + 11, words, 10, "start")
    canvas.parts.append(f"<circle cx='{x + 7:g}' cy='{top + 73:g}' r='2' fill='{INK}'/>")
    canvas.text(x + 22, top + 77, "the row sees the key", 10, "start")
    return canvas


def mask_top_left() -> Canvas:
    return _mask_picture("causal, top-left", 24, 40, (-24, 0), 8, 8)


def mask_bottom_right() -> Canvas:
    return _mask_picture("causal, bottom-right", 24, 40, (-24, 16), 8, 8)


def mask_window() -> Canvas:
    return _mask_picture("window (22, 12)", 40, 40, (-22, 12), 8, 8)


def _schedule(title: str, note: str, m_blocks: int, heads: int, order: List[Tuple[int, int]]) -> Canvas:
    cells = {}
    for index, (head, m_block) in enumerate(order):
        shade = hue(0.58 + 0.42 * index / len(order), 84)
        cells[(m_block, head)] = (str(index), shade, f"CTA {index}")
    return _grid(title, note, m_blocks, heads, cells, (44, 24), "m_block", "batch x head")


def schedule_sm80() -> Canvas:
    heads, m_blocks = 12, 6
    tiles = [layouts.tile_of(heads, m_blocks, 1, cta) for cta in range(heads * m_blocks)]
    return _schedule(
        "Grid of the Ampere kernel: which CTA computes which tile",
        "CTA's number. Heads run fastest; the last rows, longest under a causal mask, come first. "
        "layout::tile_of",
        m_blocks,
        heads,
        [(head, m_block) for head, m_block, _ in tiles],
    )


def schedule_sm90_causal() -> Canvas:
    heads, m_blocks, section, tail = 12, 6, 4, 2
    tiles = [
        layouts.tile_longest_first(index, m_blocks, heads, section, tail)
        for index in range(heads * m_blocks)
    ]
    return _schedule(
        f"Persistent grid of the Hopper kernel under a mask (sections of {section} heads)",
        "order in which tiles are handed out; the first rows, the shortest, come last. layout::LongestFirst",
        m_blocks,
        heads,
        [(head, m_block) for head, m_block, _ in tiles],
    )


def algorithm() -> Canvas:
    """One row tile of Q against the column tiles of K and V."""
    canvas = Canvas(790, 350, "FlashAttention: one row tile, all column tiles")
    canvas.text(20, 26, "One row tile of Q; the tiles of K and V stream past it", 14, "start", weight="bold")
    x, y, tile, rows = 150.0, 120.0, 84.0, 5
    canvas.text(x - 74, y - 46, "Q tile", 11)
    canvas.text(x - 74, y - 32, "Br x D", 10, fill=FAINT)
    for row in range(3):
        canvas.box(x - 114, y + row * 58, 80, 54, FULL if row == 1 else SKIPPED)
    canvas.text(x + rows * tile / 2, y - 46, "K and V tiles, Bc x D each, one after another", 11)
    for column in range(rows):
        fill = hue(0.1, 84) if column == 2 else SKIPPED
        canvas.box(x + column * tile, y - 30, tile - 6, 20, fill)
        canvas.text(x + column * tile + tile / 2 - 3, y - 16, f"K{column} V{column}", 10)
        for row in range(3):
            fill = SKIPPED
            if row == 1:
                fill = FAINT if column < 2 else MASKED if column == 2 else SKIPPED
            canvas.box(x + column * tile, y + row * 58, tile - 6, 54, fill)
    canvas.text(x + 2.5 * tile - 3, y + 58 + 31, "S, P", 12, weight="bold")
    for column in range(2):
        canvas.text(x + (column + 0.5) * tile - 3, y + 58 + 31, "folded in", 10, fill=PAPER)
    right = x + rows * tile + 24
    canvas.text(right + 60, y - 46, "kept in registers", 11)
    for row in range(3):
        canvas.box(right, y + row * 58, 120, 54, FULL if row == 1 else SKIPPED)
    canvas.text(right + 60, y + 58 + 24, "O, row max,", 11, fill=PAPER)
    canvas.text(right + 60, y + 58 + 40, "row sum", 11, fill=PAPER)
    for index, words in enumerate(
        [
            "S = scale Q K^T (+ mask);  m' = max(m, rowmax S);  P = exp(S - m')",
            "l = l exp(m - m') + rowsum P;   O = O exp(m - m') + P V;   at the end O / l",
        ]
    ):
        canvas.text(20, y + 3 * 58 + 20 + 18 * index, words, 12, "start")
    return canvas


PICTURES: Dict[str, Callable[[], Canvas]] = {
    "algorithm": algorithm,
    "ldmatrix-phases": ldmatrix_phases,
    "mask-bottom-right": mask_bottom_right,
    "mask-top-left": mask_top_left,
    "mask-window": mask_window,
    "mma-a": mma_a,
    "mma-b": mma_b,
    "mma-c": mma_c,
    "schedule-sm80": schedule_sm80,
    "schedule-sm90-causal": schedule_sm90_causal,
    "scores-become-operand": scores_become_operand,
    "swizzle": swizzle,
    "wgmma-accumulator": wgmma_accumulator,
}
"""Every picture by the name of its file."""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tilefold.draw",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="pictures; without: all")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder to write to")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(PICTURES))
        return 0
    unknown = [name for name in options.names if name not in PICTURES]
    if unknown:
        parser.error(f"no picture named {', '.join(unknown)}; there are: {', '.join(PICTURES)}")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        for name in options.names or PICTURES:
            path = options.out / f"{name}.svg"
            path.write_text(PICTURES[name]().svg(), encoding="utf-8")
            print(path)
    except OSError as error:
        said = f"{error.filename} cannot be written: {error.strerror}" if error.filename else str(error)
        parser.exit(1, f"tilefold.draw: {said}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
