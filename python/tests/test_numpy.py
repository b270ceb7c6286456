"""tilefold.attention on NumPy arrays, against float64."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tilefold
from conftest import assert_close, reference

MASKS = [
    {},
    {"causal": "top_left"},
    {"causal": "bottom_right"},
    {"window": (5, 3)},
    {"window": (None, 0)},
    {"window": (7, None), "causal": "bottom_right"},
    {"window": (4, 2), "window_align": "bottom_right"},
]


def normal(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def dtype_of(name: str) -> Any:
    if name == "bfloat16":
        return pytest.importorskip("ml_dtypes").bfloat16
    return np.dtype(name)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_matches_float64(rng: np.random.Generator, dtype: str, mask: Any) -> None:
    kind = dtype_of(dtype)
    q = normal(rng, 2, 4, 37, 24, dtype=kind)
    k, v = (normal(rng, 2, 2, 53, 24, dtype=kind) for _ in range(2))
    o, lse = tilefold.attention(q, k, v, return_lse=True, **mask)
    assert type(o) is np.ndarray and o.dtype == kind and lse.dtype == np.float32
    expected, expected_lse = reference(q, k, v, **mask)
    assert_close(o, expected, dtype)
    assert_close(lse, expected_lse, "float32")


@pytest.mark.parametrize("lengths", [(2, 5), (5, 2), (3, 128), (128, 3), (1, 1), (65, 64)])
@pytest.mark.parametrize("causal", ["top_left", "bottom_right"])
def test_causal_alignments(rng: np.random.Generator, lengths: Any, causal: str) -> None:
    nq, nk = lengths
    q, k, v = normal(rng, 1, 2, nq, 16), normal(rng, 1, 2, nk, 16), normal(rng, 1, 2, nk, 16)
    o, lse = tilefold.attention(
        q, k, v, causal=causal, return_lse=True, empty_row_lse="-inf"  # type: ignore[arg-type]
    )
    expected, expected_lse = reference(q, k, v, causal=causal, empty_row_lse=-np.inf)
    assert_close(o, expected, "float32")
    assert_close(lse, expected_lse, "float32")


def test_true_means_causal_where_the_alignments_agree(rng: np.random.Generator) -> None:
    q = normal(rng, 1, 2, 9, 8)
    assert np.array_equal(
        tilefold.attention(q, q, q, causal=True), tilefold.attention(q, q, q, causal="top_left")
    )
    k = normal(rng, 1, 2, 10, 8)
    with pytest.raises(ValueError, match="causal is True, but Nq = 9 and Nk = 10 differ"):
        tilefold.attention(q, k, k, causal=True)


def test_layouts_agree(rng: np.random.Generator) -> None:
    q, k, v = normal(rng, 2, 4, 9, 16), normal(rng, 2, 2, 11, 16), normal(rng, 2, 2, 11, 20)
    o, lse = tilefold.attention(q, k, v, return_lse=True)
    rows_first = [np.ascontiguousarray(a.transpose(0, 2, 1, 3)) for a in (q, k, v)]
    o2, lse2 = tilefold.attention(*rows_first, return_lse=True, layout="BNHD")
    assert o2.shape == (2, 9, 4, 20)
    assert np.array_equal(o, o2.transpose(0, 2, 1, 3))
    assert np.array_equal(lse, lse2)


def test_output_has_the_order_of_q_in_memory(rng: np.random.Generator) -> None:
    rows_first = normal(rng, 2, 9, 4, 16)
    q = rows_first.transpose(0, 2, 1, 3)
    o = tilefold.attention(q, q, q)
    assert o.strides == q.strides


def test_views_are_read_in_place(rng: np.random.Generator) -> None:
    whole = normal(rng, 2, 3, 20, 4, 32)
    q, k, v = (whole[:, i].transpose(0, 2, 1, 3)[:, :, ::-1, ::2] for i in range(3))
    expected, _ = reference(q, k, v)
    assert_close(tilefold.attention(q, k, v), expected, "float32")


def test_broadcast_heads_and_batch(rng: np.random.Generator) -> None:
    q = normal(rng, 2, 4, 7, 16)
    k = np.broadcast_to(normal(rng, 1, 1, 9, 16), (2, 4, 9, 16))
    assert not k.flags.writeable and k.strides[:2] == (0, 0)
    expected, _ = reference(q, k, k)
    assert_close(tilefold.attention(q, k, k), expected, "float32")
    assert_close(tilefold.attention(k, q, q), reference(k, q, q)[0], "float32")


@pytest.mark.parametrize("scale", [1.0, 0.1147, 0.0, -0.5, np.float32(0.25), 1])
def test_scale(rng: np.random.Generator, scale: Any) -> None:
    q, k = normal(rng, 1, 1, 6, 8), normal(rng, 1, 1, 5, 8)
    assert_close(
        tilefold.attention(q, k, k, scale=scale), reference(q, k, k, scale=float(scale))[0], "float32"
    )


def test_empty_rows_and_empty_axes(rng: np.random.Generator) -> None:
    q = normal(rng, 1, 2, 3, 8)
    none = np.zeros((1, 2, 0, 8), np.float32)
    o, lse = tilefold.attention(q, none, none, return_lse=True)
    assert not o.any() and np.all(lse == np.inf)
    _, lse = tilefold.attention(q, none, none, return_lse=True, empty_row_lse="-inf")
    assert np.all(lse == -np.inf)
    assert tilefold.attention(none, q, q).shape == (1, 2, 0, 8)
    assert tilefold.attention(q[:0], q[:0], q[:0]).shape == (0, 2, 3, 8)


def test_out(rng: np.random.Generator) -> None:
    q, v = normal(rng, 1, 2, 6, 8), normal(rng, 1, 2, 6, 12)
    expected, expected_lse = tilefold.attention(q, q, v, return_lse=True)
    out = np.full((1, 2, 6, 12), np.nan, np.float32)
    assert tilefold.attention(q, q, v, out=out) is out
    assert np.array_equal(out, expected)
    lse = np.full((1, 2, 6), np.nan, np.float32)
    both = tilefold.attention(q, q, v, out=(out, lse), return_lse=True)
    assert both[0] is out and both[1] is lse
    assert np.array_equal(lse, expected_lse)
    other, _ = tilefold.attention(q, q, v, out=out, return_lse=True)
    assert other is out
    inside = np.full((3, 2, 12, 6, 1), np.nan, np.float32)
    view = inside[1:2, :, :, :, 0].transpose(0, 1, 3, 2)
    assert tilefold.attention(q, q, v, out=view) is view
    assert np.array_equal(view, expected) and np.isnan(inside[0]).all() and np.isnan(inside[2]).all()


def test_out_is_refused(rng: np.random.Generator) -> None:
    q = normal(rng, 1, 2, 6, 8)
    before = q.copy()
    with pytest.raises(ValueError, match="overlap"):
        tilefold.attention(q, q, q, out=q)
    assert np.array_equal(q, before)
    out = np.empty_like(q)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        tilefold.attention(q, q, q, out=out)
    with pytest.raises(TypeError, match="dtype"):
        tilefold.attention(q, q, q, out=np.empty(q.shape, np.float16))
    with pytest.raises(ValueError, match="^out: its head dim is 9, but that of v is 8"):
        tilefold.attention(q, q, q, out=np.empty((1, 2, 6, 9), np.float32))
    with pytest.raises(ValueError, match="share memory"):
        tilefold.attention(q, q, q, out=np.lib.stride_tricks.as_strided(out.copy(), q.shape, (0, 0, 0, 4)))


def test_inputs_are_not_written(rng: np.random.Generator) -> None:
    arrays = [normal(rng, 1, 2, 6, 8) for _ in range(3)]
    for array in arrays:
        array.flags.writeable = False
    tilefold.attention(*arrays)


@pytest.mark.parametrize(
    "options, error, sentence",
    [
        ({"causal": "upper"}, ValueError, "causal is 'upper'; accepted: False, True"),
        ({"window": 3}, ValueError, "window is 3; accepted: None, or"),
        ({"window": (1, 2, 3)}, ValueError, "window is"),
        ({"window": (1, -2)}, ValueError, r"^window\[1\] \(right\) is -2"),
        ({"window": (-2, None)}, ValueError, r"^window\[0\] \(left\) is -2"),
        ({"window": (1.5, 2)}, TypeError, "an int"),
        ({"scale": "big"}, TypeError, "scale is 'big'"),
        ({"scale": float("nan")}, ValueError, "^scale is nan"),
        ({"scale": 1e300}, ValueError, r"^scale is 1e\+300; accepted: any number that float32 holds"),
        ({"layout": "HBND"}, ValueError, "layout is 'HBND'"),
        ({"empty_row_lse": "0"}, ValueError, "empty_row_lse is '0'"),
        ({"kernel": "none such"}, ValueError, r"kernel 'none such' \(from kernel=\).*tilefold.kernels"),
        ({"kernel": "\u00e9" * 900}, ValueError, "kernel '\u00e9.*\ufffd$"),  # the library cuts at 1 KiB
        ({"kernel": "cpu\0s"}, ValueError, "kernel is 'cpu"),
        ({"kernel": 7}, TypeError, "kernel is 7"),
        ({"window_align": "left"}, ValueError, "window_align is 'left'"),
        ({"num_threads": -1}, ValueError, "num_threads is -1"),
        ({"num_threads": 2**40}, ValueError, "num_threads is"),
    ],
)
def test_options_are_refused_by_name(options: Any, error: Any, sentence: str) -> None:
    q = np.ones((1, 1, 4, 8), np.float32)
    with pytest.raises(error, match=sentence) as caught:
        tilefold.attention(q, q, q, **options)
    assert "options." not in str(caught.value)


def test_outputs_are_refused_by_name() -> None:
    q = np.ones((1, 2, 6, 8), np.float32)
    o, lse = np.empty_like(q), np.empty((1, 2, 6), np.float32)
    memory = np.empty(200, np.float32)
    o_inside, lse_inside = memory[:96].reshape(q.shape), memory[90:102].reshape(lse.shape)
    for out, error, sentence in [
        ((o[0], lse), ValueError, "^out: its rank is 3; accepted: 4, as .batch, heads, Nq, Dv.$"),
        ((q, lse), ValueError, "^out: the span .* overlaps that of q;"),
        ((o.astype(np.float16), lse), TypeError, "^out: its dtype is float16.* k, v and out must have one"),
        ((o.astype(np.int32), lse), TypeError, "^out: its dtype is int32; accepted: float16"),
        ((o, lse[..., :5]), ValueError, r"^out\[1\] \(lse\): its length is 5, but that of q is 6"),
        ((o, lse[0]), ValueError, r"^out\[1\] \(lse\): its rank is 2"),
        ((o, lse.astype(np.float16)), TypeError, r"^out\[1\] \(lse\): its dtype is float16; accepted: float32"),
        ((o_inside, lse_inside), ValueError, r"^out\[1\] \(lse\): the span .* overlaps that of out;"),
        ([o, lse], TypeError, "^out: it is a list; accepted: an array, or with return_lse=True a tuple"),
    ]:
        with pytest.raises(error, match=sentence):
            tilefold.attention(q, q, q, return_lse=True, out=out)
    with pytest.raises(TypeError, match="^out: it is a tuple; accepted: an array, or with return_lse=True"):
        tilefold.attention(q, q, q, out=(o, lse))
    with pytest.raises(ValueError, match="^out: its rank is 3; accepted: 4, as .batch, Nq, heads, Dv.$"):
        tilefold.attention(q, q, q, out=o[0], layout="BNHD")


def test_axes_are_named_in_the_order_of_the_layout() -> None:
    q = np.ones((1, 2, 4, 8), np.float32)
    with pytest.raises(ValueError, match="^k: its rank is 3; accepted: 4, as .batch, kv heads, Nk, D.$"):
        tilefold.attention(q, q[0], q)
    for ask in (tilefold.attention, tilefold.explain):
        with pytest.raises(ValueError, match="^k: its rank is 3; accepted: 4, as .batch, Nk, kv heads, D.$"):
            ask(q, q[0], q, layout="BNHD")


def test_arrays_are_refused_by_name() -> None:
    q = np.ones((1, 2, 4, 8), np.float32)
    for bad, error, sentence in [
        ((q[0], q, q), ValueError, "q: its rank is 3"),
        ((q, q[0], q), ValueError, "k: its rank is 3"),
        ((q, q, q[0]), ValueError, "v: its rank is 3"),
        ((q, q[..., :4], q), ValueError, "k: its head dim is 4"),
        ((q, q, q[:, :, :3]), ValueError, "v: its length is 3"),
        ((q[:, :1], q, q), ValueError, "not a multiple"),
        ((q, q.astype(np.float16), q), TypeError, "k: its dtype is float16"),
        ((q.astype(np.float64),) * 3, TypeError, "accepted: float16, bfloat16, float32"),
        ((q.astype(">f4"),) * 3, TypeError, "q: its dtype is >f4"),
        ((q.astype(object),) * 3, TypeError, "q: its dtype is object"),
        (([1.0], q, q), TypeError, "q: it is a builtins.list"),
        ((q, None, q), TypeError, "k: it is a builtins.NoneType"),
        ((np.ma.array(q), q, q), TypeError, "mask would be ignored"),
    ]:
        with pytest.raises(error, match=sentence):
            tilefold.attention(*bad)


def test_threads_give_the_same_bits(rng: np.random.Generator) -> None:
    q = normal(rng, 2, 3, 150, 32)
    one = tilefold.attention(q, q, q, num_threads=1)
    assert np.array_equal(one, tilefold.attention(q, q, q, num_threads=3))


def test_calls_from_several_threads(rng: np.random.Generator) -> None:
    from concurrent.futures import ThreadPoolExecutor

    problems = [normal(rng, 1, 2, 40 + i, 16) for i in range(8)]
    expected = [tilefold.attention(q, q, q, causal=True) for q in problems]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            actual = list(pool.map(lambda q: tilefold.attention(q, q, q, causal=True), problems))
            assert all(np.array_equal(a, e) for a, e in zip(actual, expected))


def test_nothing_is_kept_alive() -> None:
    q = np.ones((1, 1, 4, 8), np.float32)
    tilefold.attention(q, q, q)
    before = sys.getrefcount(q)
    for _ in range(10):
        tilefold.attention(q, q, q)
        with pytest.raises(ValueError):
            tilefold.attention(q, q, q, layout="?")  # type: ignore[arg-type]
    assert sys.getrefcount(q) == before


class Wrapped:
    """A library that only speaks DLPack: its arrays make no others."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_any_dlpack_array(rng: np.random.Generator) -> None:
    q = normal(rng, 1, 2, 5, 8)
    out = Wrapped(np.empty_like(q))
    assert tilefold.attention(Wrapped(q), Wrapped(q), Wrapped(q), out=out) is out
    assert np.array_equal(out.array, tilefold.attention(q, q, q))
    with pytest.raises(TypeError, match="pass out="):
        tilefold.attention(Wrapped(q), Wrapped(q), Wrapped(q))
    with pytest.raises(TypeError, match="one library"):
        tilefold.attention(Wrapped(q), q, q)


