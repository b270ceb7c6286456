"""Times tilefold beside PyTorch's attention back ends, and plots TFLOP/s against the length.

    python -m tilefold.bench --out now.csv --plot now.svg         # run, keep, draw
    python -m tilefold.bench --csv a.csv b.csv --plot both.png    # draw what was kept

Running needs PyTorch; drawing needs matplotlib. The CSV's columns are

    peer,pass,dtype,hdim,causal,batch,heads,seqlen,median_ms,tflops

with comment lines of ``#`` before them; ``gflops`` may stand for ``tflops``, a column ``mode`` tells
sustained from burst, further columns are ignored. FLOPs: 4 B H N^2 D, half of it when causal. A line
``# peak: NUMBER ...`` names the ceiling that a plot draws. A run writes that line: what the tensor cores
do at the GPU's highest clock, or, of a processor for which that is not known, a large matrix product.

The peers take turns at every point, so that clocks and heat are the same for all of them; the time of
a launch is the median over the rounds, on CUDA by events. Compare inside one run.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import functools
import math
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, TextIO, Tuple

COLUMNS = ["peer", "pass", "dtype", "hdim", "causal", "batch", "heads", "seqlen", "median_ms", "tflops"]
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
SHORT = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "forward": "fwd",
    "backward": "bwd",
}

# Okabe and Ito's palette, which keeps apart under the common colour blindnesses.
COLOURS = {
    "torch_fa2": "#0072b2",
    "torch_cudnn": "#009e73",
    "torch_efficient": "#cc79a7",
    "torch_math": "#999999",
    "torch_cpu": "#0072b2",
    "torch": "#0072b2",
    "fa3": "#56b4e9",
}
NAMES = {
    "torch_fa2": "PyTorch, FlashAttention-2",
    "torch_cudnn": "PyTorch, cuDNN",
    "torch_efficient": "PyTorch, memory-efficient",
    "torch_math": "PyTorch, unfused",
    "torch_cpu": "PyTorch, CPU",
    "torch": "PyTorch",
    "fa3": "FlashAttention-3",
}
SPARE_COLOURS = ["#e69f00", "#8c564b", "#f0e442", "#000000"]
# tilefold's own lines, where a file holds several: one hue, told apart by marker and shade, the last
# name (the newest kernel family) strongest.
OWN_MARKERS = ["o", "s", "^", "D", "v"]
OWN_COLOURS = ["#d55e00", "#eda15f", "#b58360", "#f3c39b", "#8a3d00"]


@dataclass(frozen=True)
class Point:
    """One measurement: a line of the CSV."""

    peer: str
    direction: str
    """``"fwd"`` or ``"bwd"``."""
    dtype: str
    hdim: int
    causal: bool
    batch: int
    heads: int
    seqlen: int
    median_ms: float
    tflops: float

    def row(self) -> List[str]:
        shape = [self.hdim, int(self.causal), self.batch, self.heads, self.seqlen]
        figures = [f"{self.median_ms:.4f}", f"{self.tflops:.4g}"]
        return [self.peer, self.direction, self.dtype, *map(str, shape), *figures]


@dataclass
class Results:
    points: List[Point]
    comments: List[str]
    peak: Optional[float] = None
    """TFLOP/s of the ceiling; None: not known."""
    peak_name: str = ""


def read(paths: Iterable[Path], mode: str = "sustained") -> Results:
    """Measurements of several files, in order; of a file with both modes, those of `mode`.

    ValueError names the file and what it lacks.
    """
    results = Results([], [])
    for path in paths:
        try:
            with path.open(newline="", encoding="utf-8") as file:
                lines = file.read().splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: it is no text in UTF-8") from error
        comments = [line for line in lines if line.startswith("#")]
        table = csv.DictReader(line for line in lines if line.strip() and not line.startswith("#"))
        try:
            columns, rows = list(table.fieldnames or []), list(table)
        except csv.Error as error:
            raise ValueError(f"{path}: it is no CSV: {error}") from error
        rate, factor = ("gflops", 1e-3) if "gflops" in columns else ("tflops", 1.0)
        missing = [name for name in COLUMNS if name not in (*columns, *(["tflops"] * (factor < 1)))]
        if missing:
            raise ValueError(f"{path}: it has no column {', '.join(missing)}")
        for number, fields in enumerate(rows, 1):
            if fields.get("mode") not in (None, "", mode):
                continue
            try:
                results.points.append(
                    Point(
                        fields["peer"],
                        SHORT.get(fields["pass"], fields["pass"]),
                        SHORT.get(fields["dtype"], fields["dtype"]),
                        int(fields["hdim"]),
                        fields["causal"] not in ("0", "False", "false"),
                        int(fields["batch"]),
                        int(fields["heads"]),
                        int(fields["seqlen"]),
                        float(fields["median_ms"]),
                        float(fields[rate]) * factor,
                    )
                )
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}: line {number} of the table: {error}") from error
        results.comments += comments
        for comment in comments:
            found = re.match(r"#\s*peak:\s*([0-9]+(?:\.[0-9]*)?)\s*(?:TFLOP/s)?\s*(.*)", comment)
            if found:
                results.peak, results.peak_name = float(found.group(1)), found.group(2).strip(" ,()")
    return results


def write(results: Results, file: TextIO) -> None:
    for comment in results.comments:
        file.write(comment + "\n")
    table = csv.writer(file, lineterminator="\n")
    table.writerow(COLUMNS)
    for point in results.points:
        table.writerow(point.row())


# ---- running ---------------------------------------------------------------------------------------


def _flops(batch: int, heads: int, rows: int, head_dim: int, causal: bool) -> float:
    return 4.0 * batch * heads * rows * rows * head_dim * (0.5 if causal else 1.0)


def _peers(torch: Any, on_cuda: bool, wanted: Sequence[str]) -> Dict[str, Callable[..., Any]]:
    import tilefold
    from torch.nn.attention import SDPBackend, sdpa_kernel

    sdpa = torch.nn.functional.scaled_dot_product_attention

    def through(backend: Any) -> Callable[..., Any]:
        def call(q: Any, k: Any, v: Any, causal: bool) -> Any:
            with sdpa_kernel(backend):
                return sdpa(q, k, v, is_causal=causal)

        return call

    def own(q: Any, k: Any, v: Any, causal: bool) -> Any:
        return tilefold.attention(q, k, v, causal=causal)

    every: Dict[str, Callable[..., Any]] = {"tilefold": own}
    if on_cuda:
        every["torch_fa2"] = through(SDPBackend.FLASH_ATTENTION)
        every["torch_cudnn"] = through(SDPBackend.CUDNN_ATTENTION)
        every["torch_efficient"] = through(SDPBackend.EFFICIENT_ATTENTION)
    else:
        every["torch_cpu"] = lambda q, k, v, causal: sdpa(q, k, v, is_causal=causal)
    every["torch_math"] = through(SDPBackend.MATH)
    unknown = [name for name in wanted if name not in every]
    if unknown:
        raise ValueError(f"no peer named {', '.join(unknown)}; on this device: {', '.join(every)}")
    default = [name for name in every if name not in ("torch_math", "torch_efficient")]
    return {name: every[name] for name in (wanted or default)}


def _timer(torch: Any, on_cuda: bool) -> Callable[[Callable[[], Any]], float]:
    """Milliseconds of one call."""
    if not on_cuda:

        def on_host(call: Callable[[], Any]) -> float:
            begin = time.perf_counter()
            call()
            return (time.perf_counter() - begin) * 1e3

        return on_host

    def on_device(call: Callable[[], Any]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        launches = 3  # so that the launch itself hides behind the work
        begin.record()
        for _ in range(launches):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / launches

    return on_device


def _median_in_turns(
    calls: Dict[str, Callable[[], Any]], timer: Callable[[Callable[[], Any]], float], seconds: float
) -> Dict[str, float]:
    for call in calls.values():
        timer(call)
    times: Dict[str, List[float]] = {name: [] for name in calls}
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(next(iter(times.values()))) < 5:
        for name, call in calls.items():
            times[name].append(timer(call))
    return {name: statistics.median(all_of_one) for name, all_of_one in times.items()}


# FLOP per clock and multiprocessor of 16-bit products added up in float32 (NVIDIA's white papers of the
# two architectures).
TENSOR_FLOPS = {(8, 0): 2048, (9, 0): 4096}


def _tensor_peak(torch: Any, device: str) -> Optional[Tuple[float, str]]:
    """TFLOP/s of the tensor cores at the GPU's highest clock, and what that is; None where it is not known."""
    properties = torch.cuda.get_device_properties(device)
    flops = TENSOR_FLOPS.get((properties.major, properties.minor))
    query = ["nvidia-smi", "--query-gpu=name,clocks.max.sm", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    clocks = [int(line.rsplit(",", 1)[1]) for line in listed if line.startswith(properties.name + ",")]
    if flops is None or not clocks:
        return None
    peak = properties.multi_processor_count * flops * clocks[0] * 1e-6
    return peak, f"the tensor cores at {clocks[0]} MHz"


def _peak(torch: Any, device: str, dtype: Any, seconds: float) -> Tuple[float, str]:
    """TFLOP/s that nothing passes, where it is known; else, of a large matrix product."""
    on_cuda = device.startswith("cuda")
    if on_cuda and dtype is not torch.float32:
        known = _tensor_peak(torch, device)
        if known is not None:
            return known
    size = 8192 if on_cuda else 1024
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    timer = _timer(torch, on_cuda)
    median = _median_in_turns({"product": lambda: a @ b}, timer, seconds)["product"]
    return 2.0 * size**3 / median * 1e-9, f"torch.matmul {size} x {size} x {size}"


def _use_cuda(torch: Any, device: str) -> None:
    """Makes `device` the current one: events and streams are the current device's."""
    if not torch.cuda.is_available():
        raise ValueError(f"--device {device}, but PyTorch sees no CUDA device; accepted here: cpu")
    index = int(device.partition(":")[2] or 0)
    if index >= torch.cuda.device_count():
        names = ", ".join(f"cuda:{i}" for i in range(torch.cuda.device_count()))
        raise ValueError(f"--device {device}, but PyTorch sees no such device; accepted here: cpu, {names}")
    torch.cuda.set_device(index)


def _inputs(torch: Any, shape: Tuple[int, ...], device: str, dtype: Any) -> List[Any]:
    try:
        return [torch.randn(shape, device=device).to(dtype) for _ in range(3)]
    except RuntimeError as error:  # PyTorch's word for memory that cannot be had
        reason = str(error).splitlines()[0]
        raise ValueError(f"B, H, N, D = {', '.join(map(str, shape))}: {reason}") from error


def run(options: argparse.Namespace) -> Results:
    import torch

    import tilefold

    on_cuda = options.device.startswith("cuda")
    if on_cuda:
        _use_cuda(torch, options.device)
    dtype = getattr(torch, DTYPES[options.dtype])
    timer = _timer(torch, on_cuda)
    where = torch.cuda.get_device_name() if on_cuda else tilefold.devices()[0].name
    threads = "" if on_cuda else f", {torch.get_num_threads()} threads"
    peers = _peers(torch, on_cuda, options.peers)
    peak, peak_name = _peak(torch, options.device, dtype, options.seconds)
    command = shlex.join(["python", "-m", "tilefold.bench", *sys.argv[1:]])
    results = Results(
        [],
        [
            f"# {where}{threads}, {datetime.date.today()}, tilefold {tilefold.__version__}, "
            f"PyTorch {torch.__version__}, Python {platform.python_version()}",
            f"# {command}",
            f"# peak: {peak:.1f} TFLOP/s ({peak_name}, {options.dtype})"
            if peak >= 10
            else f"# peak: {peak:.4f} TFLOP/s ({peak_name}, {options.dtype})",
        ],
        peak,
        f"{peak_name}, {options.dtype}",
    )
    print(*results.comments, sep="\n")
    with torch.no_grad():
        for head_dim in options.head_dims:
            for causal in (False, True):
                for rows in options.rows:
                    batch = max(1, options.tokens // rows)
                    heads = max(1, options.width // head_dim)
                    shape = (batch, heads, rows, head_dim)
                    q, k, v = _inputs(torch, shape, options.device, dtype)
                    calls: Dict[str, Callable[[], Any]] = {}
                    for name, peer in peers.items():
                        try:
                            peer(q, k, v, causal)
                        except RuntimeError as error:
                            reason = str(error).splitlines()[0]
                            print(f"# {name} cannot run D = {head_dim}: {reason}")
                            continue
                        calls[name] = functools.partial(peer, q, k, v, causal)
                    if not calls:
                        continue
                    medians = _median_in_turns(calls, timer, options.seconds)
                    flops = _flops(batch, heads, rows, head_dim, causal)
                    for name, median in medians.items():
                        point = Point(
                            name,
                            "fwd",
                            options.dtype,
                            head_dim,
                            causal,
                            batch,
                            heads,
                            rows,
                            median,
                            flops / median * 1e-9,
                        )
                        results.points.append(point)
                        print(",".join(point.row()), flush=True)
    return results


# ---- drawing ---------------------------------------------------------------------------------------


def _style(peer: str, peers: Sequence[str]) -> Tuple[str, str, str, float]:
    """(colour, marker, label, line width)"""
    if peer.startswith("tilefold"):
        own = [name for name in peers if name.startswith("tilefold")]
        place = (len(own) - 1 - own.index(peer)) % len(OWN_MARKERS)
        return OWN_COLOURS[place], OWN_MARKERS[place], peer.replace("_", " "), 2.2
    others = [name for name in peers if name not in COLOURS and not name.startswith("tilefold")]
    spare = SPARE_COLOURS[others.index(peer) % len(SPARE_COLOURS)] if peer in others else ""
    return COLOURS.get(peer, spare), ".", NAMES.get(peer, peer), 1.4


def plot(results: Results, path: Path, direction: str = "fwd", dtype: str = "fp16", title: str = "") -> None:
    """One panel for each head dim (across) and mask (down), a line for each library."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullLocator

    points = [p for p in results.points if p.direction == direction and p.dtype == dtype]
    if not points:
        have = sorted({(p.direction, p.dtype) for p in results.points})
        there = ", ".join(" ".join(kind) for kind in have) or "none at all"
        raise ValueError(f"no points of {direction} {dtype}; there are: {there}")
    head_dims = sorted({p.hdim for p in points})
    masks = sorted({p.causal for p in points})
    peers = sorted({p.peer for p in points}, key=lambda name: (not name.startswith("tilefold"), name))
    lengths = sorted({p.seqlen for p in points})
    top = max([p.tflops for p in points] + ([results.peak] if results.peak else []))
    unit, factor = ("TFLOP/s", 1.0) if top >= 1 else ("GFLOP/s", 1000.0)
    figure, panels = pyplot.subplots(
        len(masks),
        len(head_dims),
        figsize=(3.4 * len(head_dims) + 0.8, 2.7 * len(masks) + 0.9),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    handles: Dict[str, Any] = {}
    for row, causal in enumerate(masks):
        for column, head_dim in enumerate(head_dims):
            panel = panels[row][column]
            for peer in peers:
                colour, marker, label, width = _style(peer, peers)
                line = sorted(
                    (p.seqlen, p.tflops * factor)
                    for p in points
                    if (p.peer, p.causal, p.hdim) == (peer, causal, head_dim)
                )
                if line:
                    (handles[label],) = panel.plot(
                        *zip(*line), color=colour, marker=marker, markersize=5, linewidth=width
                    )
            if results.peak:
                drawn = panel.axhline(results.peak * factor, color="#555555", linestyle=(0, (4, 3)), lw=1)
                handles.setdefault(f"peak: {results.peak_name or 'measured'}", drawn)
            panel.set_xscale("log", base=2)
            panel.set_xticks(lengths)
            panel.xaxis.set_minor_locator(NullLocator())
            panel.xaxis.set_major_formatter(
                FuncFormatter(lambda n, _: f"{n / 1024:g}k" if n >= 1024 else f"{n:g}")
            )
            panel.set_ylim(0, top * factor * 1.06)
            panel.grid(color="#e5e7eb", linewidth=0.7)
            panel.set_axisbelow(True)
            for side in ("top", "right"):
                panel.spines[side].set_visible(False)
            panel.set_title(f"D = {head_dim}, {'causal' if causal else 'full'}", fontsize=10, loc="left")
            if column == 0:
                panel.set_ylabel(unit)
            if row == len(masks) - 1:
                panel.set_xlabel("N")
    kinds = {"fwd": "forward", "bwd": "backward"}
    figure.suptitle(title or f"Attention, {kinds.get(direction, direction)}, {dtype}", x=0.01, ha="left")
    columns = min(4, len(handles))
    rows_of_legend = -(-len(handles) // columns)
    height = figure.get_size_inches()[1]
    figure.tight_layout(rect=(0, 0.24 * rows_of_legend / height + 0.02, 1, 1))
    figure.legend(
        list(handles.values()), list(handles), loc="lower center", ncols=columns, frameon=False, fontsize=9
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=144, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _integers(text: str) -> List[int]:
    return [_count(part.strip()) for part in text.split(",") if part.strip()] or [_count(text)]


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,12}", text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: whole numbers of 1 and more")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: a number above 0")
    return value


def _device(text: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:[0-9]{1,3})?", text):
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: cpu, cuda, cuda:0 and so on")
    return text


def _picture(text: str) -> Path:
    if Path(text).suffix not in (".svg", ".png", ".pdf"):
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: a name in .svg, .png or .pdf")
    return Path(text)


def _check_writable(option: str, path: Path) -> None:
    """Raises ValueError where a file cannot be written, before a run takes its time."""
    is_new = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise ValueError(f"{option} {path} cannot be written: {error.strerror}") from error


def _names(text: str) -> List[str]:
    return [part for part in text.split(",") if part]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m tilefold.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--csv", type=Path, nargs="+", default=[], help="draw these instead of running")
    made.add_argument("--plot", type=_picture, help="picture to write: .svg, .png or .pdf")
    made.add_argument(
        "--mode", default="sustained", choices=["sustained", "burst"], help="of a CSV with that column"
    )
    made.add_argument("--title", default="", help="the picture's title")
    made.add_argument("--peak", type=_positive, help="ceiling to draw, TFLOP/s, in place of the measured one")
    made.add_argument("--peak-name", default="", help="what that ceiling is")
    made.add_argument("--dtype", choices=list(DTYPES), help="default fp16 on CUDA, fp32 on the CPU")
    made.add_argument(
        "--pass", dest="direction", default="fwd", choices=["fwd", "bwd"], help="which pass to draw"
    )
    run_options = made.add_argument_group("running")
    run_options.add_argument("--out", type=Path, help="CSV to write")
    run_options.add_argument("--device", type=_device, help="cpu, cuda, cuda:N; default cuda if there is one")
    run_options.add_argument("--peers", type=_names, default=[], help="comma-separated; default: the fused ones")
    run_options.add_argument("--head-dims", type=_integers, help="default 64,128,256; on the CPU 64,128")
    run_options.add_argument("--rows", type=_integers, help="N; default 512 to 16384, on the CPU 256 to 2048")
    run_options.add_argument("--tokens", type=_count, help="B * N; default 16384, on the CPU 2048")
    run_options.add_argument("--width", type=_count, help="H * D; default 2048, on the CPU 512")
    run_options.add_argument("--seconds", type=_positive, default=0.3, help="for each point, all peers together")
    return made


def main(arguments: Optional[Sequence[str]] = None) -> int:
    made = parser()
    options = made.parse_args(arguments)
    if options.csv and not (options.plot or options.out):
        made.error("argument --csv: there is nothing to do with it; accepted: with --plot, --out or both")
    try:
        for option, path in (("--out", options.out), ("--plot", options.plot)):
            if path is not None:
                _check_writable(option, path)
        if options.csv:
            results = read(options.csv, options.mode)
            found = [p.dtype for p in results.points if p.direction == options.direction]
            options.dtype = options.dtype or (found[0] if found else "fp16")
        else:
            import torch

            if options.plot:
                import matplotlib  # noqa: F401  (where it is missing, that is said before a run)

            options.device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
            on_cuda = options.device.startswith("cuda")
            options.dtype = options.dtype or ("fp16" if on_cuda else "fp32")
            options.head_dims = options.head_dims or ([64, 128, 256] if on_cuda else [64, 128])
            lengths = [512 << i for i in range(6)] if on_cuda else [256 << i for i in range(4)]
            options.rows = options.rows or lengths
            options.tokens = options.tokens or (16384 if on_cuda else 2048)
            options.width = options.width or (2048 if on_cuda else 512)
            results = run(options)
        if options.peak is not None:
            results.peak, results.peak_name = options.peak, options.peak_name
        if options.out:
            with options.out.open("w", newline="", encoding="utf-8") as file:
                write(results, file)
        if options.plot:
            plot(results, options.plot, options.direction, options.dtype, options.title)
            print(options.plot)
    except ImportError as error:
        wanted = {"torch": "; running needs PyTorch", "matplotlib": "; drawing needs matplotlib"}
        needs = wanted.get((error.name or "").partition(".")[0], "")
        made.exit(1, f"tilefold.bench: {error}{needs}\n")
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        made.exit(1, f"tilefold.bench: {said}\n")
    except ValueError as error:
        made.exit(1, f"tilefold.bench: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
