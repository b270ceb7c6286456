"""Builds the wheel in a virtual environment and runs the Python tests with NumPy alone.

    python3 tests/python/test_wheel.py --source . --work build/python [--cuda AUTO|ON|OFF]

The exit code is 77, and the last line says why, where the machine lacks what the test needs (venv,
pip, a package index). The environment and the build are kept under --work, so a second run is short.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import List

SKIPPED = 77
NEEDED = ["scikit-build-core>=0.11", "nanobind>=2.4", "cmake>=3.26", "ninja", "numpy", "ml_dtypes", "pytest"]


def skip(reason: str) -> int:
    print(f"SKIPPED: python.numpy: {reason}")
    return SKIPPED


def run(command: List[str], **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, text=True, **options)  # type: ignore[call-overload, no-any-return]


def make_environment(python: Path, venv: Path) -> str:
    """An environment with NEEDED; returns why not, or nothing."""
    stamp = venv / "tilefold-needs"
    if stamp.exists() and stamp.read_text() == " ".join(NEEDED):
        return ""
    shutil.rmtree(venv, ignore_errors=True)
    made = run([sys.executable, "-m", "venv", str(venv)], capture_output=True)
    if made.returncode != 0:
        return "python3 -m venv failed (Debian: apt install python3-venv): " + made.stdout[-300:]
    got = run(
        [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *NEEDED],
        capture_output=True,
    )
    if got.returncode != 0:
        lines = got.stderr.strip().splitlines() or ["no message"]
        return "pip could not get " + ", ".join(NEEDED) + ": " + lines[-1]
    stamp.write_text(" ".join(NEEDED))
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--cuda", default="OFF", choices=["AUTO", "ON", "OFF"])
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        return skip(f"{header} is not there (Debian: apt install python3-dev)")
    venv = work / "venv"
    python = venv / "bin" / "python"
    reason = make_environment(python, venv)
    if reason:
        return skip(reason)

    settings = {
        "build-dir": str(work / "wheel-build"),
        "cmake.define.TILEFOLD_CUDA": options.cuda,
    }
    if shutil.which("ccache"):
        settings["cmake.define.CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
    environment = dict(os.environ, CMAKE_BUILD_PARALLEL_LEVEL=str(min(2, os.cpu_count() or 1)))
    environment["PATH"] = f"{venv / 'bin'}{os.pathsep}{environment.get('PATH', '')}"
    begin = time.monotonic()
    shutil.rmtree(work / "wheel", ignore_errors=True)
    build = [str(python), "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
    build += ["--no-build-isolation", "-w", str(work / "wheel"), str(options.source.resolve())]
    for name, value in settings.items():
        build += ["--config-settings", f"{name}={value}"]
    if run(build, env=environment).returncode != 0:
        return 1
    (wheel,) = (work / "wheel").glob("tilefold-*.whl")
    seconds = time.monotonic() - begin
    print(f"{wheel.name}: {wheel.stat().st_size / 2**20:.2f} MiB, built in {seconds:.0f} s")
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    install += ["--no-deps", "--no-index", "--force-reinstall", str(wheel)]
    if run(install).returncode != 0:
        return 1
    # From another directory, so that the installed package is what is imported.
    tests = options.source.resolve() / "python" / "tests"
    pytest = [str(python), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(tests)]
    return run(pytest, cwd=work).returncode


if __name__ == "__main__":
    sys.exit(main())
