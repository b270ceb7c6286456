"""PyTorch's view of tilefold: operators that torch.compile, fake tensors and export understand."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

import torch
from torch.autograd import forward_ad

from tilefold import _core

_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, str causal, SymInt? window_left, SymInt? window_right, "
    "float? scale, str empty_row_lse, str layout, str? kernel, str window_align, int num_threads"
)

_library = torch.library.Library("tilefold", "DEF")
_library.define(f"attention({_ARGUMENTS}) -> Tensor")
_library.define(f"attention_lse({_ARGUMENTS}) -> (Tensor, Tensor)")


def _check_gradients(*tensors: torch.Tensor) -> None:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        name = next(n for n, tensor in zip("qkv", tensors) if tensor.requires_grad)
        raise NotImplementedError(
            f"{name}: it requires a gradient, and this version has no backward pass; call under "
            f"torch.no_grad() or torch.inference_mode(), or pass {name}.detach()"
        )
    if forward_ad._current_level >= 0:
        refuse_tangents(*tensors)


def refuse_tangents(*arrays: Any) -> None:
    """Raises if one of q, k, v, out carries a tangent of forward-mode AD."""
    if not torch._C._is_fwd_grad_enabled():
        return
    out = arrays[3] if len(arrays) > 3 else None
    named = [*zip("qkv", arrays), *(("out", o) for o in (out if isinstance(out, tuple) else (out,)))]
    for name, array in named:
        if isinstance(array, torch.Tensor) and forward_ad.unpack_dual(array).tangent is not None:
            raise NotImplementedError(
                f"{name}: it has a tangent of forward-mode AD, and this version computes no "
                "derivatives; pass its primal (torch.autograd.forward_ad.unpack_dual)"
            )


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its subclass, which would lead back to the operator."""
    return tensor if type(tensor) is torch.Tensor else tensor.as_subclass(torch.Tensor)


def _causal(name: str) -> Any:
    return {"none": False, "square": True}.get(name, name)


def _run(
    return_lse: bool,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: str,
    window_left: Optional[int],
    window_right: Optional[int],
    scale: Optional[float],
    empty_row_lse: str,
    layout: str,
    kernel: Optional[str],
    window_align: str,
    num_threads: int,
) -> Any:
    return _core.forward_of_operator(
        _plain(q),
        _plain(k),
        _plain(v),
        _causal(causal),
        (window_left, window_right),
        scale,
        return_lse,
        empty_row_lse,
        None,
        None,
        layout,
        kernel,
        window_align,
        num_threads,
    )


def _attention_kernel(*arguments: Any) -> torch.Tensor:
    return _run(False, *arguments)  # type: ignore[no-any-return]


def _attention_lse_kernel(*arguments: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    return _run(True, *arguments)  # type: ignore[no-any-return]


def _known(size: Any) -> Optional[int]:
    """A size as far as tracing knows it: a dynamic one's in the example; None if data decide it."""
    if size is None or isinstance(size, int):
        return size
    hint = getattr(size.node, "hint", None)
    return hint if isinstance(hint, int) else None


def _check_metadata(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: str,
    window_left: Any,
    window_right: Any,
    scale: Any,
    *options: Any,
) -> None:
    """Raises what the call will raise, as far as no data are needed to tell.

    No guards are made on dynamic sizes: those that a later call has are checked when it runs.
    """
    tensors = (q, k, v)
    for name, tensor in zip("qkv", tensors):
        kind = tensor.device.type
        if tensor.layout is not torch.strided or kind not in ("cpu", "cuda", "meta"):
            raise TypeError(
                f"{name}: it is a {tensor.layout} tensor on device {tensor.device}; accepted: a dense "
                "tensor on the CPU or a CUDA device"
            )
    for name, tensor in zip("kv", tensors[1:]):
        if tensor.dtype != q.dtype:
            dtype, wanted = (str(t.dtype).replace("torch.", "") for t in (tensor, q))
            raise TypeError(
                f"{name}: its dtype is {dtype}, but that of q is {wanted}; q, k and v must have one "
                "dtype"
            )
        if tensor.device != q.device:
            raise ValueError(
                f"{name}: it is on {tensor.device}, but q is on {q.device}; all tensors must be on "
                "one device"
            )
    shapes: Any = [[_known(size) for size in tensor.shape] for tensor in tensors]
    if any(size is None for shape in shapes for size in shape):
        if all(len(shape) == 4 for shape in shapes):
            return
        shapes = [[1] * len(shape) for shape in shapes]  # for what is said of the rank
    q_shape, k_shape, v_shape = shapes
    _core.validate(
        q_shape,
        k_shape,
        v_shape,
        str(q.dtype).replace("torch.", ""),
        _causal(causal),
        (_known(window_left), _known(window_right)),
        scale if isinstance(scale, (int, float)) else None,
        *options,
    )


def _fake_output(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    if q.shape[-1] == v.shape[-1]:
        return torch.empty_like(q)
    return q.new_empty((q.shape[0], q.shape[1], q.shape[2], v.shape[3]))


def _attention_fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *options: Any
) -> torch.Tensor:
    _check_metadata(q, k, v, *options)
    return _fake_output(q, v)


def _attention_lse_fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *options: Any
) -> Tuple[torch.Tensor, torch.Tensor]:
    _check_metadata(q, k, v, *options)
    layout = options[5]
    rows, heads = (2, 1) if layout == "BHND" else (1, 2)
    lse = q.new_empty((q.shape[0], q.shape[heads], q.shape[rows]), dtype=torch.float32)
    return _fake_output(q, v), lse


