"""Calls with a `stream` of the caller's."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, ContextManager, Tuple

from tilefold import _core


class _Address:
    """A CUDA stream's address as an object, as the CUDA stream protocol wants it."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __cuda_stream__(self) -> Tuple[int, int]:
        return 0, self.address


def _current(array: Any, stream: Any) -> ContextManager[Any]:
    """A context in which new memory and work of the array's library belong to `stream`.

    Memory that a call allocates must belong to the stream that it works on: both libraries' caching
    allocators hand a freed block to the next taker on the stream that it was allocated for.
    """
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "Tensor") and isinstance(array, torch.Tensor):
        if not array.is_cuda:
            return contextlib.nullcontext()
        if isinstance(stream, int):
            stream = torch.cuda.ExternalStream(stream, device=array.device)
        if not isinstance(stream, torch.cuda.Stream):
            raise TypeError(
                f"stream is a {type(stream).__name__}; accepted for PyTorch: a torch.cuda.Stream, "
                "or a CUDA stream's address as an int"
            )
        return torch.cuda.stream(stream)  # type: ignore[no-any-return]
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        if isinstance(stream, int) and hasattr(cupy.cuda.Stream, "from_external"):
            stream = cupy.cuda.Stream.from_external(_Address(stream))
        elif isinstance(stream, int):  # before CuPy 14
            stream = cupy.cuda.ExternalStream(stream, array.device.id)
        if not isinstance(stream, (cupy.cuda.Stream, cupy.cuda.ExternalStream)):
            raise TypeError(
                f"stream is a {type(stream).__name__}; accepted for CuPy: a cupy.cuda.Stream, or a "
                "CUDA stream's address as an int"
            )
        return stream  # type: ignore[no-any-return]
    return contextlib.nullcontext()


def forward(*arguments: Any) -> Any:
    """_core.forward, with the caller's stream as the current one of the arrays' library."""
    array, stream = arguments[0], arguments[9]
    with _current(array, stream):
        return _core.forward(*arguments)
