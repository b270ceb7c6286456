"""tilefold: exact attention on arrays of NumPy, PyTorch, JAX, CuPy or any DLPack library.

>>> import numpy as np, tilefold
>>> q = k = v = np.ones((1, 2, 8, 16), np.float32)
>>> tilefold.attention(q, k, v, causal=True).shape
(1, 2, 8, 16)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tilefold import _core
from tilefold._attention import Causal as Causal
from tilefold._attention import EmptyRowLse as EmptyRowLse
from tilefold._attention import Layout as Layout
from tilefold._attention import Window as Window
from tilefold._attention import WindowAlign as WindowAlign
from tilefold._attention import attention
from tilefold._inventory import Device, Explanation, Kernel, devices, explain, kernels

if TYPE_CHECKING:
    from tilefold import flash_attn, jax, sdpa
else:

    def __getattr__(name: str) -> Any:
        # Imported when first asked for: jax and sdpa import JAX and PyTorch.
        if name in ("flash_attn", "jax", "sdpa"):
            return importlib.import_module(f"tilefold.{name}")
        raise AttributeError(f"module 'tilefold' has no attribute '{name}'")

    def __dir__() -> Any:
        return sorted({*globals(), "flash_attn", "jax", "sdpa"})


__version__: str = _core.version()

__all__ = [
    "Device",
    "Explanation",
    "Kernel",
    "__version__",
    "attention",
    "devices",
    "explain",
    "kernels",
]
