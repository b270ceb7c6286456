#!/usr/bin/env python3
"""Runs the gdb session that docs/lane-machine.md shows, as it stands there, and compares what it prints with
lane_machine_run --print. Exit status 77: no gdb, or a gdb that may not trace."""
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

runner, guide = sys.argv[1], pathlib.Path(sys.argv[2]).read_text()
LANE = 37


def session():
    """The program's arguments and gdb's commands, from the guide."""
    block = next(b for b in re.findall(r"```sh\n(.*?)```", guide, re.S) if "(gdb)" in b)
    line = re.search(r"^gdb --args (.*)$", block.replace("\\\n", " "), re.M).group(1)
    commands = re.findall(r"^\(gdb\) (.*?)(?:\s+#.*)?$", block, re.M)
    return shlex.split(line)[1:], commands


def numbers(text):
    return [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", text)]


def main():
    gdb = shutil.which("gdb")
    if gdb is None:
        print("skipped: gdb is not installed")
        return 77
    arguments, commands = session()
    kernel = arguments[arguments.index("--kernel") + 1]
    listed = subprocess.run([runner, "--list"], capture_output=True, text=True).stdout.split()
    if kernel not in listed:
        print(f"skipped: {kernel} is not among TILEFOLD_LANE_MACHINE_ROWS")
        return 77
    with tempfile.TemporaryDirectory() as directory:
        script = pathlib.Path(directory) / "session"
        script.write_text("\n".join(commands) + "\n")
        result = subprocess.run([gdb, "-nx", "-batch", "-iex", "set debuginfod enabled off", "-x", str(script), "--args",
                                 runner, *arguments], capture_output=True, text=True, timeout=240)
    said = result.stdout + result.stderr
    if re.search(r"ptrace: |Could not trace|Operation not permitted\.$", said) and "hit Breakpoint" not in said \
            and "$1 = " not in said:
        print(f"skipped: gdb may not trace here\n{said[-500:]}")
        return 77

    # What the guide's three prints give: rS before the mma, A, rS after.
    printed = re.findall(r"^\$\d+ = (.*)$", said, re.M)
    dump = subprocess.run([runner, *arguments, "--print", "compute_scores:mma#0", "--warp", str(LANE // 32)],
                          capture_output=True, text=True).stdout
    d = re.search(rf"^  lane +{LANE % 32}: (D\[0\].*)$", dump, re.M)
    expected = numbers(re.sub(r"D\[\d\]", "", d.group(1))) if d else []
    ok = len(printed) == 3 and len(expected) == 4 and len(numbers(printed[1])) == 4
    if ok:
        before, after = numbers(printed[0]), numbers(printed[2])
        ok = before == [0, 0, 0, 0] and len(after) == 4 and all(
            abs(a - b) <= 1e-4 * abs(b) for a, b in zip(after, expected))
    ok = ok and "exited normally" in said
    print(f"gdb printed {printed}, lane_machine_run --print {expected}")
    if not ok:
        print(said)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
