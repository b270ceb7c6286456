"""The C and C++ programs and the command lines of the README run as they stand, on the installed tree.

    check_readme.py <cmake> <build directory> <source directory> <C compiler> <C++ compiler>

Exit code 77: pkg-config is missing. (The Python lines are tested with the Python package.)
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
LANGUAGES = {"c": ("c", ["-std=c11"]), "cpp": ("cc", ["-std=c++20"])}
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]


def output_of(command, **options):
    ended = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if ended.returncode != 0:
        sys.exit(f"{command} ended with {ended.returncode}:\n{ended.stdout}")
    return ended.stdout


def main():
    cmake, build, source, *compilers = sys.argv[1:]
    if not shutil.which("pkg-config"):
        print("pkg-config not found")
        return SKIPPED
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", Path(source, "README.md").read_text(encoding="utf-8"), re.S | re.M)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        prefix = scratch / "prefix"
        output_of([cmake, "--install", build, "--prefix", str(prefix)])
        (library,) = {path.parent for path in prefix.rglob("libtilefold.*")}
        environment = dict(os.environ, PKG_CONFIG_PATH=str(library / "pkgconfig"))
        environment["PATH"] = f"{prefix / 'bin'}{os.pathsep}{environment['PATH']}"
        static = ["--static"] if (library / "libtilefold.a").exists() else []
        flags = output_of(["pkg-config", "--cflags", "--libs", *static, "tilefold"], env=environment).split()
        for language, compiler in zip(LANGUAGES, compilers):
            suffix, standard = LANGUAGES[language]
            programs = [text for kind, text in blocks if kind == language]
            assert programs, f"the README has no {language} block"
            for text in programs:
                path = scratch / f"program.{suffix}"
                path.write_text(text, encoding="utf-8")
                command = [compiler, *standard, *STRICT, str(path), "-o", str(scratch / "program"), *flags]
                output_of([*command, f"-Wl,-rpath,{library}"])
                output_of([str(scratch / "program")])
        # Command lines: those of the program. They name the sample as one at the root of the sources does.
        (scratch / "samples").symlink_to(Path(source, "samples").resolve())
        lines = [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]
        lines = [line for line in lines if line.startswith("tilefold ")]
        assert lines, "the README has no command line of tilefold"
        if (prefix / "bin" / "tilefold").exists():
            for line in lines:
                output_of(["sh", "-c", line], cwd=scratch, env=environment)
        print(f"{len(LANGUAGES)} programs and {len(lines)} command lines ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
