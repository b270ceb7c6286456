"""Compiles one file of misuses: as it stands it must compile, with -DMISUSE=n it must fail with the words it names.

    must_fail.py <file.cc> <compiler> <flags>...
"""

import re
import subprocess
import sys


def compile_file(source: str, command: list[str], misuse: int) -> tuple[bool, str]:
    result = subprocess.run(
        [*command, f"-DMISUSE={misuse}", "-fsyntax-only", source], capture_output=True, text=True, check=False
    )
    return result.returncode == 0, result.stderr


def main() -> int:
    source, *command = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        misuses = re.findall(r"// MISUSE (\d+): (.+)", file.read())
    if not misuses:
        print(f"{source}: no line `// MISUSE n: <words>`")
        return 1
    compiles, errors = compile_file(source, command, 0)
    if not compiles:
        print(f"{source}: the right program does not compile:\n{errors}")
        return 1
    wrong = False
    for number, words in misuses:
        compiles, errors = compile_file(source, command, int(number))
        # Any of several wordings, "a | b", since compilers differ.
        if compiles:
            print(f"{source}: misuse {number} compiles")
            wrong = True
        elif not any(word.strip() in errors for word in words.split("|")):
            print(f"{source}: misuse {number} fails, but not with '{words}':\n{errors}")
            wrong = True
        else:
            print(f"misuse {number} fails as it must: {words}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
