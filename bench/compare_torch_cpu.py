#!/usr/bin/env python3
"""Times tilefold's CPU back end against PyTorch's scaled_dot_product_attention on the CPU.

One process, the same tensors, the same number of threads, in turns: warm-up of both, then rounds of
one call each; the median counts. Each call follows a pause, so that the other library's OpenMP threads
no longer spin. tilefold is called through its C interface by ctypes.

Prints a table of GFLOP/s and the ratio at each point, then the geometric means per dtype. --out writes
CSV: a line naming processor, date, commit and command, then peer, pass, dtype, hdim, causal, batch,
heads, seqlen, threads, median_ms, gflops, rel_error (|O - O_float64| / |O_float64| over sampled rows).

    compare_torch_cpu.py --lib build/src/libtilefold.so --threads 2
    compare_torch_cpu.py --lib ... --threads 16 --seqlen 4096 --dtype float32 --out bench/results/cpu.csv
"""

import argparse
import ctypes
import datetime
import math
import os
import platform
import shlex
import statistics
import sys
import time

from c_interface import Library, Tensor


def prepare(library, q, k, v, o, causal, threads):
    """A function of no arguments that computes o."""
    tensors = [Tensor(t) for t in (q, k, v, o)]
    options = library.options(causal, num_threads=threads)
    arguments = [t.ref for t in tensors] + [None, ctypes.byref(options), None, 0, None]

    def call(_keep=tensors):
        library.check(library.lib.tilefold_forward(*arguments))

    return call


def relative_error(torch, q, k, v, o, causal):
    """Over every 64th row of the first head."""
    rows = torch.arange(0, q.shape[2], max(1, q.shape[2] // 64))
    logits = q[0, 0, rows].double() @ k[0, 0].double().T / math.sqrt(q.shape[3])
    if causal:
        logits.masked_fill_(torch.arange(k.shape[2])[None, :] > rows[:, None], -math.inf)
    expected = torch.softmax(logits, 1) @ v[0, 0].double()
    return ((o[0, 0, rows].double() - expected).norm() / expected.norm()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lib", required=True, help="path of libtilefold.so")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--dtype", default="float32,bfloat16,float16")
    parser.add_argument("--hdim", default="64,128")
    parser.add_argument("--causal", default="0,1")
    parser.add_argument("--seqlen", default="4096")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pause-ms", type=float, default=20.0)
    parser.add_argument("--commit", default="", help="for the first line of the CSV")
    parser.add_argument("--out", default="")
    args = parser.parse_args()

    import torch
    from torch.nn.functional import scaled_dot_product_attention

    torch.set_num_threads(args.threads)
    library = Library(args.lib)
    processor = library.device_info(0)
    where = (
        f"{processor.name.decode()} ({processor.note.decode()}), {args.threads} threads, "
        f"PyTorch {torch.__version__}, {platform.system()}, {datetime.date.today()}"
    )
    print(where)
    print(f"{'dtype':9} {'D':>4} {'causal':>6} {'N':>6} {'torch':>9} {'tilefold':>9} {'ratio':>6}   GFLOP/s; rel. errors")
    rows, ratios = [], {}
    for dtype in args.dtype.split(","):
        for hdim in map(int, args.hdim.split(",")):
            for causal in map(int, args.causal.split(",")):
                for seqlen in map(int, args.seqlen.split(",")):
                    torch.manual_seed(0)
                    shape = (args.batch, args.heads, seqlen, hdim)
                    q, k, v = (torch.randn(shape).to(getattr(torch, dtype)) for _ in range(3))
                    o = torch.empty_like(q)
                    results = {}

                    def torch_call():
                        results["o"] = scaled_dot_product_attention(q, k, v, is_causal=bool(causal))

                    peers = {"torch": torch_call, "tilefold": prepare(library, q, k, v, o, causal, args.threads)}
                    times = {name: [] for name in peers}
                    for round_index in range(args.rounds + 1):
                        for name, call in peers.items():
                            time.sleep(args.pause_ms / 1000)
                            start = time.perf_counter()
                            call()
                            if round_index > 0:
                                times[name].append(time.perf_counter() - start)
                    pairs = seqlen * (seqlen + 1) / 2 if causal else seqlen * seqlen
                    flops = 4.0 * args.batch * args.heads * pairs * hdim
                    median = {name: statistics.median(t) for name, t in times.items()}
                    error = {
                        "torch": relative_error(torch, q, k, v, results["o"], causal),
                        "tilefold": relative_error(torch, q, k, v, o, causal),
                    }
                    ratio = median["torch"] / median["tilefold"]
                    ratios.setdefault(dtype, []).append(ratio)
                    gflops = {name: flops / t * 1e-9 for name, t in median.items()}
                    print(
                        f"{dtype:9} {hdim:4} {causal:6} {seqlen:6} {gflops['torch']:9.1f} {gflops['tilefold']:9.1f} "
                        f"{ratio:6.2f}   {error['torch']:.1e} {error['tilefold']:.1e}",
                        flush=True,
                    )
                    for name in peers:
                        rows.append(
                            f"{name},forward,{dtype},{hdim},{causal},{args.batch},{args.heads},{seqlen},{args.threads},"
                            f"{median[name] * 1e3:.4f},{gflops[name]:.1f},{error[name]:.3e}"
                        )
    for dtype, values in ratios.items():
        print(f"{dtype}: geometric mean {statistics.geometric_mean(values):.2f}, lowest {min(values):.2f}")
    if args.out:
        with open(args.out, "w") as file:
            command = shlex.join(["bench/compare_torch_cpu.py"] + sys.argv[1:])
            file.write(f"# {where}, commit {args.commit}, {command}\n")
            file.write("peer,pass,dtype,hdim,causal,batch,heads,seqlen,threads,median_ms,gflops,rel_error\n")
            file.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