def test_a_forked_process_computes_too() -> None:
    # In a process of its own: this one may hold threads of other libraries, which a fork may not.
    script = """
import os, sys, time
import numpy as np
import tilefold

q = np.random.default_rng(1).standard_normal((1, 8, 256, 64)).astype(np.float32)
expected = tilefold.attention(q, q, q, num_threads=2)
child = os.fork()
if child == 0:
    same = all(
        np.array_equal(tilefold.attention(q, q, q, num_threads=n), expected) for n in (0, 1, 2)
    )
    os._exit(0 if same else 1)
for _ in range(300):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        sys.exit(status)
    time.sleep(0.1)
os.kill(child, 9)
sys.exit("the child hangs")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", ["float64", "int64", "uint8", "complex64"])
def test_dtypes_that_are_not_served_are_named(name: str) -> None:
    q = np.ones((1, 1, 2, 4), name)
    with pytest.raises(TypeError, match=f"q: its dtype is {name}; accepted: float16, bfloat16, flo"):
        tilefold.attention(q, q, q)


def test_booleans() -> None:
    q = np.ones((1, 1, 2, 4), np.float32)
    expected = tilefold.attention(q, q, q, causal=True)
    assert np.array_equal(tilefold.attention(q, q, q, causal=np.True_), expected)
    tilefold.attention(q, q, q, causal=np.False_)
    with pytest.raises(TypeError, match="scale is True"):
        tilefold.attention(q, q, q, scale=True)


def test_submodules_without_an_import_and_a_stub_of_pytorch() -> None:
    script = """
