#!/usr/bin/env python3
"""Times tilefold against PyTorch's attention and FlashAttention-3: one process, the same data, in turns.

tilefold is called through its C interface by ctypes, so that no binding stands between. A GPU's clock
falls within tens of milliseconds under load, which is why the peers take turns at each point:

- sustained (the default): every point begins with a warm-up of 150 ms of all peers in turns, then
  rounds of one launch sequence per peer; the median over all launches counts.
- burst: every peer's launches at a point follow a pause, on a GPU that is cool and clocked high.

Peer fa3 is FlashAttention-3 out of any library that registers its operator `fwd` with PyTorch: its own
build, or that in the Python packages xformers 0.0.34 (namespace flash_attn_3; CUDA 12's runtime has to be
on LD_LIBRARY_PATH) and fa3-fwd 0.0.3 (namespace fa3_fwd; bfloat16 only). vLLM's takes packed batches only.

Prints a table of TFLOP/s, the ratios to each other peer and their geometric means. Writes CSV:
a line naming GPU, driver, date, commit and command, then peer, pass, dtype, hdim, causal, batch, heads,
seqlen (of the keys), median_ms, tflops and, beyond these, mode, sm_clock_mhz, rel_error (relative Frobenius
norm of O - O_float64 over sampled rows), lse_error, kernel, seqlen_q, heads_kv, hdim_v.

Where --seqlen-q names fewer query rows than keys, the table is in microseconds: memory is what counts.
Calls of less than some 50 us are shorter than what the host needs to make them: time those with --graph.

    compare_torch.py --lib build/src/libtilefold.so --out bench/results/h200-sm80.csv
    compare_torch.py --lib ... --hdim 128 --causal 0 --seqlen 4096 --peers tilefold_sm80,torch_fa2
    compare_torch.py --lib ... --peers tilefold_sm90,fa3 --fa3 xformers/flash_attn_3/_C.so
    compare_torch.py --lib ... --peers tilefold_sm90,fa3 --fa3 fa3_fwd/_C.abi3.so:fa3_fwd --dtype bf16
    compare_torch.py --lib ... --kernels sm80_fp16_d128_m128n64_s2,sm80_fp16_d128_m64n64_s2
    compare_torch.py --lib ... --causal 0 --seqlen-q 1,4 --group 8 --heads 64 --batch 16 --seqlen 4096
"""

import argparse
import ctypes
import datetime
import itertools
import math
import os
import shlex
import statistics
import subprocess
import sys
import time

import torch
from c_interface import Library, Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


class Tilefold(Library):
    capturing = None  # the stream of a CUDA graph in the making

    def explain(self, tensors, options):
        """{kernel name: what the library says of it}, and the chosen kernel's name."""
        buffer = ctypes.create_string_buffer(1 << 17)
        arguments = [t.ref if t else None for t in tensors] + [ctypes.byref(options), buffer]
        self.check(self.lib.tilefold_explain(*arguments, ctypes.c_size_t(len(buffer)), None))
        chosen, *lines = buffer.value.decode().splitlines()
        return dict(line.split(": ", 1) for line in lines if ": " in line), chosen

    def best_of_family(self, tensors, causal, family):
        """The row of a family that dispatch would prefer, or None if none of them serves the problem."""
        reasons, _ = self.explain(tensors, self.options(causal))
        best, best_preference = None, 0
        for name, reason in reasons.items():
            eligible = reason.startswith(("chosen, preference ", "could serve, preference "))
            if not eligible or not name.startswith(family + "_"):
                continue
            preference = int(reason.split("preference ")[1].split()[0].rstrip(",;"))
            if preference > best_preference:
                best, best_preference = name, preference
        return best

    def call(self, tensors, causal, kernel):
        """A function that enqueues one forward call on the current stream."""
        options = self.options(causal, kernel)
        refs = [t.ref if t else None for t in tensors]
        needed = ctypes.c_size_t()
        self.check(
            self.lib.tilefold_forward_workspace_bytes(*refs, ctypes.byref(options), ctypes.byref(needed))
        )
        workspace = torch.empty(max(needed.value, 1), dtype=torch.uint8, device="cuda")
        address = workspace.data_ptr() if needed.value else None
        stream = torch.cuda.current_stream().cuda_stream
        forward, option_ref, size = self.lib.tilefold_forward, ctypes.byref(options), needed.value

        def run():
            if forward(*refs, option_ref, address, size, self.capturing or stream) != 0:
                raise RuntimeError(self.lib.tilefold_last_error().decode())

        run.keep = (options, workspace, tensors)
        return run