def _below_autograd(operator: Any) -> Any:
    def run(*arguments: Any) -> Any:
        _check_gradients(*arguments[:3])
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    return run


for _name, _kernel, _fake in (
    ("attention", _attention_kernel, _attention_fake),
    ("attention_lse", _attention_lse_kernel, _attention_lse_fake),
):
    for _key in ("CPU", "CUDA"):
        _library.impl(_name, _kernel, _key)
    torch.library.register_fake(f"tilefold::{_name}", _fake, lib=_library)
    _library.impl(_name, _below_autograd(getattr(torch.ops.tilefold, _name)), "Autograd")


def _check_options(causal: Any, window: Any, scale: Any, texts: Any, num_threads: Any) -> None:
    """What the operators' schema would refuse in PyTorch's words, in the library's."""
    if causal is not None and not isinstance(causal, (bool, str)):
        raise ValueError(
            f"causal is {causal!r}; accepted: False, True (where Nq = Nk), 'top_left', 'bottom_right'"
        )
    if window is not None and (not isinstance(window, (tuple, list)) or len(window) != 2):
        raise ValueError(
            f"window is {window!r}; accepted: None, or (left, right), each None (unbounded) or 0 and "
            "more"
        )
    if window is not None:
        for name, side in zip(("window[0] (left)", "window[1] (right)"), window):
            if isinstance(side, (bool, float, str, tuple, list)):
                raise TypeError(f"{name} is {side!r}; accepted: an int")
    if isinstance(scale, (bool, str, tuple, list, torch.Tensor)):
        raise TypeError(f"scale is {scale!r}; accepted: None (1/sqrt(D)), or a number")
    for name, value, accepted in texts:
        if not isinstance(value, str):
            raise ValueError(f"{name} is {value!r}; accepted: {accepted}")
    if isinstance(num_threads, (bool, float, str, tuple, list)) or num_threads is None:
        raise TypeError(f"num_threads is {num_threads!r}; accepted: an int")


def _span(tensor: torch.Tensor) -> Optional[Tuple[int, int]]:
    """The addresses from its first byte to behind its last; None where they are not its own to say."""
    if torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python):
        return None  # a wrapper: a fake tensor, one of several others
    with torch._C.DisableTorchFunctionSubclass():
        begin = tensor.data_ptr()
    if begin == 0 or tensor.numel() == 0:
        return None
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return begin, begin + (last + 1) * tensor.element_size()


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    a, b = _span(one), _span(other)
    return a is not None and b is not None and a[0] < b[1] and b[0] < a[1]


