"""Digests of the sources that each GPU kernel row is built from, and of the Python package's.

A row's digest covers its family's instantiating source, everything that it includes from src/ by
`#include "..."`, and the row's own line of src/cuda/kernels.def. Comments and white space do not count,
so neither a new comment nor reformatting makes a record stale.
"""

import hashlib
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
KERNEL_TABLE = SOURCE / "cuda" / "kernels.def"

# The rows that no line of kernels.def names, and their translation units.
GENERIC_ROWS = {
    f"generic_{dtype}": SOURCE / "cuda" / "generic" / f"forward_{dtype}.cu" for dtype in ("fp32", "fp16", "bf16")
}

_TOKENS = re.compile(
    r"""//[^\n]*            # a line comment
      | /\*.*?\*/           # a block comment
      | "(?:\\.|[^"\\\n])*" # a string
      | '(?:\\.|[^'\\\n])+' # a character, or a digit separator's tail
      | \s+                 # white space
      | .                   # anything else""",
    re.DOTALL | re.VERBOSE,
)
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_ROW = re.compile(r"^TILEFOLD_([A-Z0-9]+)_ROW\(([a-z0-9_]+)", re.MULTILINE)


def normalised(text):
    """The text without comments, and without white space outside of strings."""
    kept = []
    for match in _TOKENS.finditer(text):
        token = match.group()
        if token.startswith(("//", "/*")) or token.isspace():
            continue
        kept.append(token)
    return "".join(kept)


def closure(path):
    """`path` and every file under src/ that it includes, directly or not."""
    found, pending = set(), [path.resolve()]
    while pending:
        current = pending.pop()
        if current in found:
            continue
        found.add(current)
        for name in _INCLUDE.findall(current.read_text(encoding="utf-8")):
            for directory in (SOURCE, current.parent):
                if (directory / name).is_file():
                    pending.append((directory / name).resolve())
                    break
    return sorted(found)


def family_digest(path):
    digest = hashlib.sha256()
    for file in closure(path):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0")
        digest.update(normalised(file.read_text(encoding="utf-8")).encode() + b"\0")
    return digest


def row_digests():
    """{row name: digest} for every row of the sources."""
    digests = {}
    families = {}
    text = KERNEL_TABLE.read_text(encoding="utf-8")
    for line in text.splitlines():
        match = _ROW.match(line)
        if match is None:
            continue
        family, name = match.group(1).lower(), match.group(2)
        if family not in families:
            families[family] = family_digest(SOURCE / "cuda" / family / "instantiate.cuh")
        digest = families[family].copy()
        digest.update(normalised(line).encode())
        digests[name] = digest.hexdigest()
    for name, path in GENERIC_ROWS.items():
        digests[name] = family_digest(path).hexdigest()
    return digests


# Programs of the Python package, which no call goes through.
PYTHON_PROGRAMS = ("bench.py", "draw.py")


def python_digest():
    """Digest of what a call from Python goes through. Empty lines and lines of comment do not count."""
    digest = hashlib.sha256()
    folder = ROOT / "python"
    files = [folder / "CMakeLists.txt", *folder.glob("src/*.cc"), *folder.glob("src/*.h")]
    files += [path for path in folder.glob("tilefold/*.py") if path.name not in PYTHON_PROGRAMS]
    for file in sorted(files):
        text = file.read_text(encoding="utf-8")
        if file.suffix in (".cc", ".h"):
            kept = normalised(text)
        else:
            lines = (line.strip() for line in text.splitlines())
            kept = "\n".join(line for line in lines if line and not line.startswith("#"))
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + kept.encode() + b"\0")
    return digest.hexdigest()


if __name__ == "__main__":
    # With a file name: what the build keeps beside the test program, so that a record tells what was built.
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(json.dumps(row_digests(), indent=1) + "\n", encoding="utf-8")
    else:
        for row, value in row_digests().items():
            print(value, row)
