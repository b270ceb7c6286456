#!/usr/bin/env python3
"""Fills the documents' tables of GPU figures from the CSV files in bench/results, or tells where they differ.

The tables of docs/performance.md, docs/hopper.md and README.md that come from compare_torch.py's files named below,
each found by the heading above it and its header row. Only cells of figures are written: labels and prose stay.
Further points of a CSV (other head dims and lengths, fewer query rows or K/V heads, another head dim of V) are passed
over. A ratio is the reference's median_ms over ours, a mean the geometric one; in "mean (least)" what lies below 1 gets
the decimals that show it.

    tables.py --check      exit status 1, and a line for each cell that differs
    tables.py --write      after a new run: the CSV files into the tables
    tables.py --summary    what the prose around them says: means, least points, TFLOP/s, errors, clocks
"""

import argparse
import csv
import fnmatch
import pathlib
import statistics
import sys
import typing

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
HDIMS = (64, 128, 256)
DTYPES = {"fp16": "float16", "bf16": "bfloat16"}
MASKS = {0: "full", 1: "causal"}
# CSV file, name, our peer, the reference, the least ratio that is aimed at; the tables' head dims and lengths.
RUNS = (
    ("h200-sm90.csv", "sm90 / cuDNN", "tilefold_sm90", "torch_cudnn", 1.05, HDIMS, LENGTHS),
    ("h200-sm80.csv", "sm80 / FA2", "tilefold_sm80", "torch_fa2", 1.1, HDIMS, LENGTHS),
    ("h200-fa3.csv", "sm90 / FA3", "tilefold_sm90", "fa3", 1.0, HDIMS, LENGTHS),
    ("h200-sm80-head-dims.csv", "sm80 / FA2", "tilefold_sm80", "torch_fa2", 1.1, (32, 96, 160, 192, 224), (1024, 4096)),
    ("h200-sm90-head-dims.csv", "sm90 / cuDNN", "tilefold_sm90", "torch_cudnn", 1.05, (96, 192), LENGTHS),
)


def point_name(dtype, hdim, causal, seqlen):
    return f"{DTYPES.get(dtype, dtype)}, D = {hdim}, {MASKS[causal]}, N = {seqlen}"


class Run:
    """Two peers in one CSV file: its rows by point, (dtype, hdim, causal, seqlen), and peer."""

    def __init__(self, root, file, name, ours, reference, aim, hdims, lengths):
        self.path, self.name, self.peers = f"bench/results/{file}", name, (ours, reference)
        self.aim, self.hdims, self.lengths, self.num_passed_over = aim, hdims, lengths, 0
        lines = (root / self.path).read_text(encoding="utf-8").splitlines()
        self.provenance = [line for line in lines if line.startswith("#")]
        self.points = {}
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            same = (("seqlen_q", "seqlen"), ("heads_kv", "heads"), ("hdim_v", "hdim"))
            if row["pass"] != "fwd" or any((row.get(name) or row[other]) != row[other] for name, other in same):
                self.num_passed_over += 1
                continue
            point = (row["dtype"], *(int(row[name]) for name in ("hdim", "causal", "seqlen")))
            if self.points.setdefault(point, {}).setdefault(row["peer"], row) is not row:
                raise ValueError(f"{self.path}: there are two figures for {row['peer']}, {point_name(*point)}")

    def figure(self, point, peer, column):
        try:
            return float(self.points[point][peer][column])
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"{self.path}: there is no {column} of {peer}, {point_name(*point)}") from None

    def ratio(self, point):
        return self.figure(point, self.peers[1], "median_ms") / self.figure(point, self.peers[0], "median_ms")

    def ratios(self, dtype, hdim, causal):
        return [f"{self.ratio((dtype, hdim, causal, n)):.2f}" for n in self.lengths]

    def tflops(self, dtype, hdim, causal, peer_idx=0):
        return [f"{self.figure((dtype, hdim, causal, n), self.peers[peer_idx], 'tflops'):.0f}" for n in self.lengths]

    def tflops_and_ratios(self, *row):
        return [f"{tflops} ({ratio})" for tflops, ratio in zip(self.tflops(*row), self.ratios(*row))]

    def mean_and_least(self, dtype, hdims):
        ratios = [self.ratio((dtype, d, causal, n)) for d in hdims for causal in MASKS for n in self.lengths]
        return f"{as_ratio(statistics.geometric_mean(ratios))} ({as_ratio(min(ratios))})"


