#!/usr/bin/env python3
"""Shows that compute-sanitizer's racecheck still reports races where there are none: racecheck_probe.cu says where.

Passes if both kernels of the program give right results and racecheck, in thirty runs of each at most, reports a race in the one
whose warps meet at different numbers of named barriers and never in the other. Fails once it reports none: what
run_gpu_tests.py leaves out for that (LEFT_OUT there) can go in again.

    racecheck_probe.py path/to/tilefold_racecheck_probe
"""

import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from run_gpu_tests import compute_sanitizer  # noqa: E402

SKIPPED = 77
LEAST_RUNS, RUNS = 3, 30  # what is reported depends on which warp comes first


def main():
    program = os.path.abspath(sys.argv[1])
    for kind in ("same", "different"):
        plain = subprocess.run([program, kind], capture_output=True, text=True)
        if plain.returncode != 0:
            print(plain.stdout.strip())
            return plain.returncode
    tool = compute_sanitizer()
    if tool is None:
        print("skipped: compute-sanitizer is not installed")
        return SKIPPED
    reported = {"same": 0, "different": 0}
    for run in range(RUNS):
        for kind in reported:
            command = [tool, "--tool", "racecheck", "--error-exitcode", "9", program, kind]
            done = subprocess.run(command, capture_output=True, text=True)
            if "RACECHECK SUMMARY" not in done.stdout or done.returncode not in (0, 9):
                print(f"racecheck did not run: exit status {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-1000:]}")
                return 1
            reported[kind] += done.returncode == 9
        if reported["different"] and run + 1 >= LEAST_RUNS:
            break
    for kind, count in reported.items():
        print(f"{kind} numbers of named barriers: a race reported in {count} of {run + 1} runs")
    if reported["same"]:
        print("racecheck reports a race where all warps meet at the same barriers: not known of it")
    if not reported["different"]:
        print("racecheck no longer takes different numbers of named barriers for a race: empty LEFT_OUT of run_gpu_tests.py")
    return 0 if reported["different"] and not reported["same"] else 1


if __name__ == "__main__":
    sys.exit(main())
