"""PyTorch's view of tilefold: operators that torch.compile, fake tensors and export understand."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

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
    return _core.forward(
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


def _fake_output(q: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    if q.dim() != 4 or v.dim() != 4:
        raise ValueError("q, k, v: their rank must be 4")
    if q.shape[-1] == v.shape[-1]:
        return torch.empty_like(q)
    return q.new_empty((q.shape[0], q.shape[1], q.shape[2], v.shape[3]))


def _attention_fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> torch.Tensor:
    return _fake_output(q, v)


def _attention_lse_fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *options: Any
) -> Tuple[torch.Tensor, torch.Tensor]:
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
    """tilefold.attention through the operators: for compiled code and for tensor subclasses."""
    if stream is not None:
        raise NotImplementedError(
            "stream: compiled code and tensor subclasses work on the current stream; accepted "
            "there: None"
        )
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
        return o if out is None else out.copy_(o)
    o, lse = torch.ops.tilefold.attention_lse(*arguments)
    out_o, out_lse = out if isinstance(out, tuple) else (out, None)
    if out_o is not None:
        o = out_o.copy_(o)
    if out_lse is not None:
        lse = out_lse.copy_(lse)
    return o, lse