def as_ratio(value):
    """With two decimals, or as many as show that it lies below 1."""
    decimals = 2
    while value < 1 <= float(f"{value:.{decimals}f}"):
        decimals += 1
    return f"{value:.{decimals}f}"


class Table(typing.NamedTuple):
    document: str
    section: str  # the heading above it
    header: tuple
    rows: list  # (the label cells, as patterns of fnmatch; the figures; the run that they come from)

    def __str__(self):
        return f"{self.document}, section '{self.section}', table '{' | '.join(self.header)}'"


def make_tables(cudnn, fa2, fa3, other, other_cudnn):
    """Every table as the CSV files have it."""
    performance, columns = "docs/performance.md", tuple(map(str, LENGTHS))
    axes = [(dtype, hdim, causal) for dtype in DTYPES for hdim in HDIMS for causal in MASKS]
    groups = (*((hdim,) for hdim in HDIMS), HDIMS)
    rows = [((f"{run.name}, {DTYPES[dtype]}",), [run.mean_and_least(dtype, group) for group in groups], run)
            for run in (cudnn, fa2) for dtype in DTYPES]  # fmt: skip
    yield Table(performance, "NVIDIA H200, forward", ("", *(f"D = {hdim}" for hdim in HDIMS), "all"), rows)

    for dtype in DTYPES:
        rows, fa3_rows = [], []
        for row in (row for row in axes if row[0] == dtype):
            label = f"D = {row[1]}, {MASKS[row[2]]}"
            rows += [
                ((label, "sm90"), cudnn.tflops_and_ratios(*row), cudnn),
                (("", "cuDNN"), cudnn.tflops(*row, peer_idx=1), cudnn),
                (("", "sm80"), fa2.tflops_and_ratios(*row), fa2),
                (("", "FA2"), fa2.tflops(*row, peer_idx=1), fa2),
            ]
            fa3_rows.append(((label,), fa3.ratios(*row), fa3))
        yield Table(performance, DTYPES[dtype], (dtype, "", *columns), rows)
        yield Table(performance, "FlashAttention-3", (f"{fa3.name}, {dtype}", *columns), fa3_rows)

    rows = []
    for hdim in other.hdims:
        full, causal = (other.tflops_and_ratios("fp16", hdim, causal) for causal in MASKS)
        rows.append(((str(hdim),), [figure for pair in zip(full, causal) for figure in pair], other))
    header = ("D", *(f"{n}, {mask}" for n in other.lengths for mask in MASKS.values()))
    yield Table(performance, "The other head dims of sm80", header, rows)

    rows = [((f"D = {hdim}, {MASKS[causal]}",), other_cudnn.tflops_and_ratios("fp16", hdim, causal), other_cudnn)
            for hdim in other_cudnn.hdims for causal in MASKS]  # fmt: skip
    yield Table(performance, "The other head dims of sm90", ("", *columns), rows)

    rows = [((f"{DTYPES[dtype]} {hdim} {MASKS[causal]}",), cudnn.tflops_and_ratios(dtype, hdim, causal), cudnn)
            for dtype, hdim, causal in axes]  # fmt: skip
    yield Table("docs/hopper.md", "Measured", ("", *columns), rows)

    labels = (("sm90 *cuDNN*", cudnn), ("sm90 *FlashAttention-3*", fa3), ("sm80 *FlashAttention-2*", fa2))
    rows = [((label,), [run.mean_and_least(dtype, HDIMS) for dtype in DTYPES], run) for label, run in labels]
    yield Table("README.md", "How it compares", ("", *DTYPES.values()), rows)


def cells_of(line):
    return [cell.strip() for cell in line.split("|")[1:-1]]


def find_rows(lines, table):
    """The indices of the lines under the table's header and the line of dashes."""
    section, fenced, found = None, False, []
    for line_idx, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if not fenced and line.startswith("#"):
            section = line.lstrip("#").strip()
        elif section == table.section and line.startswith("|") and tuple(cells_of(line)) == table.header:
            found.append(line_idx)
    if len(found) != 1:
        raise ValueError(f"{table}: there are {len(found)} of it, not one")
    begin = found[0] + 2
    end = next((idx for idx in range(begin, len(lines)) if not lines[idx].startswith("|")), len(lines))
    return range(begin, end)


