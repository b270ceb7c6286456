"""The functions of the flash-attn package, by their names, signatures and meaning.

Changing ``from flash_attn import ...`` to ``from tilefold.flash_attn import ...`` is enough. The
layout is ``[B, N, H, D]``; causal masks and windows are aligned to the bottom right corner.

What this version does not do is refused by the argument's name: ``dropout_p``, ``softcap``,
``alibi_slopes``, ``return_attn_probs``; and gradients (call under ``torch.no_grad()``).
``deterministic`` is accepted either way: every call gives the same bits.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

from tilefold._attention import attention
from tilefold._names import renamed

__all__ = ["flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func"]


# What the layer below calls the arguments -> what the functions here do.
_NAMES = {"scale": "softmax_scale", "window": "window_size", "out": "the output"}
_NAMES_QKV = {"q": "qkv", "k": "qkv", "v": "qkv"}
_NAMES_KV = {"k": "kv", "v": "kv"}


def _refuse(name: str, value: Any, accepted: str) -> None:
    raise NotImplementedError(
        f"{name} is {value!r}, which this version does not support; accepted: {accepted}"
    )


def _is_zero(value: Any) -> bool:
    try:
        return bool(value == 0.0)
    except (RuntimeError, TypeError, ValueError):  # an array of several
        return False


def _window(window_size: Any) -> Tuple[Any, Any]:
    accepted = "accepted: (left, right), two ints; below 0: unbounded"
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise ValueError(f"window_size is {window_size!r}; {accepted}")
    for side in window_size:
        if isinstance(side, int) and not isinstance(side, bool):  # all that torch.compile can ask
            continue
        if isinstance(side, (bool, float, str)) or side is None or not hasattr(side, "__index__"):
            raise TypeError(f"window_size is {window_size!r}; {accepted}")
    return window_size[0], window_size[1]


def _unpacked(name: str, packed: Any, parts: int, shape: str) -> Any:
    if not hasattr(packed, "ndim") or not hasattr(packed, "shape"):
        raise TypeError(f"{name} is a {type(packed).__name__}; accepted: an array, {shape}")
    if packed.ndim != 5 or packed.shape[2] != parts:
        raise ValueError(f"{name}: its shape is {list(packed.shape)}; accepted: {shape}")
    return tuple(packed[:, :, part] for part in range(parts))


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Attention on ``[B, N, H, D]`` tensors, as ``flash_attn.flash_attn_func``.

    Args:
        q: ``[B, Nq, Hq, D]``, float16 or bfloat16 (float32 too, on the CPU and, slowly, on CUDA).
        k: ``[B, Nk, Hkv, D]``; Hq a multiple of Hkv.
        v: ``[B, Nk, Hkv, Dv]``.
        dropout_p: 0.0 only.
        softmax_scale: None: ``1 / sqrt(D)``.
        causal: Row i sees key j when ``j <= i + Nk - Nq``.
        window_size: ``(left, right)``: row i sees the keys from ``i + Nk - Nq - left`` to
            ``i + Nk - Nq + right``; -1 is unbounded.
        softcap: 0.0 only.
        alibi_slopes: None only.
        deterministic: Either; every call gives the same bits.
        return_attn_probs: False only.

    Returns:
        ``[B, Nq, Hq, Dv]``. A row that sees no key is 0.

    Raises:
        NotImplementedError: An argument is not supported yet (named), or a gradient is asked for.
        ValueError, TypeError, RuntimeError: as :func:`tilefold.attention`.

    Source: Dao, "FlashAttention-2" (2023); the flash-attn package's documentation.
    """
    if not _is_zero(dropout_p):
        _refuse("dropout_p", dropout_p, "0.0")
    if not _is_zero(softcap):
        _refuse("softcap", softcap, "0.0 (off)")
    if alibi_slopes is not None:
        _refuse("alibi_slopes", alibi_slopes, "None")
    if return_attn_probs:
        accepted = "False (tilefold.attention(return_lse=True) returns the log-sum-exp)"
        _refuse("return_attn_probs", return_attn_probs, accepted)
    if isinstance(causal, str):  # it would be true, whatever it says
        raise ValueError(f"causal is {causal!r}; accepted: False, True (to the bottom right corner)")
    left, right = _window(window_size)
    try:
        return attention(
            q,
            k,
            v,
            causal="bottom_right" if causal else False,
            window=(left if left >= 0 else None, right if right >= 0 else None),
            window_align="bottom_right",
            scale=softmax_scale,
            layout="BNHD",
        )
    except Exception as error:
        raise renamed(error, _NAMES) from error.__cause__


def flash_attn_qkvpacked_func(
    qkv: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """As :func:`flash_attn_func`, with q, k and v packed in one tensor, which is not copied.

    Args:
        qkv: ``[B, N, 3, H, D]``: q, k and v along the third axis, of one number of heads.
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
            return_attn_probs: as those of :func:`flash_attn_func`.

    Returns:
        ``[B, N, H, D]``.

    Raises:
        ValueError: qkv has another shape.
        NotImplementedError, TypeError, RuntimeError: as :func:`flash_attn_func`.

    Source: as :func:`flash_attn_func`.
    """
    q, k, v = _unpacked("qkv", qkv, 3, "[B, N, 3, H, D]")
    rest = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic)
    try:
        return flash_attn_func(q, k, v, *rest, return_attn_probs)
    except Exception as error:
        raise renamed(error, _NAMES_QKV) from error.__cause__


def flash_attn_kvpacked_func(
    q: Any,
    kv: Any,
    dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """As :func:`flash_attn_func`, with k and v packed in one tensor, which is not copied.

    Args:
        q: ``[B, Nq, Hq, D]``.
        kv: ``[B, Nk, 2, Hkv, D]``: k and v along the third axis; Hq a multiple of Hkv.
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
            return_attn_probs: as those of :func:`flash_attn_func`.

    Returns:
        ``[B, Nq, Hq, D]``.

    Raises:
        ValueError: kv has another shape.
        NotImplementedError, TypeError, RuntimeError: as :func:`flash_attn_func`.

    Source: as :func:`flash_attn_func`.
    """
    k, v = _unpacked("kv", kv, 2, "[B, Nk, 2, Hkv, D]")
    rest = (dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic)
    try:
        return flash_attn_func(q, k, v, *rest, return_attn_probs)
    except Exception as error:
        raise renamed(error, _NAMES_KV) from error.__cause__
