"""Checks the shared library's exported symbols: those that tilefold.h declares, each used by abi_test.c, and no other.

    check_exports.py <libtilefold.so> <tilefold.h> <abi_test.c>
"""

import re
import subprocess
import sys


def declared_functions(header: str) -> set[str]:
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    return set(re.findall(r"TILEFOLD_API\s[^;]*?\b(tilefold_\w+)\s*\(", text))


def exported_symbols(library: str) -> set[str]:
    lines = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", library], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return {line.split()[0].split("@")[0] for line in lines if line}


def main() -> int:
    library, header_path, test_path = sys.argv[1:]
    with open(header_path, encoding="utf-8") as file:
        declared = declared_functions(file.read())
    with open(test_path, encoding="utf-8") as file:
        called = set(re.findall(r"\b(tilefold_\w+)\s*\(", file.read()))
    exported = exported_symbols(library)
    complaints = [
        ("declared in tilefold.h, not exported", declared - exported),
        ("exported, not declared in tilefold.h", exported - declared),
        ("declared in tilefold.h, never called by abi_test.c", declared - called),
    ]
    wrong = False
    for what, names in complaints:
        for name in sorted(names):
            print(f"{name}: {what}")
            wrong = True
    if not declared:
        print("no declaration found in tilefold.h")
        wrong = True
    if not wrong:
        print(f"{len(exported)} symbols exported, as declared")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
