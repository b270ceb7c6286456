"""``torch.nn.functional.scaled_dot_product_attention`` on tilefold's kernels.

What tilefold cannot take (dropout, an arbitrary mask, a gradient, other ranks, dtypes or devices)
goes to PyTorch's own function, so a model keeps working; the first time for each reason a
:class:`FallbackWarning` says so. ``tilefold.sdpa.warn_on_fallback = False`` turns it off, as do
Python's own warning filters. Compiled code falls back without a warning. Under ``torch.autocast``
the tensors are cast first, as PyTorch's own function does.
"""

from __future__ import annotations

import warnings
from typing import Dict, Optional, Set

try:
    import torch
    from torch.autograd import forward_ad
    from torch.nn import functional
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "tilefold.sdpa needs PyTorch, which is not installed", name="torch"
    ) from error

from tilefold import _core
from tilefold._attention import attention
from tilefold._names import renamed

__all__ = ["FallbackWarning", "scaled_dot_product_attention", "warn_on_fallback"]

warn_on_fallback: bool = True
"""Whether the first fallback for each reason gives a :class:`FallbackWarning`."""

_warned: Set[str] = set()
_usable: Dict[int, bool] = {}
_MAX_SCALE = torch.finfo(torch.float32).max
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# What the layer below calls the arguments -> what the function here does.
_NAMES = {"q": "query", "k": "key", "v": "value", "out": "the output"}
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat)


class FallbackWarning(UserWarning):
    """A call went to PyTorch's scaled_dot_product_attention."""


def _is_usable(index: int) -> bool:
    if index not in _usable:
        _usable.update(
            (device["index"], bool(device["usable"]))
            for device in _core.devices()
            if device["type"] == "cuda"
        )
    return _usable.setdefault(index, False)


def _reason_outside_a_graph(*tensors: torch.Tensor) -> Optional[str]:
    """_reason() as far as compiled code cannot ask, or does not need to."""
    if torch._C._functorch.maybe_current_level() is not None or any(
        torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors
    ):
        return "the call is inside a torch.func transform"
    if forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
    ):
        return "a tangent of forward-mode AD is asked for"
    if any(tensor.is_neg() or tensor.is_conj() for tensor in tensors):
        return "a tensor is a lazily negated or conjugated view"
    device = tensors[0].device
    if device.type == "cuda" and not _is_usable(device.index):
        return f"tilefold cannot use device {device}"
    return None


def _under_autocast(tensor: torch.Tensor) -> torch.Tensor:
    kind = tensor.device.type
    if tensor.dtype not in _DTYPES or kind not in ("cpu", "cuda"):
        return tensor
    if not torch.is_autocast_enabled(kind):
        return tensor
    return tensor.to(torch.get_autocast_dtype(kind))


def _reason(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Optional[torch.Tensor],
    dropout_p: float,
    is_causal: bool,
    scale: Optional[float],
    enable_gqa: bool,
) -> Optional[str]:
    """Why tilefold cannot take the call; None if it can."""
    tensors = (query, key, value)
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return "an argument is no tensor"
    if attn_mask is not None:
        return "attn_mask is given"
    if dropout_p != 0.0:
        return "dropout_p is not 0"
    if not isinstance(is_causal, bool):
        return "is_causal is no bool"
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return "a gradient is asked for"
    if not 2 <= query.dim() <= 4 or key.dim() != query.dim() or value.dim() != query.dim():
        return "the tensors are not all of one rank from 2 to 4"
    if query.dtype not in _DTYPES or any(tensor.dtype != query.dtype for tensor in tensors):
        return "the dtype is not one of float16, bfloat16, float32 for all"
    if query.device.type not in ("cpu", "cuda"):
        return f"the device is of type {query.device.type}"
    if any(tensor.device != query.device for tensor in tensors):
        return "the tensors are on several devices"
    if any(tensor.layout is not torch.strided or tensor.is_nested for tensor in tensors):
        return "a tensor is sparse or nested"
    if query.shape[-1] == 0 or value.shape[-1] == 0:
        return "the head dim is 0"
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, _NUMBERS)):
        return "the scale is no number"
    if scale is not None and not -_MAX_SCALE <= scale <= _MAX_SCALE:
        return "the scale is not finite"
    if not enable_gqa and query.dim() >= 3 and query.shape[-3] != key.shape[-3]:
        return "the numbers of heads differ without enable_gqa"
    if query.dim() >= 3 and key.shape[-3] != value.shape[-3]:
        return "key and value have different numbers of heads"
    if not query.shape[:-3] == key.shape[:-3] == value.shape[:-3]:
        return "the batch sizes differ"
    return None if torch.compiler.is_compiling() else _reason_outside_a_graph(*tensors)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Optional[torch.Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention with PyTorch's signature and meaning (``is_causal`` is top-left).

    Args:
        query: ``[B, Hq, Nq, D]`` (leading axes may be absent), float16, bfloat16 or float32.
        key: ``[B, Hkv, Nk, D]``; Hkv = Hq, or with ``enable_gqa`` a divisor of it.
        value: ``[B, Hkv, Nk, Dv]``.
        attn_mask: tilefold takes None; another goes to PyTorch.
        dropout_p: tilefold takes 0.0; another goes to PyTorch.
        is_causal: Row i sees key j when ``j <= i``.
        scale: None: ``1 / sqrt(D)``.
        enable_gqa: Whether Hq may be a multiple of Hkv.

    Returns:
        ``[B, Hq, Nq, Dv]``.

    Raises:
        What :func:`tilefold.attention` or, after a fallback, PyTorch raises.

    Source: PyTorch's documentation of torch.nn.functional.scaled_dot_product_attention.
    """
    tensors = (query, key, value)
    if all(isinstance(tensor, torch.Tensor) and not tensor.is_nested for tensor in tensors):
        tensors = (_under_autocast(query), _under_autocast(key), _under_autocast(value))
    reason = _reason(*tensors, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if reason is None:
        q, k, v = tensors
        rank = q.dim()
        if rank < 4:
            q, k, v = (tensor[(None,) * (4 - rank)] for tensor in (q, k, v))
        try:
            o: torch.Tensor = attention(
                q, k, v, causal="top_left" if is_causal else False, scale=scale
            )
        except Exception as error:
            raise renamed(error, _NAMES) from error.__cause__
        return o[(0,) * (4 - rank)] if rank < 4 else o
    if warn_on_fallback and not torch.compiler.is_compiling() and reason not in _warned:
        warnings.warn(
            f"tilefold hands scaled_dot_product_attention to PyTorch: {reason}",
            FallbackWarning,
            stacklevel=2,
        )
        _warned.add(reason)  # after it: where warnings are errors, the next call gets one too
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attn_mask,
        dropout_p=dropout_p,
        is_causal=is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
    )
