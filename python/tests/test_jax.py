"""tilefold.jax.attention under jit and vmap, on the CPU and, where there is one, a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tilefold
from conftest import assert_close, has_cuda_build, reference

jax = pytest.importorskip("jax")
jnp = jax.numpy

import tilefold.jax as tilefold_jax  # noqa: E402


def device(kind: str) -> Any:
    if kind == "cuda":
        if not has_cuda_build():
            pytest.skip("this build of tilefold has no CUDA")
        try:
            return jax.devices("cuda")[0]
        except RuntimeError:
            pytest.skip("JAX sees no CUDA device")
    return jax.devices("cpu")[0]


def normal(*shape: int, dtype: Any = "float32", seed: int = 1, on: Any = None) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return jax.device_put(jnp.asarray(values, dtype=dtype), on or jax.devices("cpu")[0])


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("options", [{}, {"causal": "bottom_right"}, {"window": (5, 0)}], ids=str)
def test_matches_float64_under_jit(kind: str, dtype: str, options: Any) -> None:
    on = device(kind)
    q = normal(2, 4, 33, 64, dtype=dtype, on=on)
    k, v = (normal(2, 2, 65, 64, dtype=dtype, seed=s, on=on) for s in (2, 3))

    @jax.jit
    def call(q: Any, k: Any, v: Any) -> Any:
        o, lse = tilefold_jax.attention(q, k, v, return_lse=True, **options)
        return o * 1, lse

    o, lse = call(q, k, v)
    assert o.dtype == q.dtype and o.devices() == q.devices()
    expected, expected_lse = reference(*(np.asarray(a, np.float32) for a in (q, k, v)), **options)
    assert_close(np.asarray(o, np.float32), expected, dtype)
    assert_close(np.asarray(lse), expected_lse, "float32")
    eager = tilefold.attention(q, k, v, **options)
    assert isinstance(eager, jax.Array)
    assert np.array_equal(np.asarray(eager, np.float32), np.asarray(o, np.float32))


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_vmap_layout_and_head_dims(kind: str) -> None:
    on = device(kind)
    q, v = normal(3, 2, 4, 9, 16, on=on), normal(3, 2, 4, 9, 24, seed=2, on=on)
    batched = jax.vmap(lambda q, v: tilefold.attention(q, q, v, causal=True))(q, v)
    for i in range(3):
        assert_close(np.asarray(batched[i]), reference(q[i], q[i], v[i], causal=True)[0], "float32")
    shared = jax.vmap(tilefold.attention, in_axes=(0, None, None))(q, q[0], v[0])
    assert_close(np.asarray(shared[2]), reference(q[2], q[0], v[0])[0], "float32")
    rows_first = [jnp.swapaxes(a[0], 1, 2) for a in (q, q, v)]
    o, lse = tilefold.attention(*rows_first, layout="BNHD", return_lse=True)
    assert o.shape == (2, 9, 4, 24) and lse.shape == (2, 4, 9)
    assert_close(np.asarray(jnp.swapaxes(o, 1, 2)), reference(q[0], q[0], v[0])[0], "float32")


def test_refusals() -> None:
    q = normal(1, 2, 6, 8)
    with pytest.raises(ValueError, match="k: its head dim is 4"):
        tilefold.attention(q, q[..., :4], q)
    with pytest.raises(ValueError, match="q: its rank is 3"):
        tilefold.attention(q[0], q, q)
    with pytest.raises(ValueError, match="causal is 'upper'"):
        tilefold.attention(q, q, q, causal="upper")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="q: its dtype is int32"):
        tilefold.attention(*(q.astype(jnp.int32),) * 3)
    with pytest.raises(TypeError, match="k: its dtype is float16"):
        tilefold.attention(q, q.astype(jnp.float16), q)
    with pytest.raises(TypeError, match="out: JAX arrays cannot be written"):
        tilefold.attention(q, q, q, out=q)
    with pytest.raises(TypeError, match="stream"):
        tilefold.attention(q, q, q, stream=0)
    with pytest.raises(TypeError, match="k is a numpy.ndarray"):
        tilefold.attention(q, np.asarray(q), q)
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda q: tilefold.attention(q, q, q).sum())(q)
    with pytest.raises(ValueError, match="kernel 'none such'"):
        tilefold.attention(q, q, q, kernel="none such")
    for not_an_array in ([1.0], None, 1.0):
        with pytest.raises(TypeError, match="k is a .*; accepted: a JAX array"):
            tilefold_jax.attention(q, not_an_array, q)
    with pytest.raises(ValueError, match="kernel 'none such'"):
        jax.jit(lambda q: tilefold.attention(q, q, q, kernel="none such"))(q)


def test_a_call_by_hand_is_checked() -> None:
    q = normal(1, 2, 6, 8)
    result = jax.ShapeDtypeStruct(q.shape, q.dtype)
    call = jax.ffi.ffi_call("tilefold_attention", result)
    for attributes in ({"colour": np.int64(1)}, {"causal": np.int32(1)}, {"kernel": "k" * 99}):
        with pytest.raises(jax.errors.JaxRuntimeError, match="tilefold_attention"):
            jax.block_until_ready(call(q, q, q, **attributes))
    with pytest.raises(jax.errors.JaxRuntimeError, match="tilefold_attention"):
        jax.block_until_ready(call(q, q))


def test_explain() -> None:
    q = normal(1, 2, 6, 8)
    assert tilefold.explain(q, q, q).kernel is not None


def test_return_lse_is_a_bool() -> None:
    q = jnp.ones((1, 2, 4, 8))
    with pytest.raises(TypeError, match="return_lse is 'x'; accepted: False, True"):
        tilefold.jax.attention(q, q, q, return_lse="x")
