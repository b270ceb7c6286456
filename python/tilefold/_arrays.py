"""How the arrays of each library are read, and how new ones are made."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Tuple

Shape = Tuple[int, ...]

_DLPACK_VERSION = (1, 1)


@dataclass(frozen=True)
class Adapter:
    """One array type. The extension module calls `adapt` once per type and keeps the answer."""

    library: str
    export: Callable[[Any, Any], Any]
    """(array, stream) -> DLPack capsule."""
    reread: Callable[[str, Any, Any], Any]
    """(argument's name, array, why `export` failed, or None where it gave no memory) -> an array to
    export in its place, or raises."""
    empty_like: Callable[[Any], Any]
    empty: Callable[[Any, Shape], Any]
    empty_float32: Callable[[Any, Shape], Any]
    current_stream: Callable[[Any, Any], int]
    """(array, the caller's `stream`) -> the CUDA stream to work on."""
    redirect: Optional[Callable[..., Any]] = None
    """Called with forward()'s arguments in its place."""
    gradients_on: Optional[Callable[[], bool]] = None
    num_modes: Optional[Callable[[], int]] = None
    """How many of PyTorch's dispatch modes are on; None for arrays whose calls they see anyway."""
    is_tracing: Optional[Callable[[], bool]] = None
    """Whether torch.jit.trace is recording."""
    native: Optional[Tuple[int, int, int]] = None
    """Addresses of the functions behind `gradients_on`, `num_modes` and, but for its result, behind
    `is_tracing`; 0: unknown."""
    intercepted: Optional[Callable[..., Any]] = None
    """Called with forward()'s arguments in its place where a mode or a trace is on."""
    forward_ad: Optional[Dict[str, Any]] = None
    """A module's names: its `_current_level` is below 0 unless forward-mode AD is on."""
    refuse_tangents: Optional[Callable[..., None]] = None
    """Raises for an array of a call that carries a tangent of forward-mode AD."""
    in_inference_mode: Optional[Callable[[], bool]] = None
    wrote: Optional[Callable[[Any], None]] = None
    """Told of a caller's array, no inference tensor, once it has been written."""
    use_exchange_api: bool = False
    empty_strided_cuda: Optional[Callable[[Shape, Shape, Any], Any]] = None
    """(shape, strides, dtype) -> array on the current CUDA device: quicker than `empty_like`."""
    current_cuda_device: Optional[Callable[[], int]] = None
    """None where there is one device only."""
    dtypes: Optional[Tuple[Any, Any, Any]] = None
    """float16, bfloat16, float32."""


def adapt(kind: type) -> Adapter:
    """The adapter of an array type; TypeError for a type whose objects are no arrays."""
    library = str(kind.__module__).partition(".")[0]
    torch: Any = sys.modules.get("torch")
    if issubclass(kind, getattr(torch, "Tensor", ())):
        return _torch_adapter(torch, kind)
    numpy: Any = sys.modules.get("numpy")
    if issubclass(kind, getattr(numpy, "ndarray", ())):
        return _numpy_adapter(numpy, kind)
    jax: Any = sys.modules.get("jax")
    if hasattr(jax, "Array") and issubclass(kind, (jax.Array, jax.core.Tracer)):
        return _jax_adapter()
    if library == "cupy" and kind.__name__ == "ndarray":
        return _cupy_adapter(sys.modules["cupy"])
    if hasattr(kind, "__dlpack__") and hasattr(kind, "__dlpack_device__"):
        return _dlpack_adapter(kind, library)
    raise TypeError(
        f"it is a {kind.__module__}.{kind.__qualname__}; accepted: an array of NumPy, PyTorch, JAX, "
        "CuPy, or of any library with __dlpack__()"
    )


def _raise(name: str, array: Any, reason: BaseException) -> Any:
    raise TypeError(f"{name}: it cannot be exported through DLPack: {reason}") from reason


def _no_stream(array: Any, stream: Any) -> int:
    return 0


def _native_questions(torch: Any) -> Tuple[int, int, int]:
    """Addresses in PyTorch's libraries, by the names that their C++ functions have there; no copy of
    a library is loaded that is not loaded already."""

    def address(library: str, name: str) -> int:
        path = os.path.join(os.path.dirname(torch.__file__), "lib", library)
        try:
            function = getattr(ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY), name)
        except (AttributeError, OSError, TypeError):
            return 0
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    return (
        address("libc10.so", "_ZN3c108GradMode10is_enabledEv"),
        address("libc10.so", "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv"),
        address("libtorch_cpu.so", "_ZN5torch3jit6tracer15getTracingStateEv"),
    )


def _torch_adapter(torch: Any, kind: type) -> Adapter:
    plain = kind in (torch.Tensor, torch.nn.Parameter)

    def export(array: Any, stream: Any) -> Any:
        return torch._C._to_dlpack(array)

    def reread(name: str, array: Any, reason: BaseException) -> Any:
        what = f"a {array.layout} tensor on device {array.device}"
        if torch._C._functorch.is_functorch_wrapped_tensor(array):
            what = "a tensor inside a torch.func transform"
            if torch._C._functorch.is_batchedtensor(array):
                what += " (fold torch.vmap's axis into the batch)"
        raise TypeError(
            f"{name}: it is {what}, which has no memory to read; accepted: a dense tensor on the CPU "
            "or a CUDA device"
        ) from reason

    def redirect(*arguments: Any) -> Any:
        from tilefold import _torch

        return _torch.attention(*arguments)

    def refuse_tangents(*tensors: Any) -> None:
        from tilefold import _torch

        _torch.refuse_tangents(*tensors)

    def current_stream(array: Any, stream: Any) -> int:
        return int(torch.cuda.current_stream(array.device).cuda_stream)

    def is_tracing() -> bool:
        return torch._C._get_tracing_state() is not None

    def increment_by_a_view(array: Any) -> None:  # PyTorch before 2.1
        array.detach()[:0].zero_()

    from torch.autograd import forward_ad

    increment_version = getattr(torch.autograd.graph, "increment_version", increment_by_a_view)
    # What PyTorch's own generated code allocates with; a subclass goes through the dispatcher.
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    empty_strided_cuda = getattr(guards, "_empty_strided_cuda", None) if plain else None
    several = torch.cuda.is_available() and torch.cuda.device_count() > 1
    return Adapter(
        library="torch",
        export=export,
        reread=reread,
        empty_like=torch.empty_like,
        empty=lambda like, shape: like.new_empty(shape),
        empty_float32=lambda like, shape: torch.empty(
            shape, dtype=torch.float32, device=like.device
        ),
        current_stream=current_stream,
        # Subclasses (fake tensors, wrappers) go through the registered operator, which they know
        # how to intercept.
        redirect=None if plain else redirect,
        gradients_on=torch.is_grad_enabled,
        # What records or watches operators sees a plain tensor's call as one, too.
        num_modes=torch._C._len_torch_dispatch_stack if plain else None,
        is_tracing=is_tracing if plain else None,
        native=_native_questions(torch),
        intercepted=redirect if plain else None,
        forward_ad=vars(forward_ad),
        refuse_tangents=refuse_tangents,
        in_inference_mode=torch.is_inference_mode_enabled,
        # A later backward pass that has kept the array's old values sees that they are gone.
        wrote=increment_version,
        use_exchange_api=True,
        empty_strided_cuda=empty_strided_cuda,
        current_cuda_device=torch._C._cuda_getDevice if several else None,
        dtypes=(torch.float16, torch.bfloat16, torch.float32),
    )


class _SameMemory:
    """An array's memory under NumPy's interface, without the mark that it is read-only."""

    def __init__(self, array: Any) -> None:
        self.owner = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def _writable(numpy: Any, array: Any) -> Any:
    return numpy.asarray(_SameMemory(array))


def _numpy_adapter(numpy: Any, kind: type) -> Adapter:
    if issubclass(kind, numpy.ma.MaskedArray):
        raise TypeError(
            "it is a numpy.ma.MaskedArray, whose mask would be ignored; accepted: a numpy.ndarray"
        )

    def export(array: Any, stream: Any) -> Any:
        try:
            return array.__dlpack__(max_version=_DLPACK_VERSION)
        except TypeError:  # before NumPy 2.1
            return array.__dlpack__()

    def reread(name: str, array: Any, reason: BaseException) -> Any:
        # ml_dtypes' bfloat16 is an extension type that NumPy does not export: the same bits as
        # integers do, and the caller puts the dtype right.
        if "stride" in str(reason):
            return _raise(name, array, reason)
        is_bfloat16 = array.dtype.name == "bfloat16"
        if not array.flags.writeable and (is_bfloat16 or array.dtype in served):
            # Before NumPy 2.1 a read-only array (one of numpy.broadcast_to, too) is not exported.
            if name.startswith("out"):
                raise ValueError(f"{name}: it is read-only; an output is written") from reason
            return _writable(numpy, array.view(numpy.uint16) if is_bfloat16 else array)
        if is_bfloat16:
            return array.view(numpy.uint16)
        raise TypeError(
            f"{name}: its dtype is {array.dtype}; accepted: float16, bfloat16 (of ml_dtypes), float32"
        ) from reason

    served = (numpy.dtype(numpy.float16), numpy.dtype(numpy.float32))
    if kind is numpy.ndarray:
        empty_like = numpy.empty_like
    else:  # a subclass gives its own kind of memory and attributes: results are plain arrays

        def empty_like(like: Any) -> Any:
            return numpy.empty_like(like, subok=False)

    return Adapter(
        library="numpy",
        export=export,
        reread=reread,
        empty_like=empty_like,
        empty=lambda like, shape: numpy.empty(shape, like.dtype),
        empty_float32=lambda like, shape: numpy.empty(shape, numpy.float32),
        current_stream=_no_stream,
    )


def _jax_adapter() -> Adapter:
    def redirect(
        q: Any,
        k: Any,
        v: Any,
        causal: Any,
        window: Any,
        scale: Any,
        return_lse: bool,
        empty_row_lse: Any,
        out: Any,
        stream: Any,
        layout: Any,
        kernel: Any,
        window_align: Any,
        num_threads: int,
    ) -> Any:
        if out is not None:
            raise TypeError("out: JAX arrays cannot be written; accepted for them: None")
        if stream is not None:
            raise TypeError("stream: JAX chooses its own; accepted for JAX arrays: None")
        from tilefold import jax as tilefold_jax

        return tilefold_jax.attention(
            q,
            k,
            v,
            causal=causal,
            window=window,
            scale=scale,
            return_lse=return_lse,
            empty_row_lse=empty_row_lse,
            layout=layout,
            kernel=kernel,
            window_align=window_align,
            num_threads=num_threads,
        )

    def export(array: Any, stream: Any) -> Any:
        return array.__dlpack__()

    def never(*arguments: Any) -> Any:
        raise AssertionError("JAX arrays are made by XLA")

    return Adapter(
        library="jax",
        export=export,
        reread=_raise,
        empty_like=never,
        empty=never,
        empty_float32=never,
        current_stream=_no_stream,
        redirect=redirect,
    )


def _cupy_adapter(cupy: Any) -> Adapter:
    def export(array: Any, stream: Any) -> Any:
        # -1: no waiting between streams; the work goes to CuPy's own current stream.
        return array.__dlpack__(stream=-1)

    def reread(name: str, array: Any, reason: BaseException) -> Any:
        if array.dtype.name == "bfloat16":
            return array.view(cupy.uint16)
        return _raise(name, array, reason)

    def on_device(make: Callable[[Any, Shape], Any]) -> Callable[[Any, Shape], Any]:
        def made(like: Any, shape: Shape) -> Any:
            with like.device:
                return make(like, shape)

        return made

    def empty_like(like: Any) -> Any:
        with like.device:
            return cupy.empty_like(like)

    def current_stream(array: Any, stream: Any) -> int:
        return int(cupy.cuda.get_current_stream(array.device.id).ptr)

    return Adapter(
        library="cupy",
        export=export,
        reread=reread,
        empty_like=empty_like,
        empty=on_device(lambda like, shape: cupy.empty(shape, like.dtype)),
        empty_float32=on_device(lambda like, shape: cupy.empty(shape, cupy.float32)),
        current_stream=current_stream,
    )


_CPU_DEVICES = (1, 3)  # DLPack: kDLCPU, kDLCUDAHost


def _dlpack_adapter(kind: type, library: str) -> Adapter:
    """Any other library. New arrays come from its array-API namespace, where it has one."""

    def export(array: Any, stream: Any) -> Any:
        on_cpu = int(array.__dlpack_device__()[0]) in _CPU_DEVICES
        # DLPack calls the legacy default stream 1; its address is 0.
        wanted = {} if on_cpu else {"stream": 1 if stream == 0 else stream}
        try:
            return array.__dlpack__(max_version=_DLPACK_VERSION, **wanted)
        except TypeError:  # before DLPack 1.0's Python specification
            return array.__dlpack__(**wanted)

    def current_stream(array: Any, stream: Any) -> int:
        if stream is None:
            raise ValueError(
                f"stream is None, but the current stream of {library} is not known here; pass the "
                "CUDA stream to work on, as an int"
            )
        if not hasattr(stream, "__index__"):
            raise TypeError(
                f"stream is a {type(stream).__name__}; accepted for arrays of {library}: a CUDA "
                "stream's address as an int"
            )
        return int(stream)

    def namespace(array: Any) -> Any:
        if not hasattr(array, "__array_namespace__"):
            raise TypeError(
                f"q is a {kind.__module__}.{kind.__qualname__}, which has no __array_namespace__() "
                "to make the result with; pass out= to tilefold.attention"
            )
        return array.__array_namespace__()

    def empty(like: Any, shape: Shape) -> Any:
        return namespace(like).empty(tuple(shape), dtype=like.dtype, device=like.device)

    def empty_like(like: Any) -> Any:
        return namespace(like).empty_like(like)

    def empty_float32(like: Any, shape: Shape) -> Any:
        xp = namespace(like)
        return xp.empty(tuple(shape), dtype=xp.float32, device=like.device)

    return Adapter(
        library=library,
        export=export,
        reread=_raise,
        empty_like=empty_like,
        empty=empty,
        empty_float32=empty_float32,
        current_stream=current_stream,
    )