# ---- Peers -----------------------------------------------------------------------------------------


class Peer:
    def __init__(self, name, run, output, lse=None, kernel=""):
        self.name, self.run, self.output, self.lse, self.kernel = name, run, output, lse, kernel
        self.calls = 1  # of a run
        self.times_ms = []

    def become_graph(self, calls, library):
        """From now on a run is a CUDA graph of so many calls."""
        graph, call = torch.cuda.CUDAGraph(), self.run
        with torch.cuda.graph(graph):
            library.capturing = torch.cuda.current_stream().cuda_stream
            for _ in range(calls):
                call()
        library.capturing = None
        self.run, self.calls = graph.replay, calls


TORCH_BACKENDS = {
    "torch_fa2": SDPBackend.FLASH_ATTENTION,
    "torch_cudnn": SDPBackend.CUDNN_ATTENTION,
    "torch_efficient": SDPBackend.EFFICIENT_ATTENTION,
}
REFERENCES = ("fa3", *TORCH_BACKENDS)  # what tilefold's peers are set in ratio to


class FlashAttention3:
    """A library that registers FlashAttention-3's operator `fwd`, with its upstream arguments, in torch.ops."""

    def __init__(self, library):
        path, _, namespace = library.partition(":")
        torch.ops.load_library(os.path.abspath(path))
        self.forward = getattr(torch.ops, namespace or "flash_attn_3").fwd.default

    def peer(self, q, k, v, causal):
        """On contiguous copies of q, k and v as [B, N, H, D], the layout it is made for. It always writes LSE."""
        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
        out = q.new_empty(*q.shape[:3], v.shape[3])
        peer = Peer("fa3", None, out.transpose(1, 2))
        scale = 1 / math.sqrt(q.shape[3])

        def run():
            # One split, as in FlashAttention's Python interface; the operator itself would choose by size.
            results = self.forward(q, k, v, out=out, softmax_scale=scale, is_causal=causal, num_splits=1)
            peer.lse = results[1]

        peer.run = run
        return peer


def empty_output(q, v):
    """O in the storage order of q."""
    shape = (*q.shape[:3], v.shape[3])
    if q.is_contiguous():
        return q.new_empty(shape)
    return q.new_empty(shape[0], shape[2], shape[1], shape[3]).transpose(1, 2)


def make_peers(arguments, library, fa3, q, k, v, causal):
    peers = []
    dq, dk, dv = Tensor(q), Tensor(k), Tensor(v)
    wanted = [(name, None) for name in arguments.peers if name.startswith("tilefold")]
    wanted += [("tilefold:" + kernel, kernel) for kernel in arguments.kernels]
    for name, kernel in wanted:
        output = empty_output(q, v)
        lse = torch.empty(q.shape[:3], dtype=torch.float32, device="cuda") if arguments.lse else None
        tensors = [dq, dk, dv, Tensor(output), Tensor(lse) if lse is not None else None]
        if kernel is None and name == "tilefold":
            kernel = library.explain(tensors, library.options(causal))[1]
        elif kernel is None:
            kernel = library.best_of_family(tensors, causal, name.split("_", 1)[1])
        if kernel in (None, "none"):
            continue
        try:
            peers.append(Peer(name, library.call(tensors, causal, kernel), output, lse, kernel))
        except RuntimeError as error:
            print(f"# {name}: left out: {error}", flush=True)
    if fa3:
        peer = fa3.peer(q, k, v, causal)
        try:
            peer.run()
            peers.append(peer)
        except RuntimeError as error:
            print(f"# fa3: left out: {str(error).splitlines()[0]}", flush=True)
    for name in arguments.peers:
        if name not in TORCH_BACKENDS:
            continue
        backend = TORCH_BACKENDS[name]
        peer = Peer(name, None, None)

        def run(backend=backend, peer=peer):
            with sdpa_kernel(backend):
                peer.output = torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
                )

        peer.run = run
        try:
            run()
            peers.append(peer)
        except RuntimeError as error:
            print(f"# {name}: left out: {str(error).splitlines()[0]}", flush=True)
    return peers


# ---- Measuring -------------------------------------------------------------------------------------


