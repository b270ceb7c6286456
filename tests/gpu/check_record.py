#!/usr/bin/env python3
"""Fails if a GPU kernel row changed since it last ran on a GPU, or never did, and nobody says why.

Recomputes the digests of all rows from the sources and compares them with tests/gpu/record.json. A row
that differs, is missing there, or failed a test then, must stand under "unverified" of the record with a
reason; --mark writes one reason for all that need it. Needs no GPU.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kernel_digests import row_digests  # noqa: E402

RECORD = pathlib.Path(__file__).resolve().parent / "record.json"


def fault_of(row, digest, record):
    """What is wrong with the record of a row; None if nothing is."""
    entry = record.get("rows", {}).get(row)
    if entry is None:
        return "has no record of a run on a GPU"
    if entry["digest"] != digest:
        run = record.get("runs", {}).get(entry.get("run"), {})
        return f"has changed since it last ran on a GPU ({run.get('gpu')}, {run.get('date')})"
    if entry.get("failed"):
        return f"failed {len(entry['failed'])} tests on a GPU: {', '.join(entry['failed'][:3])}"
    if not entry.get("passed"):
        return "passed no test on a GPU"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=pathlib.Path, default=RECORD)
    parser.add_argument("--mark", metavar="REASON", help="list every row that needs it under 'unverified'")
    arguments = parser.parse_args()
    record = json.loads(arguments.record.read_text(encoding="utf-8")) if arguments.record.exists() else {}
    unverified = record.get("unverified", {})
    digests = row_digests()
    if arguments.mark:
        for row, digest in digests.items():
            if fault_of(row, digest, record) is not None:
                unverified.setdefault(row, arguments.mark)
        record["unverified"] = {row: unverified[row] for row in digests if row in unverified}
        arguments.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    faults = 0
    for row, digest in digests.items():
        fault = fault_of(row, digest, record)
        reason = str(unverified.get(row, "")).strip()
        if fault is None and reason:
            print(f"note: {row} is verified, yet listed under 'unverified'; remove it there")
        elif fault is not None and reason:
            print(f"unverified: {row} {fault}: {reason}")
        elif fault is not None:
            faults += 1
            print(f"error: {row} {fault}; run `make gpu-test` on a GPU, or list it under 'unverified' of "
                  f"{arguments.record.name} with the reason", file=sys.stderr)  # fmt: skip
    for row in sorted(set(record.get("rows", {})) - set(digests)):
        print(f"note: the record names {row}, which is no row any more")
    verified = sum(fault_of(row, digest, record) is None for row, digest in digests.items())
    print(f"{verified} of {len(digests)} GPU kernel rows are as they last passed on a GPU")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
