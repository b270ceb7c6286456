"""tilefold.sdpa against PyTorch's function, and what it hands over."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tilefold import sdpa  # noqa: E402

PYTORCH = torch.nn.functional.scaled_dot_product_attention


def normal(*shape: int, seed: int = 1) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdpa, "_warned", set())


def test_signature_is_pytorchs() -> None:
    assert list(inspect.signature(sdpa.scaled_dot_product_attention).parameters) == [
        "query",
        "key",
        "value",
        "attn_mask",
        "dropout_p",
        "is_causal",
        "scale",
        "enable_gqa",
    ]


@pytest.mark.parametrize("shape", [(2, 4, 9, 16), (4, 9, 16), (9, 16)])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_matches_pytorch(shape: Any, is_causal: bool, scale: Any) -> None:
    q = normal(*shape)
    k, v = (normal(*shape[:-2], 13, 16, seed=s) for s in (2, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        o = sdpa.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale)
    expected = PYTORCH(q, k, v, is_causal=is_causal, scale=scale)
    assert o.shape == expected.shape
    torch.testing.assert_close(o, expected)


def test_gqa() -> None:
    q, k = normal(1, 4, 9, 16), normal(1, 2, 9, 16, seed=2)
    o = sdpa.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    torch.testing.assert_close(o, PYTORCH(q, k, k, enable_gqa=True))


@pytest.mark.parametrize("what", ["mask", "dropout", "gradient", "dtype", "rank"])
def test_the_rest_goes_to_pytorch_with_one_warning(what: str) -> None:
    q = normal(1, 2, 6, 8)
    options: Any = {}
    if what == "mask":
        options["attn_mask"] = torch.ones(6, 6, dtype=torch.bool).tril()
    if what == "dropout":
        options["dropout_p"] = 1e-9
    if what == "gradient":
        q.requires_grad_()
    if what == "dtype":
        q = q.double()
    if what == "rank":
        q = q[None]
    with pytest.warns(sdpa.FallbackWarning, match="to PyTorch"):
        o = sdpa.scaled_dot_product_attention(q, q, q, **options)
    if what == "gradient":
        o.sum().backward()
    torch.testing.assert_close(o, PYTORCH(q, q, q, **options))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sdpa.scaled_dot_product_attention(q, q, q, **options)


def test_the_warning_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdpa, "warn_on_fallback", False)
    q = normal(1, 2, 6, 8).double()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sdpa.scaled_dot_product_attention(q, q, q)


def test_errors_are_not_hidden() -> None:
    q = normal(1, 2, 6, 8)
    with pytest.raises(ValueError, match="^key: its head dim is 4, but that of query is 8"):
        sdpa.scaled_dot_product_attention(q, q[..., :4], q)
    with pytest.raises(ValueError, match="^value: its length is 3, but that of key is 6"):
        sdpa.scaled_dot_product_attention(q, q, q[:, :, :3])
    odd = normal(1, 3, 6, 8)
    with pytest.raises(ValueError, match="^query: .* not a multiple of that of key and value, 3"):
        sdpa.scaled_dot_product_attention(q, odd, odd, enable_gqa=True)
    with pytest.warns(sdpa.FallbackWarning, match="is_causal is no bool"):
        with pytest.raises(TypeError, match="is_causal"):  # PyTorch's
            sdpa.scaled_dot_product_attention(q, q, q, is_causal="top_left")  # type: ignore[arg-type]


def test_compiles() -> None:
    torch._dynamo.reset()
    q = normal(1, 2, 6, 8)
    compiled = torch.compile(
        sdpa.scaled_dot_product_attention, fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(q, q, q, is_causal=True), PYTORCH(q, q, q, is_causal=True))


def test_compiled_code_falls_back_in_one_graph() -> None:
    torch._dynamo.reset()
    q, mask = normal(1, 2, 6, 8), torch.ones(6, 6, dtype=torch.bool).tril()
    compiled = torch.compile(
        sdpa.scaled_dot_product_attention, fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(q, q, q, attn_mask=mask), PYTORCH(q, q, q, attn_mask=mask))


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast(compiled: bool) -> None:
    torch._dynamo.reset()
    call: Any = sdpa.scaled_dot_product_attention
    if compiled:
        call = torch.compile(call, fullgraph=True, backend="aot_eager")
    q = normal(1, 2, 6, 8)
    with torch.autocast("cpu", torch.bfloat16):
        o = call(q, q.half(), q)
        expected = PYTORCH(q, q.half(), q)
    assert o.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(o, expected, rtol=3e-2, atol=3e-2)


def test_falls_back_wherever_pytorch_works() -> None:
    from torch.autograd import forward_ad

    q = normal(1, 2, 6, 8)
    lazy = torch.view_as_complex(normal(1, 2, 6, 8, 2)).conj().imag
    call = sdpa.scaled_dot_product_attention
    with pytest.warns(sdpa.FallbackWarning, match="head dim is 0"):
        torch.testing.assert_close(call(q[..., :0], q[..., :0], q), PYTORCH(q[..., :0], q[..., :0], q))
    with pytest.warns(sdpa.FallbackWarning, match="negated"):
        torch.testing.assert_close(call(lazy, q, q), PYTORCH(lazy, q, q))
    with pytest.warns(sdpa.FallbackWarning, match="not finite"):
        call(q, q, q, scale=float("nan"))
    with pytest.warns(sdpa.FallbackWarning, match="torch.func"):
        torch.testing.assert_close(torch.vmap(call)(q[None], q[None], q[None])[0], PYTORCH(q, q, q))
    functional = torch.func.functionalize(lambda q: call(q * 1, q, q, is_causal=True) + 1)
    torch.testing.assert_close(functional(q), PYTORCH(q, q, q, is_causal=True) + 1)
    w = normal(1, 2, 8, 3)
    through, expected = (
        torch.func.grad(lambda w, f=f: (f(q, q, q) @ w).sum())(w) for f in (call, PYTORCH)
    )
    torch.testing.assert_close(through, expected)
    assert call(q, q, q[..., :0]).shape == (1, 2, 6, 0)
    with pytest.warns(sdpa.FallbackWarning, match="no number"):
        torch.testing.assert_close(call(q, q, q, scale=True), PYTORCH(q, q, q, scale=True))
    # PyTorch's own kernel for the CPU has no forward-mode rule; its formula in operators has.
    only_math = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with pytest.warns(sdpa.FallbackWarning, match="type meta"):
        assert call(*(q.to("meta"),) * 3).shape == q.shape
    with forward_ad.dual_level(), only_math:
        with pytest.warns(sdpa.FallbackWarning, match="tangent"):
            o = call(forward_ad.make_dual(q, torch.ones_like(q)), q, q)
        assert forward_ad.unpack_dual(o).tangent is not None


def test_a_device_that_tilefold_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdpa, "_usable", {})
    listed = [{"type": "cuda", "index": 1, "usable": True}, {"type": "cpu", "index": 0, "usable": True}]
    monkeypatch.setattr(sdpa._core, "devices", lambda: listed)
    assert [sdpa._is_usable(index) for index in (1, 0)] == [True, False]


def test_a_warning_that_is_an_error_comes_again() -> None:
    q = normal(1, 2, 6, 8).double()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(sdpa.FallbackWarning):
                sdpa.scaled_dot_product_attention(q, q, q)