import sys, types
sys.modules["torch"] = types.ModuleType("torch")
import numpy as np
import tilefold

assert {"attention", "flash_attn", "jax", "sdpa"} <= set(dir(tilefold))
assert not {"jax", "tilefold.jax", "tilefold.sdpa"} & set(sys.modules)
q = np.ones((1, 2, 3, 4), np.float32)
tilefold.attention(q, q, q)
assert tilefold.flash_attn.flash_attn_func(q, q, q).shape == q.shape
assert not hasattr(tilefold, "nothing")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_read_only_inputs(rng: np.random.Generator, dtype: str) -> None:
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    q = normal(rng, 1, 2, 5, 8, dtype=dtype)
    expected = tilefold.attention(q, np.repeat(q[:, :1], 2, 1), q)
    fixed = q.copy()
    fixed.flags.writeable = False
    o = tilefold.attention(fixed, np.broadcast_to(q[:, :1], q.shape), fixed)
    assert np.array_equal(o, expected) and o.flags.writeable
    with pytest.raises(ValueError, match="out: it is read-only"):
        tilefold.attention(q, q, q, out=fixed)
    with pytest.raises(TypeError, match="q: its dtype is"):
        wrong = np.ones((1, 2, 5, 8), np.uint16)
        wrong.flags.writeable = False
        tilefold.attention(wrong, wrong, wrong)


