"""What this build has (devices, kernels), and which kernel a call would run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from tilefold import _core

if TYPE_CHECKING:
    from tilefold._attention import Causal, EmptyRowLse, Layout, Window, WindowAlign


@dataclass(frozen=True)
class Device:
    """A device that arrays may lie on."""

    type: str
    """``"cpu"`` or ``"cuda"``."""
    index: int
    """Its number among those of its type."""
    name: str
    """As the driver calls it; for the CPU, as the system does."""
    compute_capability: Tuple[int, int]
    """``(9, 0)`` for Hopper; ``(0, 0)`` for the CPU."""
    num_multiprocessors: int
    """Streaming multiprocessors; for the CPU, hardware threads."""
    shared_memory_bytes: int
    """Most shared memory of one thread block, bytes; 0 for the CPU."""
    l2_bytes: int
    """Last-level cache, bytes; 0 if unknown."""
    usable: bool
    """Whether this build can run on it."""
    note: str
    """The instruction set in use (CPU), or why the device is not usable."""


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel. 0 means: any (head dims), chosen at run time (blocks), or not applicable."""

    name: str
    """As ``attention(kernel=...)`` and the environment variable TILEFOLD_FORCE_KERNEL take it."""
    backend: str
    """``"cpu"``, ``"sm80"``, ``"sm90"`` or ``"generic"``."""
    dtypes: Tuple[str, ...]
    """Of ``"float32"``, ``"float16"``, ``"bfloat16"``: those that it takes."""
    head_dim: int
    """Largest D of its tile."""
    head_dim_v: int
    """Largest Dv of its tile."""
    block_m: int
    """Query rows of a tile."""
    block_n: int
    """Key rows of a tile."""
    num_stages: int
    """K/V tiles in flight."""
    num_threads: int
    """Threads of a CTA."""
    shared_memory_bytes: int
    """Shared memory of a CTA, bytes."""


@dataclass(frozen=True)
class Explanation:
    """Which kernel a call would run, and why not the others."""

    kernel: Optional[str]
    """The kernel's name; None if nothing here serves the call."""
    reasons: Dict[str, str]
    """Kernel -> why it was or was not chosen, in the order that dispatch prefers them."""
    text: str
    """All of it as the library says it."""

    def __str__(self) -> str:
        return self.text


def devices() -> List[Device]:
    """The devices that arrays may lie on.

    Returns:
        The CPU, then the CUDA devices that the driver shows (none in a build without CUDA), those
        that are of no use here too, with the reason in ``note``.

    Raises:
        RuntimeError: The driver refused to describe a device.
    """
    return [Device(**fields) for fields in _core.devices()]


def kernels() -> List[Kernel]:
    """The kernels of this build.

    Returns:
        A :class:`Kernel` each, in the table's order, whether or not a device here can run it.

    Raises:
        RuntimeError: The library could not describe one.
    """
    found = []
    for fields in _core.kernels():
        dtypes = tuple(name.strip() for name in fields.pop("dtypes").split(","))
        found.append(Kernel(dtypes=dtypes, **fields))
    return found


def explain(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: Causal = False,
    window: Window = None,
    scale: Optional[float] = None,
    return_lse: bool = False,
    empty_row_lse: EmptyRowLse = "+inf",
    layout: Layout = "BHND",
    kernel: Optional[str] = None,
    window_align: WindowAlign = "auto",
    num_threads: int = 0,
) -> Explanation:
    """Which kernel :func:`tilefold.attention` would run for the same arguments; runs nothing.

    Args: as those of :func:`tilefold.attention`, of the same shapes. It has no ``out`` and no
        ``stream``: it takes the output to be one that the call would make.

    Returns:
        An :class:`Explanation`.

    Raises: as :func:`tilefold.attention` for unsound arguments. A call that no kernel serves is no
    error here: ``kernel`` is None then.

    Source: the reasons are the library's own, those of ``tilefold_explain()``.
    """
    text = _core.explain(
        q,
        k,
        v,
        causal,
        window,
        scale,
        return_lse,
        empty_row_lse,
        layout,
        kernel,
        window_align,
        num_threads,
    ).rstrip("\n")
    first, _, rest = text.partition("\n")
    names = {fields["name"] for fields in _core.kernels()}
    reasons = {}
    for line in rest.splitlines():
        name, _, reason = line.partition(": ")
        if name in names:
            reasons[name] = reason
    return Explanation(None if first == "none" else first, reasons, text)