class Clock:
    """The SM clock in MHz, by NVML where Python has it, else by nvidia-smi."""

    def __init__(self):
        # By name: CUDA may number the GPUs that it sees otherwise.
        gpu = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
            self.read = lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)
            self.read()
        except Exception:
            query = ["nvidia-smi", "-i", gpu, "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
            self.read = lambda: int(subprocess.run(query, capture_output=True, text=True).stdout.split()[0])


def enqueue(peer, launches):
    """Enqueues launches with an event before and after each; the caller synchronises."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(launches + 1)]
    events[0].record()
    for event in events[1:]:
        peer.run()
        event.record()
    return events


def collect(peer, events):
    peer.times_ms += [a.elapsed_time(b) / peer.calls for a, b in zip(events, events[1:])]


def warm_up(peers, seconds):
    end = time.perf_counter() + seconds
    while True:
        for peer in peers:
            peer.run()
        torch.cuda.synchronize()
        if time.perf_counter() >= end:
            return


def measure(peers, arguments, clock):
    """Fills times_ms of every peer; returns the SM clocks seen."""
    clocks = []
    warm_up(peers, arguments.warmup_ms / 1000 if arguments.mode == "sustained" else 0)
    for round_idx in range(arguments.rounds):
        turn = peers[round_idx % len(peers) :] + peers[: round_idx % len(peers)]
        if arguments.mode == "sustained":
            for _ in range(2):
                turn[0].run()  # keeps the GPU busy while the launches after it are enqueued
            pending = [(peer, enqueue(peer, arguments.launches)) for peer in turn]
            clocks.append(clock.read())
            torch.cuda.synchronize()
            for peer, events in pending:
                collect(peer, events)
        else:
            for peer in turn:
                torch.cuda.synchronize()
                time.sleep(arguments.pause_ms / 1000)
                peer.run()  # pays for the pause: the clock ramps up, caches fill
                events = enqueue(peer, arguments.launches)
                clocks.append(clock.read())
                torch.cuda.synchronize()
                collect(peer, events)
    return clocks


def sampled_reference(q, k, v, causal, heads=6, rows=96):
    """Rows of O and LSE in float64: (batch, head, row indices, O, LSE) for some heads."""
    batch, num_heads, seqlen_q, head_dim = q.shape
    seqlen = k.shape[2]
    group = num_heads // k.shape[1]
    generator = torch.Generator().manual_seed(seqlen + head_dim)
    samples = []
    for _ in range(heads):
        b = int(torch.randint(batch, (1,), generator=generator))
        h = int(torch.randint(num_heads, (1,), generator=generator))
        i = torch.randint(seqlen_q, (rows,), generator=generator)
        i[:3] = torch.tensor([0, seqlen_q // 2, seqlen_q - 1])
        i = i.cuda()
        scores = q[b, h, i].double() @ k[b, h // group].double().T / math.sqrt(head_dim)
        if causal:
            scores.masked_fill_(torch.arange(seqlen, device="cuda")[None, :] > i[:, None], -math.inf)
        samples.append((b, h, i, scores.softmax(-1) @ v[b, h // group].double(), scores.logsumexp(-1)))
    return samples


def errors(peer, samples):
    """Relative Frobenius error of O, and the largest relative error of LSE (None without LSE)."""
    difference = norm = 0.0
    lse_error = None
    for b, h, i, o, lse in samples:
        difference += float((peer.output[b, h, i].double() - o).square().sum())
        norm += float(o.square().sum())
        if peer.lse is not None:
            error = ((peer.lse[b, h, i].double() - lse).abs() / lse.abs().clamp_min(1e-3)).max()
            lse_error = max(lse_error or 0.0, float(error))
    return math.sqrt(difference / norm), lse_error


# ---- The table -------------------------------------------------------------------------------------

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
COLUMNS = (
    "peer,pass,dtype,hdim,causal,batch,heads,seqlen,median_ms,tflops,mode,sm_clock_mhz,rel_error,lse_error,kernel,"
    "seqlen_q,heads_kv,hdim_v"
)


def forward_flops(batch, heads, seqlen_q, seqlen, head_dim, head_dim_v, causal):
    return 2 * batch * heads * seqlen_q * seqlen * (head_dim + head_dim_v) * (0.5 if causal else 1.0)


def make_inputs(arguments, dtype, batch, heads, heads_kv, seqlen_q, seqlen, head_dim, head_dim_v):
    def draw(heads, seqlen, head_dim):
        shape = (batch, heads, seqlen, head_dim)
        if arguments.layout == "bnhd":
            return torch.randn(batch, seqlen, heads, head_dim, device="cuda", dtype=dtype).transpose(1, 2)
        return torch.randn(shape, device="cuda", dtype=dtype)

    return draw(heads, seqlen_q, head_dim), draw(heads_kv, seqlen, head_dim), draw(heads_kv, seqlen, head_dim_v)


def run_point(arguments, library, fa3, clock, dtype_name, head_dim, causal, seqlen, seqlen_q, batch, group):
    seqlen_q = seqlen_q or seqlen
    batch = batch or max(arguments.tokens // seqlen, 1)
    heads = arguments.heads or max(arguments.width // head_dim, 1)
    head_dim_v = arguments.hdim_v or head_dim
    heads_kv = max(heads // group, 1)
    q, k, v = make_inputs(
        arguments, DTYPES[dtype_name], batch, heads_kv * group, heads_kv, seqlen_q, seqlen, head_dim, head_dim_v
    )
    heads = heads_kv * group
    peers = make_peers(arguments, library, fa3, q, k, v, causal)
    if not peers:
        return []
    for peer in peers:
        if peer.name.startswith("tilefold") or peer.name == "fa3":
            peer.output.fill_(math.nan)
        peer.run()
    torch.cuda.synchronize()
    samples = sampled_reference(q, k, v, causal)
    peer_errors = {peer.name: errors(peer, samples) for peer in peers}
    if arguments.graph:
        for peer in peers:
            peer.become_graph(arguments.graph, library)
    clocks = measure(peers, arguments, clock)
    flops = forward_flops(batch, heads, seqlen_q, seqlen, head_dim, head_dim_v, causal)
    rows = []
    for peer in peers:
        median = statistics.median(peer.times_ms)
        error, lse_error = peer_errors[peer.name]
        rows.append(
            dict(
                peer=peer.name,
                dtype=dtype_name,
                hdim=head_dim,
                hdim_v=head_dim_v,
                causal=int(causal),
                batch=batch,
                heads=heads,
                heads_kv=heads_kv,
                seqlen=seqlen,
                seqlen_q=seqlen_q,
                ms=median,
                tflops=flops / median / 1e9,
                clock=round(statistics.median(clocks)),
                error=error,
                lse_error=lse_error,
                kernel=peer.kernel,
            )
        )
    return rows


def csv_line(row, mode):
    lse_error = "" if row["lse_error"] is None else f"{row['lse_error']:.2e}"
    return (
        f"{row['peer']},fwd,{row['dtype']},{row['hdim']},{row['causal']},{row['batch']},{row['heads']},"
        f"{row['seqlen']},{row['ms']:.4f},{row['tflops']:.1f},{mode},{row['clock']},{row['error']:.3e},"
        f"{lse_error},{row['kernel']},{row['seqlen_q']},{row['heads_kv']},{row['hdim_v']}"
    )


def print_point(rows):
    first = rows[0]
    by_peer = {row["peer"]: row for row in rows}
    text = f"{first['dtype']} d{first['hdim']:<3} {'c ' if first['causal'] else 'nc'} N={first['seqlen']:<6}"
    few = first["seqlen_q"] < first["seqlen"]
    if few:
        text += f" Nq={first['seqlen_q']:<3} B={first['batch']:<4} H={first['heads']}/{first['heads_kv']}"
    for row in rows:
        text += f" {row['peer'].replace('tilefold', 'tf')} "
        text += f"{row['ms'] * 1000:.1f}" if few else f"{row['tflops']:.0f}"
        if not row["error"] < (4e-4 if row["dtype"] == "fp16" else 3.2e-3):
            text += f" (ERROR {row['error']:.1e})"
        for reference in REFERENCES:
            if row["peer"].startswith("tilefold") and reference in by_peer:
                text += f" /{reference.removeprefix('torch_')} {by_peer[reference]['ms'] / row['ms']:.3f}"
    print(f"{text} @{first['clock']} MHz", flush=True)


def print_summary(all_rows):
    """Geometric mean and least ratio of every tilefold peer to every reference."""
    points = {}
    for row in all_rows:
        key = ("dtype", "hdim", "causal", "seqlen", "seqlen_q", "batch", "heads", "heads_kv")
        points.setdefault(tuple(row[name] for name in key), {})[row["peer"]] = row
    ours = sorted({row["peer"] for row in all_rows if row["peer"].startswith("tilefold")})
    groups = sorted({key[:3] for key in points})
    for peer in ours:
        for reference in REFERENCES:
            for group in groups + [None]:
                ratios = [
                    rows[reference]["ms"] / rows[peer]["ms"]
                    for key, rows in points.items()
                    if peer in rows and reference in rows and group in (None, key[:3])
                ]
                if not ratios:
                    continue
                label = "all points" if group is None else f"{group[0]} d{group[1]} {'c' if group[2] else 'nc'}"
                mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
                print(f"{peer} / {reference}, {label}: geometric mean {mean:.3f}, least {min(ratios):.3f}")


def provenance(arguments):
    properties = torch.cuda.get_device_properties(0)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
    ).stdout.split("\n")[0]
    commit = arguments.commit or subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    command = "compare_torch.py " + shlex.join(sys.argv[1:])
    return (
        f"# {properties.name} ({properties.multi_processor_count} SMs), driver {driver}, CUDA {torch.version.cuda}, "
        f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
        f"{datetime.date.today().isoformat()}, commit {commit or 'unknown'}, command: {command}"
    )


def parse_arguments():
    def names(text):
        return [part for part in text.split(",") if part]

    def numbers(text):
        return [int(part) for part in names(text)]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--lib", required=True, help="libtilefold.so")
    add("--peers", type=names, default=names("tilefold_sm80,tilefold_sm90,torch_fa2,torch_cudnn"),
        help="of tilefold (as dispatch chooses), tilefold_sm80, tilefold_sm90, tilefold_generic, torch_fa2, "
        "torch_cudnn, torch_efficient, fa3 (with --fa3)")  # fmt: skip
    add("--fa3", metavar="FILE[:NAMESPACE]",
        help="library of peer fa3, and its namespace in torch.ops (default: flash_attn_3)")  # fmt: skip
    add("--kernels", type=names, default=[], help="kernel rows by name, as further peers")
    add("--dtype", type=names, default=["fp16"], help="of fp16, bf16")
    add("--hdim", type=numbers, default=[64, 128, 256])
    add("--hdim-v", type=int, default=0, help="columns of v; 0: as many as --hdim")
    add("--causal", type=numbers, default=[0, 1])
    add("--seqlen", type=numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    add("--tokens", type=int, default=16384, help="batch * seqlen")
    add("--width", type=int, default=2048, help="heads * head dim")
    add("--heads", type=int, default=0, help="query heads; 0: width / head dim")
    add("--batch", type=numbers, default=[0], help="0: tokens / seqlen")
    add("--group", type=numbers, default=[1], help="query heads of one K/V head")
    add("--seqlen-q", type=numbers, default=[0], help="query rows; 0: as many as keys")
    add("--layout", choices=["bhnd", "bnhd"], default="bhnd", help="storage of q, k and v")
    add("--lse", action="store_true", help="have tilefold write LSE too")
    add("--mode", choices=["sustained", "burst"], default="sustained")
    add("--warmup-ms", type=float, default=150, help="sustained: warm-up at each point")
    add("--pause-ms", type=float, default=60, help="burst: pause before each peer's turn")
    add("--rounds", type=int, default=12)
    add("--launches", type=int, default=3, help="launches of a peer in each round")
    add("--graph", type=int, default=0,
        help="calls in a CUDA graph that is launched in place of one call, so that host time stays out; 0: none")  # fmt: skip
    add("--out", help="CSV file to write")
    add("--commit", default="", help="commit to name in the CSV where there is no git")
    arguments = parser.parse_args()
    if any(arguments.seqlen_q) and any(arguments.causal):
        parser.error("--seqlen-q is for --causal 0: the peers align a causal mask differently")
    if ("fa3" in arguments.peers) != bool(arguments.fa3):
        parser.error("peer fa3 and --fa3 FILE[:NAMESPACE], its library, go together: give both or neither")
    return arguments


def main():
    arguments = parse_arguments()
    torch.manual_seed(20)
    library = Tilefold(arguments.lib)
    fa3 = FlashAttention3(arguments.fa3) if arguments.fa3 else None
    clock = Clock()
    head = provenance(arguments)
    print(head, flush=True)
    all_rows = []
    axes = (arguments.dtype, arguments.hdim, arguments.causal, arguments.seqlen, arguments.seqlen_q)
    for dtype_name, head_dim, causal, seqlen, seqlen_q, batch, group in itertools.product(
        *axes, arguments.batch, arguments.group
    ):
        rows = run_point(
            arguments, library, fa3, clock, dtype_name, head_dim, bool(causal), seqlen, seqlen_q, batch, group
        )
        if rows:
            print_point(rows)
        all_rows += rows
    print_summary(all_rows)
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            print(head, COLUMNS, sep="\n", file=file)
            for row in all_rows:
                print(csv_line(row, arguments.mode), file=file)


if __name__ == "__main__":
    main()
