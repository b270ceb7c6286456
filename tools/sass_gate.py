#!/usr/bin/env python3
"""Checks the machine code of Hopper kernels without a disassembler.

Finds the loops that hold warpgroup matrix instructions (backward branches around HGMMA) and reports what costs time in
them. Fails if a kernel uses local memory anywhere, or if a consumer loop has more than four WARPGROUP instructions (two
ARRIVE, two DEPBAR; serialised wgmmas show one per HGMMA) or moves too many descriptors from vector to uniform registers
(R2UR).

Takes cubins, or kernels' sources, which it compiles first:

    tools/sass_gate.py build/kernels/sm90_fp16_d128_*.cu
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]

INSTRUCTION_BYTES = 16
CLASS_MASK = 0x1FF  # the low nine bits of an instruction name its class
CLASSES = {
    0x1F0: "HGMMA", 0x1C5: "WARPGROUP", 0x0CA: "R2UR", 0x183: "LDL", 0x187: "STL", 0x108: "MUFU", 0x147: "BRA",
    0x189: "SHFL", 0x03E: "F2FP", 0x023: "FFMA", 0x020: "FMUL", 0x021: "FADD", 0x009: "FMNMX", 0x1A7: "SYNCS",
}
HGMMA_SHARED, HGMMA_REGISTERS = 0x9F0, 0xDF0  # low twelve bits: A from shared memory, from registers
ALWAYS = 7  # predicate of an unconditional instruction
MAX_WARPGROUP = 4
# Descriptors of head dims beyond 128 are more than there are uniform registers.
MAX_R2UR, MAX_R2UR_WIDE = 0, 16


def sections(image):
    """Yields (name, bytes) of the sections of a 64-bit ELF file."""
    offset, = struct.unpack_from("<Q", image, 0x28)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, offset + i * entry_bytes) for i in range(count)]
    names = headers[names_index]
    for name, _, _, _, start, size in headers:
        at = names[4] + name
        yield image[at:image.index(b"\0", at)].decode(), image[start:start + size]


def decode(code):
    """A list of (class name or None, low word, high word)."""
    words = [struct.unpack_from("<QQ", code, at) for at in range(0, len(code), INSTRUCTION_BYTES)]
    return [(CLASSES.get(low & CLASS_MASK), low, high) for low, high in words]


def branch_target(index, low, high):
    bits = 56  # signed, in units of 4 bytes
    offset = (low >> 16 & 0xFF) | (low >> 34) << 8 | (high & 0x3FFFF) << 38
    if offset >> bits - 1:
        offset -= 1 << bits
    return index + 1 + offset * 4 // INSTRUCTION_BYTES


def innermost_loops(instructions):
    """[first, last] of the loops that hold HGMMA and no smaller loop that does."""
    loops = []
    for index, (name, low, high) in enumerate(instructions):
        if name == "BRA" and low >> 12 & 0xF != ALWAYS:  # out-of-line spins of waits jump back always
            target = branch_target(index, low, high)
            forms = {i[1] & 0xFFF for i in instructions[target:index + 1] if i[0] == "HGMMA"}
            if 0 <= target <= index and forms == {HGMMA_SHARED, HGMMA_REGISTERS}:
                loops.append((target, index))
    return [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]


def compiled(path, nvcc, includes):
    """The cubin's bytes, of a cubin or of a source."""
    if not path.endswith(".cu"):
        return pathlib.Path(path).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        cubin = pathlib.Path(folder) / "kernel.cubin"
        search = [f"-I{i}" for i in [ROOT / "src", ROOT / "include", *includes]]
        subprocess.run([nvcc, "-std=c++20", "-O3", *search, "-gencode", "arch=compute_90a,code=sm_90a", "-cubin", "-o",
                        cubin, path], check=True)
        return cubin.read_bytes()


def local_memory_of(image):
    """Yields (kernel, instructions that touch local memory) for every kernel of a cubin that has any."""
    for name, code in sections(image):
        count = sum(i[0] in ("LDL", "STL") for i in decode(code)) if name.startswith(".text.") else 0
        if count:
            yield name.removeprefix(".text."), count


def loops_of(image):
    """Yields (kernel, instruction counts by class, length) for every consumer loop of a cubin."""
    for name, code in sections(image):
        if not name.startswith(".text."):
            continue
        instructions = decode(code)
        for first, last in innermost_loops(instructions):
            body = [i[0] for i in instructions[first:last + 1]]
            yield name.removeprefix(".text."), {c: body.count(c) for c in CLASSES.values()}, len(body)


def faults_of(kernel, count):
    head_dim = re.search(r"_d(\d+)", kernel)
    max_r2ur = MAX_R2UR if head_dim and int(head_dim.group(1)) <= 128 else MAX_R2UR_WIDE
    faults = []
    if count["WARPGROUP"] > MAX_WARPGROUP:
        faults.append("serialised wgmma")
    if count["R2UR"] > max_r2ur:
        faults.append("descriptors in vector registers")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="+", help="cubins or .cu files")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--include", action="append", default=[], help="a further include directory")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="sources compiled at a time (2)")
    arguments = parser.parse_args()
    failed = False
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        images = list(pool.map(lambda path: compiled(path, arguments.nvcc, arguments.include), arguments.kernels))
    for path, image in zip(arguments.kernels, images):
        found = False
        for kernel, count, length in loops_of(image):
            found = True
            faults = faults_of(kernel, count)
            failed = failed or bool(faults)
            shown = " ".join(f"{c} {count[c]}" for c in CLASSES.values())
            print(f"{kernel}: loop of {length}: {shown}{': ' + ', '.join(faults) if faults else ''}")
        for kernel, count in local_memory_of(image):
            print(f"{kernel}: {count} instructions touch local memory")
            failed = True
        if not found:
            print(f"{path}: no consumer loop found")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