def fill(lines, table):
    """Writes the table's figures into the document's lines; returns a sentence for each cell that differed."""
    at = find_rows(lines, table)
    if len(at) != len(table.rows):
        raise ValueError(f"{table}: it has {len(at)} rows, not {len(table.rows)}")
    differences, group = [], ""
    for line_idx, (labels, figures, run) in zip(at, table.rows):
        cells, parts = cells_of(lines[line_idx]), lines[line_idx].split("|")
        if len(cells) != len(table.header) or not all(map(fnmatch.fnmatchcase, cells, labels)):
            raise ValueError(f"{table}: '{lines[line_idx]}' stands where row '{' | '.join(labels)}' belongs")
        group = cells[0] or group
        row = ", ".join((group, *cells[1 : len(labels)]))
        for cell_idx, figure in enumerate(figures, len(labels)):
            if cells[cell_idx] != figure:
                differences.append(f"{table}, row '{row}', column '{table.header[cell_idx]}': '{cells[cell_idx]}' "
                                   f"where {run.path} gives '{figure}'")  # fmt: skip
                parts[cell_idx + 1] = f" {figure} "
        lines[line_idx] = "|".join(parts)
    return differences


def print_points(run, title, points):
    """What the prose says of these points."""
    ratios = {point: run.ratio(point) for point in points}
    groups = {"all": ratios.values()}
    for point, ratio in ratios.items():
        groups.setdefault(f"D = {point[1]}", []).append(ratio)
    means = ", ".join(f"{group} {statistics.geometric_mean(values):.3f}" for group, values in groups.items())
    print(f"  {title}, {len(points)} points: geometric mean {means}")
    said = {point: f"{ratio:.4f} at {point_name(*point)}" for point, ratio in ratios.items()}
    print(f"    least: {said[min(ratios, key=ratios.get)]}")
    for bound in sorted({1.0, run.aim}):
        print(f"    below {bound:.2f}: {'; '.join(said[p] for p, ratio in ratios.items() if ratio < bound) or 'none'}")
    longest = max(point[3] for point in points)
    for peer in run.peers if len({point[0] for point in points}) == 1 else ():
        rows = {point: run.points[point][peer] for point in points}
        speeds = [f"D = {p[1]} {MASKS[p[2]]} {row['tflops']}" for p, row in rows.items() if p[3] == longest]
        print(f"    {peer}: TFLOP/s at N = {longest}: {', '.join(speeds)}")
        for column in ("rel_error", "lse_error"):
            errors = [row[column] for row in rows.values() if row[column]]
            print(f"    {peer}: largest {column}: {max(errors, key=float, default='none')}")


def print_summary(run):
    clocks = [int(row["sm_clock_mhz"]) for by_peer in run.points.values() for row in by_peer.values()]
    print(f"{run.name}: {run.path}, {len(clocks)} rows, {run.num_passed_over} passed over, "
          f"sm_clock_mhz {min(clocks)} to {max(clocks)}", *run.provenance, sep="\n  ")  # fmt: skip
    both = [point for point, by_peer in run.points.items() if set(run.peers) <= set(by_peer)]
    tables = [point for point in both if point[1] in run.hdims and point[3] in run.lengths]
    for title, points in (("tables", tables), ("beyond the tables", [point for point in both if point not in tables])):
        dtypes = dict.fromkeys(point[0] for point in points)
        if len(dtypes) > 1:
            print_points(run, f"{title}, all types", points)
        for dtype in dtypes:
            print_points(run, f"{title}, {DTYPES.get(dtype, dtype)}", [point for point in points if point[0] == dtype])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1])
    what = parser.add_mutually_exclusive_group(required=True)
    for name in ("--check", "--write", "--summary"):
        what.add_argument(name, action="store_true")
    arguments = parser.parse_args()
    documents, changed, num_cells = {}, set(), 0
    try:
        runs = [Run(arguments.root, *run) for run in RUNS]
        for run in runs if arguments.summary else ():
            print_summary(run)
        for table in make_tables(*runs) if not arguments.summary else ():
            path = arguments.root / table.document
            if path not in documents:
                documents[path] = path.read_text(encoding="utf-8").split("\n")
            num_cells += sum(len(figures) for _, figures, _ in table.rows)
            for difference in fill(documents[path], table):
                print(f"tables: {difference}", file=sys.stderr)
                changed.add(path)
    except (ValueError, OSError) as fault:
        print(f"tables: {fault}", file=sys.stderr)
        return 1
    if arguments.summary:
        return 0
    if arguments.check and changed:
        print(f"tables: of {num_cells} cells those above differ; see bench/tables.py --write", file=sys.stderr)
        return 1
    for path in changed:
        path.write_text("\n".join(documents[path]), encoding="utf-8")
    print(f"tables: {num_cells} cells are as the CSV files in bench/results have them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
