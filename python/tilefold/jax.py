"""tilefold.attention for JAX: an XLA foreign call, so that it lives under ``jax.jit``.

``tilefold.attention`` comes here for JAX arrays and tracers; the function is public for those who
want JAX's names in their code.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, Optional, Tuple

try:
    import jax
    import jax.numpy as jnp
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ModuleNotFoundError("tilefold.jax needs JAX, which is not installed", name="jax") from error
import numpy as np

from tilefold import _core

if TYPE_CHECKING:
    from tilefold._attention import Causal, EmptyRowLse, Layout, Window, WindowAlign

__all__ = ["attention"]

_TARGET = "tilefold_attention"
_CAUSAL = {None: 0, False: 0, True: 1, "top_left": 1, "bottom_right": 2}
_ALIGN = {"auto": 0, "top_left": 1, "bottom_right": 2}


def _register() -> None:
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    for platform, capsule in _core.xla_handlers().items():
        if platform == "CUDA" and not _core.has_cuda:
            continue
        handler = ctypes.cast(pointer_of(capsule, None), ctypes.CFUNCTYPE(None))
        jax.ffi.register_ffi_target(_TARGET, jax.ffi.pycapsule(handler), platform=platform)


_register()


@functools.partial(jax.jit, static_argnums=(3, 4))
def _call(q: Any, k: Any, v: Any, return_lse: bool, attributes: Tuple[Tuple[str, Any], ...]) -> Any:
    values = dict(attributes)
    rows_first = bool(values["rows_first"])
    o_shape = q.shape[:-1] + v.shape[-1:]
    results = [jax.ShapeDtypeStruct(o_shape, q.dtype)]
    if return_lse:
        batch, second, third = q.shape[:-3], q.shape[-3], q.shape[-2]
        heads, rows = (third, second) if rows_first else (second, third)
        results.append(jax.ShapeDtypeStruct((*batch, heads, rows), jnp.float32))
    call = jax.ffi.ffi_call(_TARGET, results, vmap_method="broadcast_all")
    typed = {
        name: value if name == "kernel" else np.float32(value) if name == "scale" else np.int64(value)
        for name, value in values.items()
    }
    made = call(q, k, v, **typed)
    return tuple(made) if return_lse else made[0]


def _distance(value: Optional[int]) -> int:
    return -1 if value is None else int(value)


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
    layout: Layout = "BHND",
    kernel: Optional[str] = None,
    window_align: WindowAlign = "auto",
    num_threads: int = 0,
) -> Any:
    """Attention, forward, on JAX arrays; usable under ``jax.jit`` and ``jax.vmap``.

    Arguments, shapes and result are those of :func:`tilefold.attention`; the options are static
    (they are compiled in), and there is no ``out`` and no ``stream``, which are XLA's. JAX arrays
    have no strides, so ``layout`` alone tells the order of the axes. Works on the CPU, and on CUDA
    devices where the package was built with CUDA.

    Raises:
        ValueError: An option or a shape is wrong; also JAX's own, for a gradient: there is no
            backward pass yet.
        TypeError: A dtype is not served.
        jax.errors.JaxRuntimeError: What depends on the device was refused when the call ran (a
            kernel that cannot serve it, an unusable device); the library's sentence is inside.

    Source: Dao, "FlashAttention-2" (2023), Algorithm 1; XLA's foreign function interface.
    """
    for name, array in (("q", q), ("k", k), ("v", v)):
        if not isinstance(array, (jax.Array, np.ndarray)):
            raise TypeError(f"{name} is a {type(array).__name__}; accepted: a JAX array")
    for name, array in (("k", k), ("v", v)):
        if array.dtype != q.dtype:
            raise TypeError(
                f"{name}: its dtype is {array.dtype}, but that of q is {q.dtype}; q, k and v must "
                "have one dtype"
            )
    if not isinstance(return_lse, (bool, np.bool_)):
        raise TypeError(f"return_lse is {return_lse!r}; accepted: False, True")
    _core.validate(
        q.shape,
        k.shape,
        v.shape,
        q.dtype.name,
        causal,
        window,
        scale,
        empty_row_lse,
        layout,
        kernel,
        window_align,
        num_threads,
    )
    left, right = (None, None) if window is None else window
    attributes = (
        ("causal", _CAUSAL[causal]),
        ("window_left", _distance(left)),
        ("window_right", _distance(right)),
        ("window_align", _ALIGN[window_align]),
        ("empty_row_lse", 1 if empty_row_lse == "-inf" else 0),
        ("has_scale", 0 if scale is None else 1),
        ("scale", 0.0 if scale is None else float(scale)),
        ("num_threads", int(num_threads)),
        ("rows_first", 0 if layout == "BHND" else 1),
        ("kernel", kernel or ""),
    )
    return _call(q, k, v, bool(return_lse), attributes)
