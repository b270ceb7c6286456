"""tilefold.attention on CuPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tilefold
from conftest import assert_close, has_cuda_build, reference

cupy = pytest.importorskip("cupy")

if not has_cuda_build():
    pytest.skip("this build of tilefold has no CUDA", allow_module_level=True)
try:
    cupy.cuda.runtime.getDeviceCount()
except cupy.cuda.runtime.CUDARuntimeError:
    pytest.skip("CuPy sees no CUDA device", allow_module_level=True)


def normal(*shape: int, dtype: Any = "float16", seed: int = 1) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return cupy.asarray(values.astype(dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_matches_float64(dtype: str) -> None:
    q, k = normal(2, 4, 70, 64, dtype=dtype), normal(2, 2, 133, 64, dtype=dtype, seed=2)
    o, lse = tilefold.attention(q, k, k, causal="bottom_right", return_lse=True)
    assert isinstance(o, cupy.ndarray) and o.dtype == q.dtype and isinstance(lse, cupy.ndarray)
    expected, expected_lse = reference(
        *(a.astype("float32").get() for a in (q, k, k)), causal="bottom_right"
    )
    assert_close(o.get().astype(np.float32), expected, dtype)
    assert_close(lse.get(), expected_lse, "float32")


def test_views_and_out() -> None:
    qkv = normal(2, 33, 3, 4, 64)
    q, k, v = (qkv[:, :, i] for i in range(3))
    out = cupy.empty((2, 33, 4, 64), "float16")
    assert tilefold.attention(q, k, v, layout="BNHD", out=out) is out
    expected, _ = reference(*(a.get().transpose(0, 2, 1, 3).astype(np.float32) for a in (q, k, v)))
    assert_close(out.get().transpose(0, 2, 1, 3).astype(np.float32), expected, "float16")


def test_streams() -> None:
    q = normal(1, 2, 64, 64)
    expected = tilefold.attention(q, q, q).get()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        o = tilefold.attention(q, q, q)
    stream.synchronize()
    assert np.array_equal(o.get(), expected)
    for given in (stream, stream.ptr):
        o = tilefold.attention(q, q, q, stream=given)
        stream.synchronize()
        assert np.array_equal(o.get(), expected)


def test_mixed_libraries_are_refused() -> None:
    q = normal(1, 2, 8, 64)
    with pytest.raises(TypeError, match="k is a numpy.ndarray"):
        tilefold.attention(q, q.get(), q)
