#!/usr/bin/env python3
"""Runs the Python package's tests on this machine's GPU and notes them under "python" of tests/gpu/record.json.

Builds the extension module with CUDA for the Python that runs this script (which needs numpy, pytest and nanobind, and
PyTorch, JAX and CuPy for the tests of each), puts the package beside it in the build directory and runs
python/tests from there. An entry is written only where tilefold sees a CUDA device.

    python3 tests/gpu/run_python_tests.py --architectures 90-real
    python3 tests/gpu/run_python_tests.py --module _core.abi3.so     # built elsewhere
"""

import argparse
import collections
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from kernel_digests import ROOT, python_digest  # noqa: E402
from run_gpu_tests import HERE, provenance  # noqa: E402

NEEDED = ("numpy", "pytest")
LIBRARIES = ("numpy", "torch", "jax", "jaxlib", "cupy-cuda13x", "cupy-cuda12x", "cupy")


def build(arguments):
    """The extension module of this Python with CUDA; exits where the build fails."""
    folder = arguments.build / "cmake"
    configure = ["cmake", "-S", str(ROOT / "python"), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release"]
    configure += ["-DTILEFOLD_CUDA=ON", f"-DPython_EXECUTABLE={sys.executable}", *arguments.cmake]
    if arguments.architectures:
        configure.append(f"-DTILEFOLD_CUDA_ARCHITECTURES={arguments.architectures}")
    if shutil.which("ninja"):
        configure += ["-G", "Ninja"]
    jobs = str(os.cpu_count() or 1)
    for command in (configure, ["cmake", "--build", str(folder), "--target", "_core", "-j", jobs]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return next(folder.glob("_core*.so"))


class Outcomes:
    """A pytest plugin: what became of each test."""

    def __init__(self):
        self.passed = collections.Counter()
        self.skipped = collections.Counter()
        self.failed = []

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.skipped:
            self.skip(report)
        elif report.when == "call":
            self.passed[pathlib.Path(report.nodeid.partition("::")[0]).stem] += 1

    def pytest_collectreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.skipped:
            self.skip(report)

    def skip(self, report):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self.skipped[reason.replace("Skipped: ", "", 1)] += 1


def run(package):
    import pytest

    sys.path.insert(0, str(package))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))  # children
    outcomes = Outcomes()
    options = ["-q", "-rs", "-p", "no:cacheprovider", str(ROOT / "python" / "tests")]
    status = pytest.main(options, plugins=[outcomes])
    import tilefold

    usable = [device.name for device in tilefold.devices() if device.type == "cuda" and device.usable]
    return int(status), outcomes, usable


def versions():
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--build", type=pathlib.Path, default=ROOT / "build" / "gpu-python", help="where to build")
    add("--architectures", default="", help="TILEFOLD_CUDA_ARCHITECTURES")
    add("--module", type=pathlib.Path, help="the extension module, built already")
    add("--cmake", action="append", default=[], metavar="-DNAME=VALUE", help="more for CMake; write --cmake=-D...")
    add("--record", type=pathlib.Path, default=HERE / "record.json", help="file to bring up to date")
    add("--commit", default="", help="commit to name in the record where there is no git")
    add("--no-record", action="store_true", help="leave the record as it is")
    arguments = parser.parse_args()
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if arguments.module is None and importlib.util.find_spec("nanobind") is None:
        missing.append("nanobind")
    if missing:
        print(f"Python tests: left out; {sys.executable} has no {', '.join(missing)}")
        return 0
    module = arguments.module or build(arguments)
    package = arguments.build / "package"
    shutil.rmtree(package, ignore_errors=True)
    ignored = shutil.ignore_patterns("_core*.so", "__pycache__")
    shutil.copytree(ROOT / "python" / "tilefold", package / "tilefold", ignore=ignored)
    shutil.copy2(module, package / "tilefold")

    status, outcomes, usable = run(package)
    if not usable:
        print("Python tests: no CUDA device here, so the record stays as it is")
        return status
    entry = {
        **provenance(arguments),
        "versions": versions(),
        "digest": python_digest(),
        "passed": dict(sorted(outcomes.passed.items())),
        "skipped": dict(sorted(outcomes.skipped.items())),
        "failed": outcomes.failed,
    }
    if not arguments.no_record:
        record = json.loads(arguments.record.read_text(encoding="utf-8")) if arguments.record.exists() else {}
        record["python"] = entry
        if not outcomes.failed:
            record.get("unverified", {}).pop("python", None)
        arguments.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {arguments.record}")
    return status


if __name__ == "__main__":
    sys.exit(main())
