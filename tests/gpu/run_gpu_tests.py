#!/usr/bin/env python3
"""Runs the device tests and keeps tests/gpu/record.json.

Runs the test program in several processes at once, a test on all rows of a dtype in each, and beside them
a few of its cases under compute-sanitizer where that is installed: memcheck on a small subset, racecheck
on a smaller one. Then notes, for every kernel row that ran, the GPU, the date, the commit, a digest of the
row's sources and the tests it passed. Rows that did not run keep what the record says of them; --rows makes
several shorter runs of a long one.

The program may have been built elsewhere: it and the digests that its build left beside it
(<program>.digests.json) are all that is needed; without them, the sources beside this script stand for those
that it was built from.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from check_record import fault_of, sanitizer_fault  # noqa: E402
from kernel_digests import ROOT, row_digests  # noqa: E402

# Tests that want much of the GPU's memory: few of them at a time.
LARGE = ("FarTest", "OneQueryOnFourMillionKeys")
LARGE_JOBS = 2
SANITIZER_CASES = {
    "memcheck": "*LayoutTest.BasesOffByOneElement*:*LayoutTest.PaddedRowsAndNegativeStrides*:"
    "*MaskTest.BottomRightWithMoreQueriesThanKeys*:*LengthTest.NoKeys*:*ValuesTest.LogitsOfMinusInfinity*:"
    "*ValuesTest.InfinityAndNaNInMaskedValues*:*LayoutTest.OutputsHaveStridesOfTheirOwn*:"
    "*SizeTest.ThreeSmallTilesForEveryCta*",
    "racecheck": "*MaskTest.WindowThatLeavesRowsWithoutAKey*:*CallTest.SeveralKeyBlocksThroughEachBuffer*:"
    "*SizeTest.ThreeSmallTilesForEveryCta*",
}
# Cases in which a tool is known to report what is not there; the other cases of these rows are run.
LEFT_OUT = {
    # Warps whose rows see nothing of a block pass over its pair barriers. racecheck then takes accesses to K and V for
    # a race, which barriers of the whole CTA order: racecheck_probe.cu shows it without attention.
    "racecheck": "*SizeTest.ThreeSmallTilesForEveryCta*/sm80_*_m128n64_s1_pair",
}


def query(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    except OSError:
        return ""


def run_program(program, test_filter, timeout):
    """One process; returns (exit status, its JSON report or None, its output)."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        command = [program, f"--gtest_filter={test_filter}", f"--gtest_output=json:{report}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
            status, output = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as expired:
            status, output = 124, (expired.stdout or b"").decode(errors="replace")
        try:
            with open(report, encoding="utf-8") as file:
                return status, json.load(file), output
        except (OSError, ValueError):
            return status, None, output


def skip_reasons(output):
    """{full name of a skipped case: why}, which GoogleTest's JSON does not carry."""
    pattern = re.compile(r"\[ RUN      \] (\S+)\n((?:(?!\[ RUN)[^\0])*?)\[  SKIPPED \] \1 ")
    return {name: " ".join(text.split("Skipped", 1)[-1].split()) for name, text in pattern.findall(output)}


def outcomes(report, output):
    """(test, row, "passed" | "skipped" | "failed", message, seconds) for every case of a report."""
    reasons = skip_reasons(output)
    for suite in report["testsuites"]:
        for case in suite["testsuite"]:
            name = f"{suite['name'].split('/', 1)[-1]}.{case['name'].split('/')[0]}"
            row = case["name"].split("/", 1)[1] if "/" in case["name"] else ""
            time = float(case.get("time", "0s").rstrip("s"))
            if case.get("failures"):
                yield name, row, "failed", case["failures"][0].get("failure", ""), time
            elif case.get("result") == "SKIPPED" or case.get("status") == "NOTRUN":
                yield name, row, "skipped", reasons.get(f"{suite['name']}.{case['name']}", ""), time
            else:
                yield name, row, "passed", "", time


def groups_of(arguments):
    """Filters that share out the cases: a test and a dtype each, so that reference results are reused; tests
    of large problems by head dim too, so that they finish with the others."""
    listed = query(arguments.program, "--gtest_list_tests", f"--gtest_filter={arguments.filter}")
    groups, suite = {}, ""
    for line in listed.splitlines():
        if line.startswith(" "):
            test, _, row = line.split("#")[0].strip().partition("/")
            dtype = next((name for name in ("fp16", "bf16", "fp32") if name in row), "")
            head_dim = re.search(r"_(d\d+)", row) if "SizeTest" in suite else None
            key = (suite, test, dtype, head_dim.group(1) if head_dim else "")
            groups.setdefault(key, []).append(f"{suite}{test}/{row}" if row else f"{suite}{test}")
        elif line.split("#")[0].strip().endswith("."):
            suite = line.split("#")[0].strip()
    # The long ones first.
    ordered = sorted(groups.items(), key=lambda item: "SizeTest" not in item[0][0])
    return [":".join(cases) for _, cases in ordered]


