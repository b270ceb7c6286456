"""Digests of the sources that decide what each GPU kernel row does, and of the Python package's.

A row's digest covers what its family compiles for the GPU and what launches it: the header that makes a kernel of a row
and all of the family's .cc and .cu files (the generic family: those of the row's own dtype), the encoding of tensor
maps, everything that these include from src/ by `#include "..."`, and the row's own line of src/cuda/kernels.def. What only
chooses among rows is left out, since the tests name the row they run. Comments and white space do not count, so neither
a new comment nor reformatting makes a record stale.
"""

import ast
import hashlib
import io
import json
import pathlib
import re
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The rows that no line of kernels.def names: one for each dtype.
GENERIC_DTYPES = ("fp32", "fp16", "bf16")

# What the record has beside rows: the rungs of bench/ladder/, each in the file of its name.
LADDER = "ladder_"
RUNGS = ("naive", "flash1", "flash2", "swizzle", "pipeline")

# Under src/cuda/: what chooses among rows and has no part in a launch; and the table, of which a row's own line counts.
CHOICE = ("sm80/tile_choice.h", "sm90/forward_cost.cc", "sm90/forward_cost.h", "sm90/no_rows.cc", "kernels.def")

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


def closure(paths, source):
    """`paths` and every file under `source` that they include, directly or not, without CHOICE."""
    left_out = {source / "cuda" / name for name in CHOICE}
    found, pending = set(), list(paths)
    while pending:
        current = pending.pop()
        if current in found or current in left_out:
            continue
        found.add(current)
        for name in _INCLUDE.findall(current.read_text(encoding="utf-8")):
            for directory in (source, current.parent):
                if (directory / name).is_file():
                    pending.append((directory / name).resolve())
                    break
    return sorted(found)


def files_of(family, source):
    """The files that a digest starts from; `family` is "sm80", "sm90", a generic row's name or a rung's."""
    cuda = source / "cuda"
    if family.startswith(LADDER):
        return [source.parent / "bench" / "ladder" / f"{family[len(LADDER):]}.cu"]
    if family.startswith("generic_"):
        return [cuda / "generic" / "generic_kernels.cc", cuda / "generic" / f"forward_{family.split('_')[1]}.cu"]
    folder = cuda / family
    return [folder / "instantiate.cuh", *folder.glob("*.cc"), *folder.glob("*.cu"), cuda / "tensor_map.cc"]


def family_digest(family, source):
    digest = hashlib.sha256()
    for file in closure(files_of(family, source), source):
        digest.update(file.relative_to(source.parent).as_posix().encode() + b"\0")
        digest.update(normalised(file.read_text(encoding="utf-8")).encode() + b"\0")
    return digest


def row_digests(root=ROOT):
    """{name: digest} for every row of the sources and every rung of the ladder."""
    digests = {}
    families = {}
    source = pathlib.Path(root).resolve() / "src"
    text = (source / "cuda" / "kernels.def").read_text(encoding="utf-8")
    for line in text.splitlines():
        match = _ROW.match(line)
        if match is None:
            continue
        family, name = match.group(1).lower(), match.group(2)
        if family not in families:
            families[family] = family_digest(family, source)
        digest = families[family].copy()
        digest.update(normalised(line).encode())
        digests[name] = digest.hexdigest()
    for name in [f"generic_{dtype}" for dtype in GENERIC_DTYPES] + [LADDER + rung for rung in RUNGS]:
        digests[name] = family_digest(name, source).hexdigest()
    return digests


# Programs of the Python package, which no call goes through.
PYTHON_PROGRAMS = ("bench.py", "draw.py")


def without_docstrings(text):
    """The lines of a Python source without comments, less those that are empty or part of a docstring (of a field's,
    too)."""
    left_out = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            left_out.update(range(node.lineno, node.end_lineno + 1))
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            number, column = token.start
            lines[number - 1] = lines[number - 1][:column]
    kept = (line.strip() for number, line in enumerate(lines, 1) if number not in left_out)
    return "\n".join(line for line in kept if line)


def python_digest(root=ROOT):
    """Digest of what a call from Python goes through. Docstrings, empty lines and comments do not count."""
    digest = hashlib.sha256()
    folder = pathlib.Path(root) / "python"
    files = [folder / "CMakeLists.txt", *folder.glob("src/*.cc"), *folder.glob("src/*.h")]
    files += [path for path in folder.glob("tilefold/*.py") if path.name not in PYTHON_PROGRAMS]
    for file in sorted(files):
        text = file.read_text(encoding="utf-8")
        kept = {".py": without_docstrings, ".cc": normalised, ".h": normalised}.get(file.suffix, str)(text)
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + kept.encode() + b"\0")
    return digest.hexdigest()


if __name__ == "__main__":
    # With a file name: what the build keeps beside the test program, so that a record tells what was built.
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(json.dumps(row_digests(), indent=1) + "\n", encoding="utf-8")
    else:
        for row, value in row_digests().items():
            print(value, row)
