#!/usr/bin/env python3
"""What lane_machine_run says, and returns, to what it cannot do: never "ok" to what it did not run."""
import subprocess
import sys

runner = sys.argv[1]
KERNEL = "sm80_fp16_d64_m128n64_s2"
SMALL = ["--kernel", KERNEL, "--case", "hq=1 nq=16 nk=16"]

# (arguments, exit status, a piece of what it says)
EXPECTED = [
    (["--help"], 0, "usage: lane_machine_run"),
    (["--list", "--kernel", KERNEL], 0, KERNEL),
    (SMALL, 0, "ok    " + KERNEL),
    (["--kernel", KERNEL, "--cta", "0", "--print", "compute_scores:mma#3", "--warp", "1"], 0, "D as a 16 x 8 matrix:"),
    ([*SMALL, "--case", "d=24 dv=16 nq=16 nk=16"], 0, "ok    " + KERNEL),
    (["--kernel", "nope"], 2, "no such kernel: nope"),
    (["--kernel", KERNEL, "--kernel", "nope"], 2, "no such kernel: nope"),
    (["--kernel"], 2, "--kernel takes a value"),
    (["--nope"], 2, "no such option: --nope"),
    ([*SMALL, "--cta", "99"], 2, "there is no CTA 99"),
    ([*SMALL, "--cta", "-1"], 2, "--cta takes a number from 0 up, not '-1'"),
    ([*SMALL, "--print", "nope"], 2, "--print takes FUNCTION:INSTRUCTION#N"),
    ([*SMALL, "--print", "compute_scores:nope#0"], 2, "not 'nope'"),
    ([*SMALL, "--print", "compute_scores:mma#x"], 2, "not 'x'"),
    ([*SMALL, "--print", "foo:mma#0"], 1, "no mma in foo; it does in accumulate_values, compute_scores"),
    ([*SMALL, "--print", "compute_scores:mma#99999"], 1, "was never reached: warp 0 executes "),
    ([*SMALL, "--print", "compute_scores:mma#0", "--warp", "7"], 2, "there is no warp 7"),
    ([*SMALL, "--warp", "1"], 2, "--warp goes with --print"),
    ([*SMALL, "--schedules", "0"], 2, "--schedules takes a number from 1 up, not '0'"),
    ([*SMALL, "--schedules", "abc"], 2, "not 'abc'"),
    ([*SMALL, "--splits", "0"], 2, "--splits takes a number from 1 up"),
    (["--kernel", KERNEL, "--case", "nq=16 nk=16 d=128"], 2, "the kernel is for d up to 64"),
    (["--kernel", KERNEL, "--case", "nq=16 nk=16 dtype=bfloat16"], 2, "the dtype is the kernel's"),
    (["--kernel", KERNEL, "--case", "nq=16 nk=x"], 2, "nk"),
]


def run(arguments):
    return subprocess.run([runner, *arguments], capture_output=True, text=True, timeout=60)


def main():
    if KERNEL not in run(["--list"]).stdout.split():
        print(f"skipped: {KERNEL} is not among TILEFOLD_LANE_MACHINE_ROWS")
        return 77
    bad = 0
    for arguments, status, piece in EXPECTED:
        result = run(arguments)
        said = result.stdout if status == 0 else result.stderr
        if result.returncode != status or piece not in said or (status == 2 and "ok " in result.stdout):
            bad += 1
            print(f"{' '.join(arguments)}: status {result.returncode}, not {status}, or without '{piece}':\n"
                  f"{result.stdout[-500:]}{result.stderr[-500:]}")
    print(f"{len(EXPECTED)} command lines, {bad} not as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
