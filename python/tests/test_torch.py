"""tilefold.attention on PyTorch tensors, on the CPU and, where there is one, a CUDA device."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tilefold
from conftest import assert_close, has_cuda_build, reference

torch = pytest.importorskip("torch")


def cuda_reason() -> str:
    if not torch.cuda.is_available():
        return "PyTorch sees no CUDA device"
    if not has_cuda_build():
        return "this build of tilefold has no CUDA"
    return ""


needs_cuda = pytest.mark.skipif(bool(cuda_reason()), reason=cuda_reason() or "-")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


class Named(torch.Tensor):
    pass


def normal(*shape: int, dtype: Any = torch.float32, device: str = "cpu", seed: int = 1) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(values).to(device=device, dtype=dtype)


def to_numpy(tensor: Any) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()


def check(o: Any, q: Any, k: Any, v: Any, **options: Any) -> None:
    expected, _ = reference(*(to_numpy(t) for t in (q, k, v)), **options)
    assert_close(to_numpy(o), expected, str(q.dtype).replace("torch.", ""))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", [False, "top_left", "bottom_right"])
def test_matches_float64(device: str, dtype: Any, causal: Any) -> None:
    q = normal(2, 4, 70, 64, dtype=dtype, device=device)
    k = normal(2, 2, 133, 64, dtype=dtype, device=device, seed=2)
    v = normal(2, 2, 133, 64, dtype=dtype, device=device, seed=3)
    o, lse = tilefold.attention(q, k, v, causal=causal, return_lse=True)
    assert type(o) is torch.Tensor and o.dtype == dtype and o.device == q.device
    assert lse.dtype == torch.float32 and lse.device == q.device
    check(o, q, k, v, causal=causal)
    _, expected_lse = reference(*(to_numpy(t) for t in (q, k, v)), causal=causal)
    assert_close(to_numpy(lse), expected_lse, "float32")


@pytest.mark.parametrize("device", DEVICES)
def test_views_layouts_and_broadcast(device: str) -> None:
    dtype = torch.float16
    qkv = normal(2, 33, 3, 4, 64, dtype=dtype, device=device)
    q, k, v = qkv.unbind(2)
    o = tilefold.attention(q, k, v, layout="BNHD", causal=True)
    assert o.shape == (2, 33, 4, 64)
    heads_first = [t.transpose(1, 2) for t in (q, k, v)]
    check(o.transpose(1, 2), *heads_first, causal=True)
    o2 = tilefold.attention(*heads_first, causal=True)
    assert torch.equal(o2, o.transpose(1, 2))
    assert o2.transpose(1, 2).is_contiguous()  # the order of q's axes in memory
    one = normal(2, 1, 40, 64, dtype=dtype, device=device)
    many = one.expand(2, 4, 40, 64)
    check(tilefold.attention(heads_first[0], many, many), heads_first[0], many, many)
    odd = normal(1, 2, 9, 66, dtype=dtype, device=device)[..., 1:65]
    check(tilefold.attention(odd, odd, odd), odd, odd, odd)


@pytest.mark.parametrize("device", DEVICES)
def test_out(device: str) -> None:
    q = normal(1, 2, 20, 64, dtype=torch.float16, device=device)
    out, lse = torch.empty_like(q), torch.empty(1, 2, 20, device=device)
    expected, expected_lse = tilefold.attention(q, q, q, return_lse=True)
    result = tilefold.attention(q, q, q, return_lse=True, out=(out, lse))
    assert result[0] is out and result[1] is lse
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)
    with pytest.raises(ValueError, match="overlap"):
        tilefold.attention(q, q, q, out=q)


def test_different_head_dims() -> None:
    q, v = normal(1, 2, 20, 64), normal(1, 2, 20, 24)
    o = tilefold.attention(q, q, v)
    assert o.shape == (1, 2, 20, 24)
    check(o, q, q, v)


def test_gradients_are_refused_unless_off() -> None:
    q = normal(1, 2, 6, 8)
    for index, name in enumerate("qkv"):
        tensors = [q, q, q]
        tensors[index] = q.clone().requires_grad_()
        with pytest.raises(NotImplementedError, match=f"{name}: it requires a gradient"):
            tilefold.attention(*tensors)
        with torch.no_grad():
            assert not tilefold.attention(*tensors).requires_grad
        with torch.inference_mode():
            tilefold.attention(*tensors)
        tilefold.attention(*(t.detach() for t in tensors))
    parameter = torch.nn.Parameter(q)
    with torch.no_grad():
        tilefold.attention(parameter, q, q)
    with pytest.raises(NotImplementedError, match="out: it requires a gradient"):
        tilefold.attention(q, q, q, out=torch.empty_like(q).requires_grad_())


def test_what_has_no_memory_is_refused() -> None:
    q = normal(1, 2, 6, 8)
    with pytest.raises(TypeError, match="device meta"):
        tilefold.attention(*(q.to("meta"),) * 3)
    with pytest.raises(TypeError, match="sparse"):
        tilefold.attention(q.to_sparse(), q, q)
    with pytest.raises(TypeError, match="k is a numpy.ndarray, but q is a torch.Tensor"):
        tilefold.attention(q, q.numpy(), q)
    with pytest.raises(TypeError, match="float16, bfloat16, float32"):
        tilefold.attention(*(q.double(),) * 3)
    with pytest.raises(TypeError, match="torch.func"):
        torch.func.vmap(tilefold.attention)(q[None], q[None], q[None])


def test_a_lazily_negated_view_is_refused() -> None:
    z = torch.view_as_complex(normal(1, 2, 6, 8, 2)).conj().imag
    assert z.is_neg()
    with pytest.raises(TypeError, match="resolve_neg"):
        tilefold.attention(z, z, z)
    z = z.resolve_neg()
    check(tilefold.attention(z, z, z), z, z, z)
    dense = torch._neg_view(z)  # type: ignore[attr-defined]
    assert dense.is_neg() and dense.stride(-1) == 1
    with pytest.raises(TypeError, match="v: its negative bit"):
        tilefold.attention(z, z, dense)
    with pytest.raises(TypeError, match="negative bit"):
        tilefold.attention(z, z, z, out=torch._neg_view(torch.empty_like(z)))  # type: ignore[attr-defined]


@pytest.mark.parametrize("device", DEVICES)
def test_a_backward_pass_sees_that_out_was_written(device: str) -> None:
    q = normal(1, 2, 20, 16, device=device)
    weight = torch.ones_like(q).requires_grad_()
    out, lse = torch.ones_like(q), torch.empty(1, 2, 20, device=device)
    product = (weight * out).sum()
    tilefold.attention(q, q, q, return_lse=True, out=(out, lse))
    assert out._version == 1 and lse._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    version = q._version
    with pytest.raises(ValueError, match="overlaps"):
        tilefold.attention(q, q, q, out=q)
    assert q._version == version  # nothing was written


def test_out_as_pytorch_has_it_in_its_modes() -> None:
    q = normal(1, 2, 20, 16)
    with torch.inference_mode():
        made = torch.empty_like(q)
        assert tilefold.attention(q, q, q, out=made) is made
    with pytest.raises(RuntimeError, match="^out: it is an inference tensor"):
        tilefold.attention(q, q, q, out=made)
    leaf = torch.zeros_like(q).requires_grad_()
    with torch.no_grad():
        assert tilefold.attention(q, q, q, out=leaf) is leaf
    assert torch.equal(leaf.detach(), made)
    subclass = torch.zeros_like(q).requires_grad_()
    with torch.no_grad():
        tilefold.attention(q.as_subclass(Named), q, q, out=subclass)
    assert torch.equal(subclass.detach(), made) and subclass._version > 0


def test_an_out_whose_subclass_knows_little() -> None:
    class Shy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, *rest: Any, **more: Any) -> Any:
            if getattr(function, "__name__", "") in ("data_ptr", "is_inference"):
                return NotImplemented
            return super().__torch_function__(function, *rest, **more)

    q, out = normal(1, 2, 20, 16), torch.zeros(1, 2, 20, 16).as_subclass(Shy)
    for given in (q, q.as_subclass(Shy)):
        out.zero_()
        assert tilefold.attention(given, q, q, out=out) is out
        torch.testing.assert_close(out.as_subclass(torch.Tensor), tilefold.attention(q, q, q))


@pytest.mark.filterwarnings("error")
def test_fake_tensors_with_out() -> None:
    with torch._subclasses.FakeTensorMode():
        q = torch.empty(1, 2, 20, 16)
        out, lse = torch.empty_like(q), torch.empty(1, 2, 20)
        tilefold.attention(q, q, q, return_lse=True, out=(out, lse))


def test_an_out_that_overlaps_is_refused_where_the_operators_are_called_too() -> None:
    class Subclass(torch.Tensor):
        pass

    for given in (normal(1, 4, 8, 16), normal(1, 4, 8, 16).as_subclass(Subclass)):
        before = given.clone()
        q = given[:, :2]
        with pytest.raises(ValueError, match="^out: the span of its bytes.* overlaps that of q"):
            tilefold.attention(q, q, q, out=given[:, 1:3])
        assert torch.equal(given, before)
        tilefold.attention(q, q, q, out=given[:, 2:])
        torch.testing.assert_close(given[:, 2:], tilefold.attention(q, q, q))
    memory = torch.zeros(400)
    o, lse = memory[:256].view(1, 2, 8, 16), memory[250:266].view(1, 2, 8)
    for q in (normal(1, 2, 8, 16), normal(1, 2, 8, 16).as_subclass(Subclass)):
        with pytest.raises(ValueError, match="overlaps that of"):
            tilefold.attention(q, q, q, return_lse=True, out=(o, lse))
    assert not memory.any()


def test_a_scale_with_a_gradient_is_refused() -> None:
    q = normal(1, 2, 20, 16)
    with pytest.raises(TypeError, match="^scale: it requires a gradient"):
        tilefold.attention(q, q, q, scale=torch.tensor(0.3, requires_grad=True))
    with torch.no_grad():
        o = tilefold.attention(q, q, q, scale=torch.tensor(0.3, requires_grad=True))
    torch.testing.assert_close(o, tilefold.attention(q, q, q, scale=0.3))


@pytest.mark.parametrize(
    "options, words",
    [
        ({"return_lse": 1}, "return_lse is 1; accepted: False, True"),
        ({"window": (True, 0)}, "window.0. .left. is True; accepted: an int"),
        ({"num_threads": True}, "num_threads is True; accepted: an int"),
    ],
)
def test_odd_values_are_refused_by_the_operators_too(options: Any, words: str) -> None:
    q = normal(1, 2, 6, 8).as_subclass(Named)
    with pytest.raises(TypeError, match=words):
        tilefold.attention(q, q, q, **options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(device: str, backend: str) -> None:
    torch._dynamo.reset()

    def block(q: Any, k: Any, v: Any) -> Any:
        o, lse = tilefold.attention(q * 2, k, v, causal="top_left", return_lse=True)
        return o + 1, lse, tilefold.attention(q, k, v, window=(3, None), layout="BHND")

    compiled = torch.compile(block, fullgraph=True, backend=backend)
    q, k, v = (normal(1, 2, 20, 64, dtype=torch.float16, device=device, seed=s) for s in range(3))
    for actual, expected in zip(compiled(q, k, v), block(q, k, v)):
        assert torch.equal(actual, expected)
        assert actual.stride() == expected.stride()


def test_compile_with_dynamic_shapes_and_out() -> None:
    torch._dynamo.reset()

    def call(q: Any, out: Any) -> Any:
        return tilefold.attention(q, q, q, causal=True, out=out)

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (5, 9, 17):
        q = normal(1, 2, rows, 16)
        out = torch.empty_like(q)
        compiled(q, out)
        assert torch.equal(out, call(q, torch.empty_like(q)))


def test_compile_refuses_gradients() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(tilefold.attention, fullgraph=True, backend="aot_eager")
    q = normal(1, 2, 5, 16).requires_grad_()
    with pytest.raises(Exception, match="requires a gradient"):
        compiled(q, q, q)


def test_the_operator_is_sound() -> None:
    from tilefold import _torch  # noqa: F401  (registers it)

    q, v = normal(1, 4, 20, 16), normal(1, 4, 20, 16)
    options = ("none", None, None, None, "+inf", "BHND", None, "auto", 0)
    for operator in (torch.ops.tilefold.attention, torch.ops.tilefold.attention_lse):
        torch.library.opcheck(operator.default, (q, q, v, *options))
        rows_first = q.transpose(1, 2)
        torch.library.opcheck(operator.default, (rows_first, rows_first, rows_first, *options))


def test_fake_tensors_and_export() -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(2, 4, 10, 16, dtype=torch.bfloat16)
        o, lse = tilefold.attention(q, q, q, return_lse=True)
        assert o.shape == q.shape and lse.shape == (2, 4, 10)

    class Module(torch.nn.Module):
        def forward(self, q: Any) -> Any:
            return tilefold.attention(q, q, q, causal=True)

    q = normal(1, 2, 6, 8)
    exported = torch.export.export(Module(), (q,))
    assert torch.equal(exported.module()(q), tilefold.attention(q, q, q, causal=True))


METADATA_FAULTS = {
    "rank of q": (lambda q: (q[0], q, q), "q: its rank is 3; accepted: 4, as .batch, heads, Nq, D."),
    "rank of k": (lambda q: (q, q[0], q), "k: its rank is 3; accepted: 4, as .batch, kv heads, Nk, D."),
    "head dim": (lambda q: (q, q[..., :4], q), "k: its head dim is 4, but that of q is 8; they must"),
    "length": (lambda q: (q, q, q[:, :, :3]), "v: its length is 3, but that of k is 6; they must be equal"),
    "batch": (lambda q: (q, q[:1], q[:1]), "k: its batch is 1, but that of q is 2; they must be equal"),
    "heads": (lambda q: (q, q[:, :3], q[:, :3]), "q: its number of heads is 4, which is not a multiple"),
    "dtypes": (lambda q: (q, q.half(), q), "k: its dtype is float16, but that of q is float32; q, k"),
    "dtype": (lambda q: (q.double(), q.double(), q.double()), "q: its dtype is float64; accepted: float16"),
    "no head dim": (lambda q: (q[..., :0], q[..., :0], q), "its head dim .D. is 0"),
}


@pytest.mark.parametrize("what", METADATA_FAULTS)
def test_what_metadata_tell_is_refused_while_tracing(what: str) -> None:
    from torch._subclasses import FakeTensorMode

    arrays, words = METADATA_FAULTS[what]
    q = normal(2, 4, 6, 8)
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        tilefold.attention(*arrays(q))
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(q)
        with pytest.raises(caught.type, match=words):
            tilefold.attention(*arrays(fake))
        with pytest.raises(caught.type, match=words):
            tilefold.attention(*arrays(fake), return_lse=True)
    for dynamic in (False, True):
        torch._dynamo.reset()
        graphs = []

        def backend(graph: Any, inputs: Any) -> Any:
            graphs.append(graph)
            return graph

        call = torch.compile(
            lambda q, k, v: tilefold.attention(q, k, v), fullgraph=True, backend=backend, dynamic=dynamic
        )
        with pytest.raises(Exception, match=words):
            call(*arrays(q))
        assert not graphs


def test_devices_and_options_are_refused_while_tracing() -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        q, on_cuda = torch.empty(1, 2, 6, 8), torch.empty(1, 2, 6, 8, device="cuda")
        with pytest.raises(ValueError, match="k: it is on cuda:0, but q is on cpu; all tensors must be"):
            tilefold.attention(q, on_cuda, q)
        with pytest.raises(TypeError, match="q: it is a torch.strided tensor on device mtia"):
            tilefold.attention(*(torch.empty(1, 2, 6, 8, device="mtia"),) * 3)  # whose fakes need no driver
        assert tilefold.attention(on_cuda, on_cuda, on_cuda).device.type == "cuda"
        for options, words in [
            ({"window": (-2, None)}, r"window\[0\] \(left\) is -2"),
            ({"scale": float("nan")}, "scale is nan"),
            ({"kernel": "none such"}, "kernel 'none such'"),
            ({"causal": "upper"}, "causal is 'upper'"),
            ({"layout": "HBND"}, "layout is 'HBND'"),
        ]:
            with pytest.raises(ValueError, match=words):
                tilefold.attention(on_cuda, on_cuda, on_cuda, **options)  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="causal is True, but Nq = 6 and Nk = 5 differ"):
            tilefold.attention(q, q[:, :, :5], q[:, :, :5], causal=True)


def test_dynamic_sizes_share_one_graph_and_are_checked_when_it_runs() -> None:
    torch._dynamo.reset()
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    def call(q: Any, k: Any, v: Any, left: int) -> Any:
        return tilefold.attention(q, k, v, causal="top_left", window=(left, None))

    compiled = torch.compile(call, fullgraph=True, backend=backend, dynamic=True)
    for rows, keys, head_dim, left in ((5, 7, 8, 2), (9, 11, 16, 3), (17, 6, 12, 4)):
        q = normal(2, 4, rows, head_dim)
        k = normal(2, 2, keys, head_dim, seed=2)
        assert torch.equal(compiled(q, k, k, left), call(q, k, k, left))
    assert len(graphs) == 1
    with pytest.raises(Exception, match="v: its length is 3"):
        compiled(q, k, k[:, :, :3], 4)


def test_sizes_that_data_decide() -> None:
    torch._dynamo.reset()

    def call(q: Any, kept: Any, dtype: Any) -> Any:
        k = q[:, :, kept.nonzero().squeeze(1)]
        return tilefold.attention(q, k, k.to(dtype), causal="top_left")

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    q, kept = normal(1, 2, 6, 8), torch.tensor([1, 0, 1, 1, 0, 1])
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert torch.equal(compiled(q, kept, torch.float32), call(q, kept, torch.float32))
        with pytest.raises(Exception, match="v: its dtype is float16, but that of q is float32"):
            compiled(q, kept, torch.float16)


@pytest.mark.parametrize("device", DEVICES)
def test_functionalize(device: str) -> None:
    functionalize = torch.func.functionalize
    q, k = normal(1, 4, 6, 8, device=device), normal(1, 2, 9, 8, device=device, seed=2)
    expected, expected_lse = tilefold.attention(q, k, k, return_lse=True)

    def changed(q: Any) -> Any:
        mine = q.clone()
        mine.mul_(2).mul_(0.5)
        return tilefold.attention(mine.transpose(1, 2).transpose(1, 2), k, k)

    def into(q: Any) -> Any:
        out = torch.empty_like(q)
        assert tilefold.attention(q, k, k, out=out) is out
        return out

    for one in (changed, into, lambda q: tilefold.attention(q, k, k)):
        assert torch.equal(functionalize(one)(q), expected)
    assert torch.equal(functionalize(lambda k: tilefold.attention(q, k, k))(k), expected)
    assert torch.equal(functionalize(lambda v: tilefold.attention(q, k, v))(k), expected)
    given = torch.empty_like(q)
    functionalize(lambda out: tilefold.attention(q, k, k, out=out))(given)
    assert torch.equal(given, expected)
    o, lse = functionalize(lambda q: tilefold.attention(q, k, k, return_lse=True))(q)
    assert torch.equal(o, expected) and torch.equal(lse, expected_lse)
    with pytest.raises(ValueError, match="k: its head dim is 4"):
        functionalize(lambda q, k: tilefold.attention(q, k, k))(q, k[..., :4])
    with pytest.raises(NotImplementedError, match="q: it requires a gradient"):
        torch.func.grad(functionalize(lambda q: tilefold.attention(q, k, k).sum()))(q)
    with pytest.raises(TypeError, match="q: it is a tensor inside a torch.func transform, which has no"):
        functionalize(tilefold.explain)(q, k, k)


def test_memory_that_is_gone_is_refused() -> None:
    q = normal(1, 2, 6, 8)
    gone = q.clone()
    gone.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="k: its data pointer is NULL"):
        tilefold.attention(q, gone, q)


def test_traces_record_the_call() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode

    def call(q: Any) -> Any:
        return tilefold.attention(q, q, q, causal=True, window=(3, None), scale=0.3)

    q, other = normal(1, 2, 6, 8), normal(1, 2, 6, 8, seed=2)
    traced = torch.jit.trace(call, (q,), check_trace=False)
    assert torch.equal(traced(other), call(other))
    assert torch.equal(make_fx(call)(q)(other), call(other))

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    names: Any = []
    with Log():
        assert torch.equal(tilefold.attention(q, q, q), tilefold.attention(q, q, q))
    assert names.count("tilefold.attention.default") == 2
    with Log(), torch._C._DisableTorchDispatch():
        tilefold.attention(q, q, q)
    with Log(), pytest.raises(ValueError, match="out: its shape"):
        tilefold.attention(q, q, q, out=torch.empty(3, 2, 6, 8))


def test_pytorchs_own_functions_answer_as_their_wrappers_do() -> None:
    from tilefold import _arrays
    from torch.utils._python_dispatch import TorchDispatchMode

    class Nothing(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
            return function(*args, **(kwargs or {}))

    addresses = _arrays._native_questions(torch)
    if 0 in addresses:
        pytest.skip("this PyTorch has no functions of these names: its wrappers are asked")
    grad_mode = ctypes.CFUNCTYPE(ctypes.c_bool)(addresses[0])
    num_modes = ctypes.CFUNCTYPE(ctypes.c_int64)(addresses[1])
    trace = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p))(addresses[2])
    for on in (True, False):
        with torch.set_grad_enabled(on):
            assert grad_mode() == on
    with torch.inference_mode():
        assert not grad_mode()
    assert num_modes() == 0
    with Nothing(), Nothing():
        assert num_modes() == 2
    seen = []

    def traced(x: Any) -> Any:
        seen.append(trace()[0])
        return x + 1

    torch.jit.trace(traced, (torch.ones(1),), check_trace=False)
    assert seen[-1] and trace()[0] is None


def run_apart(code: str) -> None:
    """Runs a program in a process of its own; its last line is "as said"."""
    paths = [os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.stdout.strip().endswith("as said"), done.stderr


def test_without_pytorchs_own_functions() -> None:
    """A PyTorch that has none of these names; in another process, since adapters are kept."""
    run_apart(
        """