def run_all(arguments):
    """{row: {test: (outcome, message)}}, {test: seconds}, and the processes that ended badly."""
    rows, seconds, bad = {}, {}, []
    groups = groups_of(arguments)
    with (
        concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool,
        concurrent.futures.ThreadPoolExecutor(LARGE_JOBS) as large_pool,
    ):
        runs = []
        for group in groups:
            chosen = large_pool if any(name in group for name in LARGE) else pool
            runs.append(chosen.submit(run_program, arguments.program, group, arguments.timeout))
        for group, run in zip(groups, runs):
            status, report, output = run.result()
            if report is None:
                bad.append(f"exit status {status} ({group[:200]}): {output[-1500:]}")
                continue
            for test, row, outcome, message, time in outcomes(report, output):
                rows.setdefault(row, {})[test] = (outcome, message)
                seconds[test] = seconds.get(test, 0.0) + time
    return rows, seconds, bad


def of_rows(test_filter, rows):
    """The same tests of rows whose names match a glob alone."""
    return ":".join(f"{test.rstrip('*')}*/{rows}" for test in test_filter.split(":"))


def compute_sanitizer():
    """Where the tool is; None if it is not installed."""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    return tool if os.path.exists(tool) else None


def sanitize_with(tool, name, test_filter, arguments):
    """What one tool said; None if it has no case of these rows."""
    if arguments.rows:
        test_filter = of_rows(test_filter, arguments.rows)
    if name in LEFT_OUT:
        test_filter += f"-{LEFT_OUT[name]}"
    listed = query(arguments.program, "--gtest_list_tests", f"--gtest_filter={test_filter}")
    if not any(line.startswith(" ") for line in listed.splitlines()):
        return None
    command = [tool, "--tool", name, "--error-exitcode", "9", "--print-limit", "100"]
    command += [arguments.program, f"--gtest_filter={test_filter}"]
    environment = dict(os.environ, TILEFOLD_GPU_EXACT_MEMORY="1")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=arguments.sanitizer_timeout
        )
    except subprocess.TimeoutExpired:
        return f"not finished in {arguments.sanitizer_timeout} s"
    summaries = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", done.stdout)
    passed = re.findall(r"\[  PASSED  \] (\d+) test", done.stdout)
    clean = done.returncode == 0
    if not clean:
        # Of each report its lines, and the case that they belong to.
        told = re.findall(r"^(?:\[ RUN .*|=========     .*|========= (?:Error|Warning).*)$", done.stdout, re.MULTILINE)
        print("\n".join(line for line, after in zip(told, [*told[1:], "["]) if line[0] == "=" or after[0] == "="))
        print(done.stdout[-1000:], done.stderr[-1000:])
    return f"{'clean' if clean else 'FAULTS'}: {summaries[-1] if summaries else 'no summary'}; " + (
        f"{passed[-1] if passed else 0} tests passed ({test_filter})"
    )


def sanitize(arguments):
    """{tool: what it said}, the tools side by side; empty if compute-sanitizer is not installed."""
    tool = compute_sanitizer()
    if arguments.no_sanitizer or tool is None:
        return {}
    with concurrent.futures.ThreadPoolExecutor(len(SANITIZER_CASES)) as pool:
        said = {
            name: pool.submit(sanitize_with, tool, name, test_filter, arguments)
            for name, test_filter in SANITIZER_CASES.items()
        }
        return {name: result.result() for name, result in said.items() if result.result() is not None}


def provenance(arguments):
    gpu, driver = (query("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader") or ",").split(
        "\n"
    )[0].split(",")
    cuda = re.search(r"CUDA Version: ([\d.]+)", query("nvidia-smi"))
    return {
        "gpu": gpu.strip(),
        "driver": driver.strip(),
        "cuda_driver_api": cuda.group(1) if cuda else "",
        "date": datetime.date.today().isoformat(),
        "commit": arguments.commit or query("git", "rev-parse", "--short=12", "HEAD"),
    }


def built_digests(program):
    path = pathlib.Path(program + ".digests.json")
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else row_digests()


