"""tilefold.flash_attn has the flash-attn package's signatures and meaning."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from conftest import assert_close, reference
from tilefold import flash_attn


def normal(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def heads_first(*arrays: np.ndarray) -> Any:
    return [a.transpose(0, 2, 1, 3) for a in arrays]


# The signatures of the flash-attn package 2.7 and 2.8, by argument and default.
COMMON = [
    ("dropout_p", 0.0),
    ("softmax_scale", None),
    ("causal", False),
    ("window_size", (-1, -1)),
    ("softcap", 0.0),
    ("alibi_slopes", None),
    ("deterministic", False),
    ("return_attn_probs", False),
]


@pytest.mark.parametrize(
    "name, arrays",
    [
        ("flash_attn_func", ["q", "k", "v"]),
        ("flash_attn_qkvpacked_func", ["qkv"]),
        ("flash_attn_kvpacked_func", ["q", "kv"]),
    ],
)
def test_signatures(name: str, arrays: Any) -> None:
    parameters = inspect.signature(getattr(flash_attn, name)).parameters
    assert list(parameters) == arrays + [argument for argument, _ in COMMON]
    for argument, default in COMMON:
        assert parameters[argument].default == default


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [(-1, -1), (3, -1), (-1, 2), (4, 0)])
@pytest.mark.parametrize("lengths", [(7, 7), (3, 11), (11, 3)])
def test_masks_are_bottom_right(causal: bool, window: Any, lengths: Any) -> None:
    nq, nk = lengths
    q, k, v = normal(2, nq, 4, 16), normal(2, nk, 2, 16, seed=2), normal(2, nk, 2, 16, seed=3)
    o = flash_attn.flash_attn_func(q, k, v, causal=causal, window_size=window)
    assert o.shape == q.shape
    expected, _ = reference(
        *heads_first(q, k, v),
        causal="bottom_right" if causal else False,
        window=tuple(None if side < 0 else side for side in window),
        window_align="bottom_right",
    )
    assert_close(o.transpose(0, 2, 1, 3), expected, "float32")


def test_packed() -> None:
    qkv = normal(2, 9, 3, 4, 16)
    q, k, v = (qkv[:, :, i] for i in range(3))
    expected = flash_attn.flash_attn_func(q, k, v, softmax_scale=0.3, causal=True)
    assert np.array_equal(
        flash_attn.flash_attn_qkvpacked_func(qkv, softmax_scale=0.3, causal=True), expected
    )
    kv = qkv[:, :, 1:]
    assert np.array_equal(
        flash_attn.flash_attn_kvpacked_func(q, kv, softmax_scale=0.3, causal=True), expected
    )
    with pytest.raises(ValueError, match=r"qkv: its shape is .*3, H, D"):
        flash_attn.flash_attn_qkvpacked_func(q)
    with pytest.raises(ValueError, match=r"kv: its shape is .*2, Hkv, D"):
        flash_attn.flash_attn_kvpacked_func(q, qkv)


@pytest.mark.parametrize(
    "name, value",
    [
        ("dropout_p", 0.1),
        ("softcap", 30.0),
        ("alibi_slopes", np.ones(4, np.float32)),
        ("return_attn_probs", True),
    ],
)
def test_unsupported_arguments_are_refused_by_name(name: str, value: Any) -> None:
    q = normal(1, 5, 4, 16)
    with pytest.raises(NotImplementedError, match=name):
        flash_attn.flash_attn_func(q, q, q, **{name: value})
    with pytest.raises(NotImplementedError, match=name):
        flash_attn.flash_attn_qkvpacked_func(np.stack([q] * 3, 2), **{name: value})


def test_what_comes_later_is_absent() -> None:
    for name in ("flash_attn_varlen_func", "flash_attn_with_kvcache"):
        assert not hasattr(flash_attn, name)


@pytest.mark.parametrize(
    "window_size, kind",
    [(5, ValueError), ((1, 2, 3), ValueError), ("12", ValueError), ((None, 0), TypeError)],
)
def test_window_sizes_of_the_wrong_form(window_size: Any, kind: Any) -> None:
    q = np.ones((1, 4, 2, 8), np.float32)
    with pytest.raises(kind, match="window_size is"):
        flash_attn.flash_attn_func(q, q, q, window_size=window_size)


def test_errors_name_the_arguments_of_the_function_called() -> None:
    q = np.ones((1, 4, 2, 8), np.float32)
    func, kv_func, qkv_func = (getattr(flash_attn, name) for name in flash_attn.__all__)
    qkv, kv = np.stack([q] * 3, 2), np.stack([q] * 2, 2)
    calls = [(func, (q, q, q)), (kv_func, (q, kv)), (qkv_func, (qkv,))]
    for call, arrays in calls:
        for options, error, sentence in [
            ({"softmax_scale": "x"}, TypeError, "^softmax_scale is 'x'; accepted: None"),
            ({"softmax_scale": float("nan")}, ValueError, "^softmax_scale is nan"),
            ({"window_size": (2**70, 0)}, ValueError, r"^window_size\[0\] \(left\) is 118"),
            ({"causal": "top_left"}, ValueError, "^causal is 'top_left'; accepted: False, True"),
        ]:
            with pytest.raises(error, match=sentence):
                call(*arrays, **options)
    with pytest.raises(ValueError, match=r"^v: its head dim \(Dv\) is 0"):
        func(q, q, q[..., :0])
    with pytest.raises(TypeError, match="^qkv: its dtype is float64; accepted"):
        qkv_func(qkv.astype(np.float64))
    with pytest.raises(ValueError, match="^kv: its head dim is 4, but that of q is 8"):
        kv_func(q, kv[..., :4])
    with pytest.raises(TypeError, match="^kv: its dtype is float16, .*; q, kv and the output must have"):
        kv_func(q, kv.astype(np.float16))
    with pytest.raises(ValueError, match="^q: its number .* not a multiple of that of kv, 2"):
        kv_func(np.ones((1, 4, 3, 8), np.float32), kv)
    with pytest.raises(ValueError, match="^k: its rank is 3; accepted: 4, as .batch, Nk, kv heads, D.$"):
        func(q, q[0], q)


def test_compiled_with_dynamic_sizes() -> None:
    torch = pytest.importorskip("torch")
    torch._dynamo.reset()
    func = flash_attn.flash_attn_func
    compiled = torch.compile(func, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows, window in ((9, (-1, -1)), (12, (3, 2)), (7, (4, 1))):
        q = torch.from_numpy(normal(1, rows, 2, 8))
        assert torch.equal(compiled(q, q, q, window_size=window), func(q, q, q, window_size=window))
    with pytest.raises(Exception, match="softmax_scale is 'x'"):
        compiled(q, q, q, softmax_scale="x")


def test_a_gradient_is_refused_by_the_packed_arguments_name() -> None:
    torch = pytest.importorskip("torch")
    qkv = torch.ones(1, 4, 3, 2, 8, requires_grad=True)
    with pytest.raises(NotImplementedError, match=r"^qkv: it requires .* or pass qkv.detach\(\)"):
        flash_attn.flash_attn_qkvpacked_func(qkv)


def test_packed_arguments_that_are_no_arrays() -> None:
    q = np.ones((1, 4, 2, 8), np.float32)
    with pytest.raises(TypeError, match="qkv is a list"):
        flash_attn.flash_attn_qkvpacked_func([1, 2])
    with pytest.raises(TypeError, match="kv is a list"):
        flash_attn.flash_attn_kvpacked_func(q, [1, 2])


def test_an_array_for_a_number_is_refused_by_name() -> None:
    q = normal(1, 4, 2, 8)
    for name in ("dropout_p", "softcap"):
        with pytest.raises(NotImplementedError, match=f"^{name} is array"):
            flash_attn.flash_attn_func(q, q, q, **{name: np.zeros(2)})
        flash_attn.flash_attn_func(q, q, q, **{name: np.float32(0)})
