"""tilefold.attention: the one call."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Literal, Optional, Tuple, TypeVar, Union, overload

from tilefold import _core

Causal = Union[bool, None, Literal["top_left", "bottom_right"]]
EmptyRowLse = Literal["+inf", "-inf"]
Layout = Literal["BHND", "BNHD"]
WindowAlign = Literal["auto", "top_left", "bottom_right"]
Window = Optional[Tuple[Optional[int], Optional[int]]]
Array = TypeVar("Array")
Function = TypeVar("Function", bound=Callable[..., Any])


def _look_for_dynamo() -> bool:
    """Whether torch.compile is tracing the call.

    PyTorch may be imported at any time; from the first call on that finds it there, its own function
    stands in this one's place.
    """
    global _is_tracing
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    try:
        is_tracing = torch.compiler.is_dynamo_compiling
    except AttributeError:  # something else under PyTorch's name, or PyTorch half imported
        return False
    if is_tracing():
        return True
    _is_tracing = is_tracing
    return False


_is_tracing: Callable[[], bool] = _look_for_dynamo


def _quick(general: Function) -> Function:
    """`general` for calls that nothing traces and that name no stream, by a shorter way.

    PERF: CPython looks up each keyword-only default that a call leaves out, 0.2 us for eleven; the
    extension knows them from here on.
    """
    forward = _core.forward_with_defaults(general.__kwdefaults__)

    @functools.wraps(general)
    def attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
        if _is_tracing() or "stream" in options:
            return general(q, k, v, **options)
        return forward(q, k, v, options)

    return attention  # type: ignore[return-value]


@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: Causal = ...,
    window: Window = ...,
    scale: Optional[float] = ...,
    return_lse: Literal[False] = ...,
    empty_row_lse: EmptyRowLse = ...,
    out: Any = ...,
    stream: Any = ...,
    layout: Layout = ...,
    kernel: Optional[str] = ...,
    window_align: WindowAlign = ...,
    num_threads: int = ...,
) -> Array: ...


@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: Causal = ...,
    window: Window = ...,
    scale: Optional[float] = ...,
    return_lse: Literal[True],
    empty_row_lse: EmptyRowLse = ...,
    out: Any = ...,
    stream: Any = ...,
    layout: Layout = ...,
    kernel: Optional[str] = ...,
    window_align: WindowAlign = ...,
    num_threads: int = ...,
) -> Tuple[Array, Array]: ...


@overload
def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: Causal = ...,
    window: Window = ...,
    scale: Optional[float] = ...,
    return_lse: bool,
    empty_row_lse: EmptyRowLse = ...,
    out: Any = ...,
    stream: Any = ...,
    layout: Layout = ...,
    kernel: Optional[str] = ...,
    window_align: WindowAlign = ...,
    num_threads: int = ...,
) -> Any: ...


@_quick
def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: Causal = False,
    window: Window = None,
    scale: Optional[float] = None,
    return_lse: bool = False,
    empty_row_lse: EmptyRowLse = "+inf",
    out: Any = None,
    stream: Any = None,
    layout: Layout = "BHND",
    kernel: Optional[str] = None,
    window_align: WindowAlign = "auto",
    num_threads: int = 0,
) -> Any:
    """Attention, forward: ``o = softmax(scale * q @ k.T + mask) @ v`` for each batch and head.

    The arrays may be of NumPy, PyTorch, JAX, CuPy or any library with ``__dlpack__()``, on the CPU
    or on a CUDA device; all of one call are of one library and on one device. Inputs are never
    copied: any strides are taken (a unit stride along D, and rows that begin at multiples of 16
    bytes, reach the fast CUDA kernels), 0 included.

    Args:
        q: ``[B, Hq, Nq, D]``, float16, bfloat16 (PyTorch, JAX, CuPy, or NumPy with ml_dtypes) or
            float32.
        k: ``[B, Hkv, Nk, D]``, of q's dtype. Hq is a multiple of Hkv: query head h reads key and
            value head ``h // (Hq // Hkv)``.
        v: ``[B, Hkv, Nk, Dv]``, of q's dtype.
        causal: ``False``; ``"top_left"`` (row i sees key j when ``j <= i``); ``"bottom_right"``
            (when ``j <= i + Nk - Nq``); ``True`` where ``Nq == Nk``, for which the two agree.
        window: ``(left, right)``: row i sees the keys from ``i - left`` to ``i + right``, both
            included, and the causal mask as well; ``None`` (or -1) for a side is unbounded.
        scale: What the products are multiplied by; ``None``: ``1 / sqrt(D)``.
        return_lse: Whether to return the log-sum-exp of each row's visible scores too (natural
            logarithm), float32.
        empty_row_lse: The log-sum-exp of a row that sees no key, ``"+inf"`` or ``"-inf"``. Its
            output is 0 either way.
        out: Where to write, of the output's shape, dtype, device and library; with ``return_lse``
            also a pair ``(o, lse)``. Its memory may not overlap an input's (``torch.compile``'s code
            cannot see that: there all inputs are read before it is written). Not for JAX.
        stream: The CUDA stream to work on; ``None``: the library's current one. PyTorch: a
            ``torch.cuda.Stream`` or an int; CuPy: a ``cupy.cuda.Stream`` or an int; other
            libraries: an int. Ignored on the CPU.
        layout: The order of the axes of q, k, v and o: ``"BHND"`` as above, or ``"BNHD"``.
        kernel: A kernel's name, from :func:`tilefold.kernels`; ``None``: the library chooses.
        window_align: Where the window is centred: ``"top_left"`` (on key i), ``"bottom_right"`` (on
            key ``i + Nk - Nq``), ``"auto"`` (as ``causal`` says; top-left without).
        num_threads: CPU threads; 0: as OpenMP decides.

    Returns:
        ``o``, ``[B, Hq, Nq, Dv]`` (in ``layout``'s order), of the inputs' library, dtype and device;
        where Dv = D its axes lie in memory in the order of q's. With ``return_lse``, ``(o, lse)``,
        lse ``[B, Hq, Nq]``.

    Raises:
        ValueError: An argument is wrong: a shape, an option, an output that overlaps an input.
        TypeError: An argument is no array, or its dtype is not served, or the arrays are of several
            libraries.
        NotImplementedError: The call is sound but nothing here serves it; a gradient is asked for.
        RuntimeError: The device cannot be used, or CUDA refused.
        MemoryError: Memory for scratch could not be had.

    On CUDA the call is asynchronous. It may be captured into a CUDA graph, and traced by
    ``torch.compile(fullgraph=True)`` and ``jax.jit``. Of the transforms of ``torch.func`` it works
    inside ``functionalize``; the others are refused (``vmap``: fold its axis into the batch).

    Source: Dao, "FlashAttention-2" (2023), Algorithm 1.
    """
    run: Any = _core.forward
    if _is_tracing():
        from tilefold._torch import attention as run
    elif stream is not None:
        from tilefold._streams import forward as run
    return run(
        q,
        k,
        v,
        causal,
        window,
        scale,
        return_lse,
        empty_row_lse,
        out,
        stream,
        layout,
        kernel,
        window_align,
        num_threads,
    )
