"""Shared by the tests: a float64 reference, tolerances, and what this machine has."""

from __future__ import annotations

import os
from typing import Any, Optional, Tuple

import numpy as np
import pytest

# Before JAX is imported: it would take three quarters of a GPU's memory, and PyTorch and CuPy work
# in the same process.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# Largest allowed |o - reference| / (1 + |reference|), for inputs of magnitude about 1 and at most a
# few hundred keys: float32 accumulates ~Nk roundings of 2^-24; float16 and bfloat16 round P and O
# (2^-11 and 2^-8), and an average of rounded P errs by about one rounding.
TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def reference(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: Any = False,
    window: Tuple[Optional[int], Optional[int]] = (None, None),
    scale: Optional[float] = None,
    window_align: str = "auto",
    empty_row_lse: float = np.inf,
) -> Tuple[np.ndarray, np.ndarray]:
    """(o, lse) in float64 by the formula, masks made densely; [B, H, N, D]."""
    q, k, v = (np.asarray(a, np.float64) for a in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    nq, nk = q.shape[2], k.shape[2]
    scores = q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    i, j = np.arange(nq)[:, None], np.arange(nk)[None, :]
    if window_align == "auto":
        window_align = "bottom_right" if causal == "bottom_right" else "top_left"
    centre = i + (nk - nq if window_align == "bottom_right" else 0)
    seen = np.ones((nq, nk), bool)
    if causal in (True, "top_left"):
        seen &= j <= i
    if causal == "bottom_right":
        seen &= j <= i + nk - nq
    left, right = window
    if left is not None:
        seen &= j >= centre - left
    if right is not None:
        seen &= j <= centre + right
    scores = np.where(seen, scores, -np.inf)
    empty = ~seen.any(-1)
    top = np.where(empty[:, None], 0.0, scores.max(-1, keepdims=True, initial=-np.inf))
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    o = np.where(empty[:, None], 0.0, weights @ v / np.where(total == 0, 1, total))
    with np.errstate(divide="ignore"):
        lse = np.where(empty, empty_row_lse, (top + np.log(total))[..., 0])
    return o, lse


def assert_close(actual: Any, expected: np.ndarray, dtype: str) -> None:
    actual = np.asarray(actual, np.float64)
    assert actual.shape == expected.shape
    finite = np.isfinite(expected)
    assert np.array_equal(actual[~finite], expected[~finite])
    error = np.abs(actual[finite] - expected[finite]) / (1 + np.abs(expected[finite]))
    assert error.size == 0 or error.max() <= TOLERANCE[dtype], error.max()


def has_cuda_build() -> bool:
    from tilefold import _core

    return bool(_core.has_cuda)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240711)
