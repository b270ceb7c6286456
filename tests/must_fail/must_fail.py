"""Compiles one file of misuses: as it stands it must compile, with -DMISUSE=n it must fail with the words it names.

    must_fail.py <file.cc or file.cu> <compiler> <flags>...

Device code is compiled to the end, since ptxas has its say too, and of what fails nothing may be left.
"""

import os
import re
import subprocess
import sys
import tempfile


def compile_file(source: str, command: list[str], misuse: int) -> tuple[bool, str]:
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "output")
        kind = ["-cubin", "-o", output] if source.endswith(".cu") else ["-fsyntax-only"]
        result = subprocess.run(
            [*command, f"-DMISUSE={misuse}", *kind, source], capture_output=True, text=True, check=False
        )
        if result.returncode != 0 and os.path.exists(output):
            return False, f"{output} was left by what failed"
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
