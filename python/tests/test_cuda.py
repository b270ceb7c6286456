"""What only a CUDA device shows: order between streams, compiled code, and the other ways in."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tilefold
from conftest import assert_close, has_cuda_build, reference
from tilefold import flash_attn

torch = pytest.importorskip("torch")

if not has_cuda_build():
    pytest.skip("this build of tilefold has no CUDA", allow_module_level=True)
if not torch.cuda.is_available():
    pytest.skip("PyTorch sees no CUDA device", allow_module_level=True)

# Long enough that work enqueued after it, on a stream that does not wait for it, runs before it.
A_WHILE = 100_000_000  # clock cycles


def normal(*shape: int, dtype: Any = torch.float16, seed: int = 1) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(values).to(device="cuda", dtype=dtype)


def check(o: Any, q: Any, k: Any, v: Any, **options: Any) -> None:
    expected, _ = reference(*(t.double().cpu().numpy() for t in (q, k, v)), **options)
    assert_close(o.double().cpu().numpy(), expected, str(q.dtype).replace("torch.", ""))


def test_gradients_are_refused() -> None:
    q = normal(1, 2, 20, 64)
    with pytest.raises(NotImplementedError, match="k: it requires a gradient"):
        tilefold.attention(q, q.clone().requires_grad_(), q)
    with torch.no_grad():
        tilefold.attention(q, q.clone().requires_grad_(), q)


def test_results_are_laid_out_as_empty_like_would() -> None:
    whole = normal(2, 40, 3, 4, 64)
    for q in (
        whole[:, :, 0],  # rows with gaps
        whole[:, :, 0].contiguous(),
        whole[:, :, 0].contiguous().transpose(1, 2),
        whole[:, :, 0].transpose(1, 2).contiguous(),
        whole[:1, :1, 0],
        whole[:, :, 0, :1].expand(2, 40, 4, 64),
        whole[:, :0, 0],
    ):
        for layout in ("BHND", "BNHD"):
            o = tilefold.attention(q, q, q, layout=layout)  # type: ignore[call-overload]
            like = torch.empty_like(q)
            assert (o.shape, o.stride(), o.dtype) == (like.shape, like.stride(), like.dtype)
            assert not o.requires_grad and not o.is_inference()
    with torch.inference_mode():
        assert tilefold.attention(q, q, q).is_inference()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compile_with_the_default_backend(mode: str) -> None:
    pytest.importorskip("triton")
    torch._dynamo.reset()

    def block(x: Any) -> Any:
        q, k, v = x.chunk(3, -1)
        o = tilefold.attention(q * 2, k, v, causal="top_left", layout="BNHD")
        return torch.relu(o) + q

    compiled = torch.compile(block, fullgraph=True, mode=mode)
    with torch.no_grad():
        for seed in range(4):  # the later ones replay a CUDA graph, where the mode makes one
            x = normal(2, 130, 4, 192, seed=seed)
            torch.testing.assert_close(compiled(x), block(x), atol=2e-3, rtol=2e-3)


def test_a_kernel_that_needs_scratch_inside_a_graph() -> None:
    # A float32 problem and a long one of few rows: whichever needs a workspace takes it from the
    # graph's own pool.
    problems = [normal(1, 1, 3, 64, dtype=torch.float32), normal(1, 2, 8, 128)]
    caches = [normal(1, 1, 5000, 64, dtype=torch.float32, seed=2), normal(1, 2, 5000, 128, seed=2)]
    expected = [tilefold.attention(q, k, k) for q, k in zip(problems, caches)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [tilefold.attention(q, k, k) for q, k in zip(problems, caches)]
    for result in results:
        result.zero_()
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    for result, wanted in zip(results, expected):
        assert torch.equal(result, wanted)


def test_memory_of_a_given_stream_is_that_streams() -> None:
    # Freed results go back to the stream that they were made for, so that the next one there may
    # take their memory although the first call still runs.
    q = normal(1, 4, 512, 64)
    expected = tilefold.attention(q, q, q)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(A_WHILE)
    for _ in range(20):
        last = tilefold.attention(q, q, q, stream=stream)
    other = [torch.full_like(q, float("nan")) for _ in range(20)]
    stream.synchronize()
    assert torch.equal(last, expected) and len(other) == 20


def test_threads_with_streams_of_their_own() -> None:
    inputs = [normal(1, 4, 300, 64, seed=seed) for seed in range(8)]
    expected = [tilefold.attention(q, q, q, causal=True) for q in inputs]
    torch.cuda.synchronize()

    def work(index: int) -> Any:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(20):
                o = tilefold.attention(inputs[index], inputs[index], inputs[index], causal=True)
        stream.synchronize()
        return o

    with ThreadPoolExecutor(8) as pool:
        for o, wanted in zip(pool.map(work, range(8)), expected):
            assert torch.equal(o, wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_flash_attn(dtype: Any) -> None:
    qkv = normal(2, 77, 3, 4, 128, dtype=dtype)
    q, k, v = (t.transpose(1, 2) for t in qkv.unbind(2))
    o = flash_attn.flash_attn_qkvpacked_func(qkv, causal=True, window_size=(30, -1))
    check(o.transpose(1, 2), q, k, v, causal="bottom_right", window=(30, None))
    short = qkv[:, :20, 0]
    o = flash_attn.flash_attn_kvpacked_func(short, qkv[:, :, 1:], causal=True)
    check(o.transpose(1, 2), short.transpose(1, 2), k, v, causal="bottom_right")
    with pytest.raises(NotImplementedError, match="dropout_p"):
        flash_attn.flash_attn_func(short, short, short, dropout_p=0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_sdpa(dtype: Any, is_causal: bool) -> None:
    from tilefold import sdpa

    q, k = normal(2, 4, 65, 96, dtype=dtype), normal(2, 2, 130, 96, dtype=dtype, seed=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", sdpa.FallbackWarning)
        o = sdpa.scaled_dot_product_attention(q, k, k, is_causal=is_causal, enable_gqa=True)
    check(o, q, k, k, causal="top_left" if is_causal else False)
    with pytest.warns(sdpa.FallbackWarning):
        sdpa._warned.clear()
        mask = torch.ones(65, 130, dtype=torch.bool, device="cuda")
        masked = sdpa.scaled_dot_product_attention(q, k, k, attn_mask=mask, enable_gqa=True)
    check(masked, q, k, k)


class Foreign:
    """An array of a library that is not known by name: DLPack's methods and nothing else."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def test_any_dlpack_array() -> None:
    q = normal(1, 4, 100, 64)
    expected = tilefold.attention(q, q, q)
    stream = torch.cuda.Stream()
    for give in (stream.cuda_stream, 0):
        out = Foreign(torch.zeros_like(q))
        late = torch.zeros_like(q)
        torch.cuda.synchronize()
        torch.cuda._sleep(A_WHILE)  # the producer's current stream is waited for, as DLPack says
        late.copy_(q)
        wrapped = Foreign(late)
        assert tilefold.attention(wrapped, wrapped, wrapped, out=out, stream=give) is out
        torch.cuda.synchronize()
        assert torch.equal(out.tensor, expected)
    with pytest.raises(ValueError, match="the current stream of test_cuda is not known"):
        tilefold.attention(wrapped, wrapped, wrapped, out=out)


