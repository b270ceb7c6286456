"""What a call costs the calling thread: tilefold.attention against the C interface and PyTorch.

    python python/tests/bench_overhead.py [--device cpu|cuda] [--rows N] [--head-dim D]

On CUDA the work is enqueued and not waited for, so the time is the call's own; the queue is drained
between rounds. On the CPU the work is part of it, in all three alike only as far as the kernels are
alike: the column "beyond C" is the binding's own cost on both.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Callable, List

import numpy as np
import tilefold
from tilefold import _core


def median_seconds(call: Callable[[], Any], settle: Callable[[], None], rounds: int = 31) -> float:
    repeats = 200
    for _ in range(repeats):
        call()
    times: List[float] = []
    for _ in range(rounds):
        settle()
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        times.append((time.perf_counter() - begin) / repeats)
    settle()
    return statistics.median(times)


def row(name: str, seconds: float, base: float) -> None:
    print(f"{name:42s} {seconds * 1e6:9.2f} {(seconds - base) * 1e6:12.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=None, help="N; default 64 on CUDA, 1 on the CPU")
    parser.add_argument("--head-dim", type=int, default=None, help="D; default 64, 8 on the CPU")
    options = parser.parse_args()
    on_cuda = options.device.startswith("cuda")
    rows = options.rows or (64 if on_cuda else 1)
    head_dim = options.head_dim or (64 if on_cuda else 8)
    shape = (1, 1, rows, head_dim)
    print(f"B = 1, H = 1, N = {rows}, D = {head_dim}, {options.device}; microseconds per call, "
          "median of 31 rounds of 200")
    print(f"{'':42s} {'call':>9s} {'beyond C':>12s}")

    def nothing() -> None:
        pass

    try:
        import torch
    except ImportError:
        torch = None  # type: ignore[assignment]
    if not on_cuda:
        q = np.ones(shape, np.float32)
        out = np.empty_like(q)
        base = statistics.median(_core.c_call_seconds(q, q, q, out, 200) for _ in range(31))
        row("tilefold_forward (C)", base, base)
        row("tilefold.attention, NumPy", median_seconds(lambda: tilefold.attention(q, q, q), nothing), base)
        row(
            "tilefold.attention(out=), NumPy",
            median_seconds(lambda: tilefold.attention(q, q, q, out=out), nothing),
            base,
        )
    if torch is None:
        return
    dtype = torch.float16 if on_cuda else torch.float32
    t = torch.ones(shape, dtype=dtype, device=options.device)
    out_t = torch.empty_like(t)
    settle = torch.cuda.synchronize if on_cuda else nothing
    sdpa = torch.nn.functional.scaled_dot_product_attention
    with torch.no_grad():
        rounds = []
        for _ in range(31):
            settle()
            rounds.append(_core.c_call_seconds(t, t, t, out_t, 200))
        base = statistics.median(rounds)
        row("tilefold_forward (C), the same tensors", base, base)
        row("tilefold.attention, PyTorch", median_seconds(lambda: tilefold.attention(t, t, t), settle), base)
        row(
            "tilefold.attention(out=), PyTorch",
            median_seconds(lambda: tilefold.attention(t, t, t, out=out_t), settle),
            base,
        )
        row("torch.empty_like alone", median_seconds(lambda: torch.empty_like(t), settle), 0.0)
        row("PyTorch's scaled_dot_product_attention", median_seconds(lambda: sdpa(t, t, t), settle), base)


if __name__ == "__main__":
    main()