def _check_output(
    name: str, out: Any, shape: Sequence[Any], dtype: torch.dtype, inputs: Dict[str, Any]
) -> None:
    """What a call outside compiled code refuses of an output; copy_() would convert and broadcast."""
    q = inputs["q"]
    if not isinstance(out, torch.Tensor):
        raise TypeError(
            f"{name} is a {type(out).__name__}, but q is a torch.Tensor; the arrays of a call must be "
            "of one library"
        )
    if out.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError(
            f"{name}: it requires a gradient, and this version has no backward pass; call under "
            f"torch.no_grad() or torch.inference_mode(), or pass {name}.detach()"
        )
    if out.dtype != dtype:
        raise TypeError(f"{name}: its dtype is {out.dtype}; accepted: {dtype}")
    if out.device != q.device:
        raise ValueError(f"{name}: it is on {out.device}, but q is on {q.device}")
    if out.dim() != len(shape) or any(a != b for a, b in zip(out.shape, shape)):
        raise ValueError(f"{name}: its shape is {list(out.shape)}; accepted: {list(shape)}")
    # Where a call is traced, memory is not known.
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
    for input_name, array in inputs.items():
        if out is array or not traced and _overlap(out, array):
            raise ValueError(f"{name}: the span of its bytes overlaps that of {input_name}")


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: Any,
    window: Any,
    scale: Optional[float],
    return_lse: bool,
    empty_row_lse: str,
    out: Any,
    stream: Any,
    layout: str,
    kernel: Optional[str],
    window_align: str,
    num_threads: int,
) -> Any:
    """tilefold.attention through the operators.

    For compiled code, tensor subclasses, and calls that a dispatch mode or torch.jit.trace watches.
    """
    if stream is not None:
        raise NotImplementedError(
            "stream: compiled and traced code, dispatch modes and tensor subclasses work on the "
            "current stream; accepted there: None"
        )
    for name, tensor in zip("qkv", (q, k, v)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"{name} is a {type(tensor).__name__}; the arrays of a call must be of one library"
            )
    if not isinstance(return_lse, bool):
        raise TypeError(f"return_lse is {return_lse!r}; accepted: False, True")
    texts = (
        ("layout", layout, "'BHND', 'BNHD'"),
        ("empty_row_lse", empty_row_lse, "'+inf', '-inf'"),
        ("window_align", window_align, "'auto', 'top_left', 'bottom_right'"),
    )
    _check_options(causal, window, scale, texts, num_threads)
    if kernel is not None and not isinstance(kernel, str):
        raise TypeError(
            f"kernel is {kernel!r}; accepted: None, or a name from tilefold.kernels()"
        )
    pair = isinstance(out, tuple) and return_lse
    if pair and len(out) != 2:
        raise ValueError(
            "out: it is a tuple of another length than 2; accepted: an array, or (o, lse)"
        )
    if isinstance(out, (tuple, list)) and not pair:
        raise TypeError(
            f"out: it is a {type(out).__name__}; accepted: an array, or with return_lse=True a tuple "
            "(o, lse)"
        )
    out_o, out_lse = out if pair else (out, None)
    others = {"q": q, "k": k, "v": v}
    have_rank = all(tensor.dim() == 4 for tensor in (q, k, v))  # else the operator says so
    if out_o is not None and have_rank:
        _check_output("out", out_o, (*q.shape[:-1], v.shape[-1]), q.dtype, others)
        others["out"] = out_o
    if out_lse is not None and have_rank:
        rows, heads = (2, 1) if layout == "BHND" else (1, 2)
        shape = (q.shape[0], q.shape[heads], q.shape[rows])
        _check_output("out[1] (lse)", out_lse, shape, torch.float32, others)
    if causal is None or causal is False:
        causal = "none"
    elif causal is True:
        causal = "square"
    left, right = (None, None) if window is None else window
    arguments = (
        q,
        k,
        v,
        causal,
        left,
        right,
        scale,
        empty_row_lse,
        layout,
        kernel,
        window_align,
        num_threads,
    )
    if not return_lse:
        o = torch.ops.tilefold.attention(*arguments)
        return o if out_o is None else out_o.copy_(o)
    o, lse = torch.ops.tilefold.attention_lse(*arguments)
    if out_o is not None:
        o = out_o.copy_(o)
    if out_lse is not None:
        lse = out_lse.copy_(lse)
    return o, lse