def test_jax_works_on_xlas_stream() -> None:
    jax = pytest.importorskip("jax")
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError:
        pytest.skip("JAX sees no CUDA device")
    with jax.default_device(device):
        x = jax.random.normal(jax.random.key(1), (1, 4, 1024, 64), "float32")

        @jax.jit
        def slow(x: Any) -> Any:
            # Many products one after the other: attention on another stream would overtake them.
            def step(_: int, y: Any) -> Any:
                y = y @ jax.numpy.swapaxes(y, -1, -2) @ y
                return y / jax.numpy.abs(y).max()

            return jax.lax.fori_loop(0, 200, step, x).astype("float16")

        @jax.jit
        def both(x: Any) -> Any:
            q = slow(x)
            o = tilefold.attention(q, q, q, causal=True)
            return q, o, o * 2

        for _ in range(3):
            q, o, twice = both(x)
            expected, _ = reference(*(np.asarray(q, np.float32),) * 3, causal=True)
            assert_close(np.asarray(o, np.float32), expected, "float16")
            assert np.array_equal(np.asarray(twice), np.asarray(o) * 2)


def test_cupy_works_on_its_current_stream() -> None:
    cupy = pytest.importorskip("cupy")
    values = np.random.default_rng(1).standard_normal((1, 4, 256, 64)).astype(np.float16)
    ready = cupy.asarray(values)
    expected = tilefold.attention(ready, ready, ready).get()
    wait = cupy.RawKernel(
        'extern "C" __global__ void wait(long long cycles) {'
        " long long begin = clock64(); while (clock64() - begin < cycles) {} }",
        "wait",
    )
    wait((1,), (1,), (1,))
    cupy.cuda.Device().synchronize()
    for given in (False, True):
        stream = cupy.cuda.Stream(non_blocking=True)
        late = cupy.zeros_like(ready)
        cupy.cuda.Device().synchronize()
        with stream:
            wait((1,), (1,), (A_WHILE,))
            late[...] = ready
            if not given:
                o = tilefold.attention(late, late, late)
        if given:
            o = tilefold.attention(late, late, late, stream=stream)
        stream.synchronize()
        assert np.array_equal(o.get(), expected)


def test_explain_and_devices() -> None:
    device = next(d for d in tilefold.devices() if d.type == "cuda")
    assert device.usable and device.compute_capability >= (8, 0)
    q = normal(1, 4, 512, 128)
    why = tilefold.explain(q, q, q, causal=True)
    backend = {kernel.name: kernel.backend for kernel in tilefold.kernels()}[why.kernel]
    assert backend == ("sm90" if device.compute_capability == (9, 0) else "sm80")
    for kernel in tilefold.kernels():
        if kernel.backend == "cpu":
            assert "CUDA" in why.reasons[kernel.name] or "cpu" in why.reasons[kernel.name].lower()
