"""Every wrapper of src/cuda/ptx is used by a file here, and has its meaning on the lane machine."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVICE = re.compile(r"^__device__ __forceinline__ \S+ (\w+)\(", re.MULTILINE)
SHAPE = re.compile(r"^TILEFOLD_WGMMA_SHAPE\((\d+),", re.MULTILINE)


def main():
    used = "".join(path.read_text(encoding="utf-8") for path in pathlib.Path(__file__).parent.glob("*.cu"))
    faults, count = [], 0
    for header in sorted((ROOT / "src" / "cuda" / "ptx").glob("*.cuh")):
        text = header.read_text(encoding="utf-8")
        on_host = ROOT / "tests" / "lane_machine" / "include" / "cuda" / "ptx" / header.name
        host = on_host.read_text(encoding="utf-8") if on_host.exists() else ""
        names = DEVICE.findall(text)
        if not names:
            faults.append(f"{header.name}: no wrapper found; this test must follow its style")
        for name in names:
            count += 1
            if not re.search(rf"\b{name}\b", used):
                faults.append(f"{header.name}: {name} is compiled by no file of tests/ptx")
            helper = len(re.findall(rf"\b{name}\b", text)) > 1  # of other wrappers in its header
            if not helper and not re.search(rf"\b{name}\b", host):
                faults.append(f"{header.name}: {name} has no meaning on the lane machine")
        for shape in SHAPE.findall(text):
            count += 1
            if f"TILEFOLD_COMPILE_WGMMA({shape})" not in used:
                faults.append(f"{header.name}: the shape with n = {shape} is compiled by no file of tests/ptx")
    print("\n".join(faults) or f"all {count} wrappers and shapes are there")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