def row_entries(results, run_id, digests):
    """The record's entries for the rows that ran, and the ladder's rungs. A row of several dtypes ran once with each,
    a rung with each head dim."""
    entries = {}
    for tested, tests in results.items():
        name = tested if tested in digests else re.sub(r"_(float32|float16|bfloat16|d64|d128)$", "", tested)
        if name not in digests:
            continue
        entry = entries.setdefault(name, dict(digest=digests[name], run=run_id, passed=0, skipped={}, failed=[]))
        for test, (outcome, message) in sorted(tests.items()):
            if outcome == "passed":
                entry["passed"] += 1
            elif outcome == "skipped":
                entry["skipped"][test] = " ".join(message.split())[:160]
            else:
                entry["failed"].append(test)
    # A row none of whose tests ran has not been verified.
    return {name: entry for name, entry in entries.items() if entry["passed"] or entry["failed"]}


def write_record(arguments, results, sanitizers):
    record = {"runs": {}, "rows": {}, "unverified": {}}
    if arguments.record.exists():
        record.update(json.loads(arguments.record.read_text(encoding="utf-8")))
    run = provenance(arguments)
    run_id = " ".join(part for part in (run["date"], run["commit"], arguments.rows) if part)
    run["sanitizers"] = sanitizers or {"none": "compute-sanitizer was not run"}
    digests = built_digests(arguments.program)
    record["rows"].update(row_entries(results, run_id, digests))
    record["rows"] = {row: record["rows"][row] for row in digests if row in record["rows"]}
    record["runs"][run_id] = run
    used = {entry["run"] for entry in record["rows"].values()}
    record["runs"] = {name: value for name, value in record["runs"].items() if name in used}
    for row, entry in record["rows"].items():
        if entry["run"] == run_id and fault_of(row, entry["digest"], record) is None:
            record["unverified"].pop(row, None)
    text = json.dumps(record, indent=1) + "\n"
    arguments.record.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("program", help="the built tilefold_gpu_tests")
    add("--record", type=pathlib.Path, default=HERE / "record.json", help="file to bring up to date")
    add("--commit", default="", help="commit to name in the record where there is no git")
    add("--jobs", type=int, default=min(12, os.cpu_count() or 1), help="test processes at a time")
    add("--filter", default="*", help="tests to run, as --gtest_filter takes them")
    add("--rows", default="", metavar="GLOB", help="rows to run all tests of, such as 'sm90_fp16_*'")
    add("--timeout", type=float, default=480, help="seconds that a process may take")
    add("--times", action="store_true", help="print the tests that took longest")
    add("--no-sanitizer", action="store_true")
    add("--no-record", action="store_true", help="leave the record as it is")
    add("--sanitizer-timeout", type=float, default=300)
    arguments = parser.parse_args()
    arguments.program = os.path.abspath(arguments.program)
    complete = arguments.filter == "*"
    if arguments.rows and "-" in arguments.filter:
        parser.error("--rows goes with a --filter that leaves nothing out (no '-' in it)")
    if arguments.rows:
        arguments.filter = of_rows(arguments.filter, arguments.rows)
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        sanitized = beside.submit(sanitize, arguments)
        results, seconds, bad = run_all(arguments)
        sanitizers = sanitized.result()
    counts = {"passed": 0, "skipped": 0, "failed": 0}
    for row, tests in sorted(results.items()):
        for test, (outcome, message) in sorted(tests.items()):
            counts[outcome] += 1
            if outcome == "failed":
                print(f"FAILED {test} [{row}]: {message.strip()[:600]}")
    for fault in bad:
        print(f"a test process died, {fault}")
    print(f"{counts['passed']} passed, {counts['skipped']} skipped, {counts['failed']} failed")
    if arguments.times:
        for test, time in sorted(seconds.items(), key=lambda item: -item[1])[:15]:
            print(f"{time:7.1f} s  {test}")
    failed = bool(bad) or counts["failed"] > 0
    if counts["passed"] == 0:
        reasons = {message for tests in results.values() for _, message in tests.values() if message}
        print("nothing ran on a GPU here:", "; ".join(sorted(reasons)[:3]) or "no test")
        return 1 if failed else 0
    for tool, said in sanitizers.items():
        print(f"{tool}: {said}")
    failed = failed or bool(sanitizers) and sanitizer_fault({"sanitizers": sanitizers}) is not None
    if not arguments.no_record and complete:
        write_record(arguments, results, sanitizers)
        print(f"wrote {arguments.record}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