import torch
from tilefold import _arrays
_arrays._native_questions = lambda torch: (0, 0, 0)
import test_torch
test_torch.test_matches_float64("cpu", torch.float32, "top_left")
test_torch.test_gradients_are_refused_unless_off()
test_torch.test_traces_record_the_call()
test_torch.test_inference_mode_tensors()
print("as said")
"""
    )


def test_compiled_before_the_first_call() -> None:
    """PyTorch imported after tilefold, and the first call a compiled one."""
    run_apart(
        """
import tilefold
import torch
def call(q):
    return tilefold.attention(q, q, q, causal=True) + 1
compiled = torch.compile(call, fullgraph=True, backend="eager")
q = torch.randn(1, 2, 6, 8)
first = compiled(q)
for _ in range(2):
    assert torch.equal(first, call(q)) and torch.equal(first, compiled(q))
print("as said")
"""
    )


def test_unknown_and_missing_arguments() -> None:
    q = normal(1, 2, 6, 8)
    with pytest.raises(TypeError, match="attention.. got an unexpected keyword argument 'mask'"):
        tilefold.attention(q, q, q, mask=None)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'v'"):
        tilefold.attention(q, q)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="takes 3 positional arguments but 4"):
        tilefold.attention(q, q, q, True)  # type: ignore[call-overload]


def test_forward_mode_ad_is_refused() -> None:
    from torch.autograd import forward_ad

    q = normal(1, 2, 6, 8)
    with forward_ad.dual_level():
        tilefold.attention(q, q, q)
        for index, name in enumerate("qkv"):
            tensors = [q, q, q]
            tensors[index] = forward_ad.make_dual(q, torch.ones_like(q))
            with pytest.raises(NotImplementedError, match=f"{name}: it has a tangent"):
                tilefold.attention(*tensors)
            with pytest.raises(NotImplementedError, match=f"{name}: it has a tangent"):
                torch.ops.tilefold.attention(
                    *tensors, "none", None, None, None, "+inf", "BHND", None, "auto", 0
                )


OUT_FAULTS = {
    "list": (TypeError, "out: it is a list; accepted: an array, or with return_lse=True"),
    "dtype": (TypeError, "out: its dtype is torch.int32"),
    "shape": (ValueError, "out: its shape is"),
    "input": (ValueError, "overlaps"),
    "kind": (TypeError, "one library"),
    "gradient": (NotImplementedError, "out: it requires a gradient"),
}


@pytest.mark.parametrize("what", OUT_FAULTS)
@pytest.mark.parametrize("where", ["compiled", "subclass"])
def test_an_unsound_out_is_refused_by_the_operators_too(what: str, where: str) -> None:
    torch._dynamo.reset()
    q = normal(1, 2, 6, 8)
    if where == "subclass":
        q = q.as_subclass(Named)
    out = {
        "dtype": torch.zeros(1, 2, 6, 8, dtype=torch.int32),
        "shape": torch.zeros(3, 2, 6, 8),
        "input": q,
        "kind": 1.0,
        "list": [torch.empty(1, 2, 6, 8)],
        "gradient": torch.zeros(1, 2, 6, 8, requires_grad=True),
    }[what]

    def call(q: Any, out: Any) -> Any:
        return tilefold.attention(q, q, q, out=out)

    kind, words = OUT_FAULTS[what]
    if where == "compiled":
        call = torch.compile(call, fullgraph=True, backend="eager")
        kind = Exception
    with pytest.raises(kind, match=words):
        call(q, out)


@pytest.mark.parametrize("where", ["compiled", "subclass"])
@pytest.mark.parametrize(
    "options, kind, words",
    [
        ({"window": 5}, ValueError, "window is 5"),
        ({"window": (1, 2, 3)}, ValueError, "window is"),
        ({"window": (1.5, 2)}, TypeError, "accepted: an int"),
        ({"causal": 1}, ValueError, "causal is 1"),
        ({"scale": "x"}, TypeError, "scale is 'x'"),
        ({"scale": True}, TypeError, "scale is True"),
        ({"layout": 3}, ValueError, "layout is 3"),
        ({"kernel": 3}, TypeError, "kernel is 3"),
        ({"num_threads": "x"}, TypeError, "num_threads is 'x'"),
    ],
)
def test_options_of_wrong_types_in_the_operators(
    where: str, options: Any, kind: Any, words: str
) -> None:
    torch._dynamo.reset()
    q = normal(1, 2, 6, 8)
    with pytest.raises(kind, match=words):
        tilefold.attention(q, q, q, **options)

    def call(q: Any) -> Any:
        return tilefold.attention(q, q, q, **options)

    if where == "compiled":
        with pytest.raises(Exception, match=words):
            torch.compile(call, fullgraph=True, backend="eager")(q)
    else:
        with pytest.raises(kind, match=words):
            call(q.as_subclass(Named))


def test_subclasses() -> None:
    q = normal(1, 2, 6, 8)
    named = q.as_subclass(Named)
    expected = tilefold.attention(q, q, q)
    assert torch.equal(tilefold.attention(named, named, named).as_subclass(torch.Tensor), expected)
    assert torch.equal(tilefold.attention(q, named, q).as_subclass(torch.Tensor), expected)
    buffer = torch.nn.Buffer(q)
    assert torch.equal(tilefold.attention(buffer, buffer, buffer), expected)
    with pytest.raises(NotImplementedError, match="requires a gradient"):
        tilefold.attention(named.clone().requires_grad_(), q, q)


def test_inference_mode_tensors() -> None:
    with torch.inference_mode():
        q = normal(1, 2, 6, 8)
        o = tilefold.attention(q, q, q)
        assert o.is_inference()
        check(o, q, q, q)


def test_tensors_in_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    q = normal(1, 2, 64, 16)
    expected = tilefold.attention(q, q, q)
    with ThreadPoolExecutor(4) as pool:
        for o in pool.map(lambda _: tilefold.attention(q, q, q), range(32)):
            assert torch.equal(o, expected)


@needs_cuda
def test_current_stream_and_given_streams() -> None:
    q = normal(1, 4, 512, 64, dtype=torch.float16, device="cuda")
    expected = tilefold.attention(q, q, q)
    torch.cuda.synchronize()
    for give in (None, "object", "address"):
        stream = torch.cuda.Stream()
        late = torch.zeros_like(q)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)  # a slow producer on the stream
            late.copy_(q)
            if give is None:
                o = tilefold.attention(late, late, late)
        if give == "object":
            o = tilefold.attention(late, late, late, stream=stream)
        if give == "address":
            o = tilefold.attention(late, late, late, stream=stream.cuda_stream)
        stream.synchronize()
        assert torch.equal(o, expected), give
    with pytest.raises(TypeError, match="stream is a str"):
        tilefold.attention(q, q, q, stream="default")


@needs_cuda
def test_cuda_graph_replays_with_new_inputs() -> None:
    q = normal(1, 4, 256, 64, dtype=torch.float16, device="cuda")
    tilefold.attention(q, q, q, causal=True)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = tilefold.attention(q, q, q, causal=True)
    for seed in (5, 6):
        q.copy_(normal(1, 4, 256, 64, dtype=torch.float16, device="cuda", seed=seed))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(o, tilefold.attention(q, q, q, causal=True))


@needs_cuda
def test_devices_must_agree() -> None:
    q = normal(1, 2, 20, 64, dtype=torch.float16)
    with pytest.raises(ValueError, match="k: it is on"):
        tilefold.attention(q.cuda(), q, q)
    with pytest.raises(ValueError, match="all tensors must be on one device"):
        tilefold.attention(q, q.cuda(), q)
    if torch.cuda.device_count() > 1:
        on_one = q.to("cuda:1")
        o = tilefold.attention(on_one, on_one, on_one)
        assert o.device == on_one.device and torch.cuda.current_device() == 0
        assert torch.equal(o.cpu(), tilefold.attention(q.cuda(), q.cuda(), q.cuda()).cpu())


@needs_cuda
@pytest.mark.parametrize("head_dim", [40, 64, 72, 96, 128, 192, 256])
def test_cuda_head_dims(head_dim: int) -> None:
    q = normal(2, 4, 150, head_dim, dtype=torch.bfloat16, device="cuda")
    k = normal(2, 1, 190, head_dim, dtype=torch.bfloat16, device="cuda", seed=2)
    check(tilefold.attention(q, k, k, window=(60, 9)), q, k, k, window=(60, 9))


def test_cuda_tensors_without_cuda_in_the_build() -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")
    if has_cuda_build():
        pytest.skip("this build of tilefold has CUDA")
    q = normal(1, 2, 6, 64, device="cuda")
    with pytest.raises(RuntimeError, match="CUDA"):
        tilefold.attention(q, q, q)
