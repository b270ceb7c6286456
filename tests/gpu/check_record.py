#!/usr/bin/env python3
"""Fails if a GPU kernel row, a rung of the ladder, or the Python package changed since its tests last ran on a GPU, or
never ran there, and nobody says why.

Recomputes the digests of all rows and rungs, and of the Python package (the entry "python"), from the sources and compares
them with tests/gpu/record.json. What differs, is missing there, or failed a test then, and a row whose run names no clean
memcheck or racecheck, must stand under "unverified" of the record with a reason; --mark writes one reason for all that
need it. Needs no GPU.
"""

import argparse
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kernel_digests import LADDER, python_digest, row_digests  # noqa: E402

RECORD = pathlib.Path(__file__).resolve().parent / "record.json"
PYTHON = "python"
PYTHON_NEEDS = ("test_torch", "test_jax", "test_cupy")
SANITIZERS = ("memcheck", "racecheck")


def sanitizer_fault(run):
    """Which sanitizer did not find a run of the device tests clean, and what it said; None if each did."""
    for tool in SANITIZERS:
        said = run.get("sanitizers", {}).get(tool, "nothing")
        # Clean in no test says nothing.
        if not re.match(r"clean: 0 (errors|hazards)\b.*; [1-9]\d* tests passed", said):
            return f"{tool}, which said: {said[:100]}"
    return None


def left_out(record):
    """{tool: what the runs of the rows left out for it, as patterns of cases}"""
    used = {entry.get("run") for entry in record.get("rows", {}).values()}
    patterns = {}
    for name in sorted(used & set(record.get("runs", {}))):
        for tool, said in record["runs"][name].get("sanitizers", {}).items():
            for pattern in re.findall(r"\([^()]*?-([^()]*)\)$", said):
                patterns.setdefault(tool, set()).add(pattern)
    return patterns


def fault_of(row, digest, record):
    """What is wrong with the record of a row, or of the Python package; None if nothing is."""
    entry = record.get(PYTHON) if row == PYTHON else record.get("rows", {}).get(row)
    if entry is None:
        return "has no record of a run on a GPU"
    if entry["digest"] != digest:
        run = entry if row == PYTHON else record.get("runs", {}).get(entry.get("run"), {})
        return f"has changed since it last ran on a GPU ({run.get('gpu')}, {run.get('date')})"
    if entry.get("failed"):
        return f"failed {len(entry['failed'])} tests on a GPU: {', '.join(entry['failed'][:3])}"
    if not entry.get("passed"):
        return "passed no test on a GPU"
    if row == PYTHON and not all(entry["passed"].get(name) for name in PYTHON_NEEDS):
        return f"ran on a GPU without one of {', '.join(PYTHON_NEEDS)}"
    # The rungs of the ladder do not run under sanitizers.
    if row != PYTHON and not row.startswith(LADDER):
        fault = sanitizer_fault(record.get("runs", {}).get(entry.get("run"), {}))
        if fault is not None:
            return f"ran on a GPU without a clean {fault}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=pathlib.Path, default=RECORD)
    parser.add_argument("--mark", metavar="REASON", help="list every row that needs it under 'unverified'")
    arguments = parser.parse_args()
    record = json.loads(arguments.record.read_text(encoding="utf-8")) if arguments.record.exists() else {}
    unverified = record.get("unverified", {})
    digests = {**row_digests(), PYTHON: python_digest()}
    if arguments.mark:
        for row, digest in digests.items():
            if fault_of(row, digest, record) is not None:
                unverified.setdefault(row, arguments.mark)
        record["unverified"] = {row: unverified[row] for row in digests if row in unverified}
        arguments.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    faults = 0
    excused = {}  # {what is said: rows}
    for row, digest in digests.items():
        fault = fault_of(row, digest, record)
        reason = str(unverified.get(row, "")).strip()
        if fault is None and reason:
            print(f"note: {row} is verified, yet listed under 'unverified'; remove it there")
        elif fault is not None and reason:
            excused.setdefault(f"{fault}: {reason}", []).append(row)
        elif fault is not None:
            faults += 1
            print(f"error: {row} {fault}; run `make gpu-test` on a GPU, or list it under 'unverified' of "
                  f"{arguments.record.name} with the reason", file=sys.stderr)  # fmt: skip
    for said, rows in excused.items():
        print(f"unverified: {', '.join(rows)}: {said}" if len(rows) > 1 else f"unverified: {rows[0]} {said}")
    for row in sorted(set(record.get("rows", {})) - set(digests)):
        print(f"note: the record names {row}, which is no row any more")
    verified = {row for row, digest in digests.items() if fault_of(row, digest, record) is None}
    for what, names in (
        ("GPU kernel rows", {row for row in digests if row != PYTHON and not row.startswith(LADDER)}),
        ("rungs of the ladder", {row for row in digests if row.startswith(LADDER)}),
    ):
        print(f"{len(names & verified)} of {len(names)} {what} are as they last passed on a GPU")
    for tool, patterns in left_out(record).items():
        print(f"{tool} ran without {', '.join(sorted(patterns))} (docs/gpu-tests.md says why)")
    if PYTHON in verified:
        run = record[PYTHON]
        print(f"the Python package is as it last passed on a GPU ({run['gpu']}, {run['date']}): "
              f"{sum(run['passed'].values())} tests")  # fmt: skip
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