class Sequence:
    """Two items long, with no item 0, like a table whose rows have labels."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, item: int) -> int:
        raise KeyError(item)


class Unprintable:
    def __repr__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "options, error, sentence",
    [
        ({"window": Sequence()}, ValueError, "window is <.*Sequence.*accepted: None, or"),
        ({"window": (True, False)}, TypeError, "window.0. .left. is True; accepted: an int"),
        ({"window": (1, np.bool_(True))}, TypeError, "window.1. .right. is .*True"),
        ({"num_threads": True}, TypeError, "num_threads is True; accepted: an int"),
        ({"return_lse": "x"}, TypeError, "return_lse is 'x'; accepted: False, True"),
        ({"return_lse": np.ones(2)}, TypeError, "return_lse is array"),
        ({"causal": Unprintable()}, ValueError, "causal is a .*Unprintable; accepted: False"),
        *[
            ({name: "\ud800"}, ValueError, rf"{name} is '\\ud800'; accepted: ")
            for name in ("layout", "causal", "empty_row_lse", "kernel", "window_align")
        ],
    ],
)
def test_odd_values_are_refused_by_name(options: Any, error: Any, sentence: str) -> None:
    q = np.ones((1, 2, 4, 8), np.float32)
    with pytest.raises(error, match=f"^{sentence}"):
        tilefold.attention(q, q, q, **options)


def test_numpys_booleans_are_booleans() -> None:
    q = np.ones((1, 2, 4, 8), np.float32)
    o, lse = tilefold.attention(q, q, q, return_lse=np.bool_(True), causal=np.bool_(True))
    assert o.shape == q.shape and lse.shape == q.shape[:3]


def test_a_type_without_a_module_is_no_array() -> None:
    kind = type("Kind", (), {})
    kind.__module__ = None  # type: ignore[assignment]
    q = np.ones((1, 2, 4, 8), np.float32)
    for arrays, name in (((kind(), q, q), "q"), ((q, kind(), q), "k")):
        with pytest.raises(TypeError, match=f"^{name}: it is a None.Kind; accepted: an array"):
            tilefold.attention(*arrays)


@pytest.mark.parametrize("module, needs", [("sdpa", "torch"), ("jax", "jax")])
def test_what_a_submodule_needs_is_said(module: str, needs: str) -> None:
    code = f"""
import sys
sys.modules["{needs}"] = None
try:
    import tilefold.{module}
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith(f"{needs} tilefold.{module} needs"), done.stderr
