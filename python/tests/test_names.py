"""Sentences pass from layer to layer with the arguments' names of each, and nothing else changed."""

from __future__ import annotations

import pytest
from tilefold._names import OF_THE_C_LIBRARY, renamed, spelled


@pytest.mark.parametrize(
    "sentence, wanted",
    [
        ("o: its head dim is 9, but that of v is 8", "out: its head dim is 9, but that of v is 8"),
        ("lse: it overlaps that of o; an output", "out[1] (lse): it overlaps that of out; an output"),
        ("k: no; q, k, v and o must have one dtype", "k: no; q, k, v and out must have one dtype"),
        ("options.window_left is -2; accepted: -1", "window[0] (left) is -2; accepted: -1"),
        ("kernel 'a: o: b' (from options.kernel) is", "kernel 'a: o: b' (from kernel=) is"),
        ("kernel 'o' cannot serve: o: its last", "kernel 'o' cannot serve: out: its last"),
        ("options.kernels are", "options.kernels are"),
        ("the o of it, options: one", "the o of it, options: one"),
        ("foo: a stride", "foo: a stride"),
        ("", ""),
    ],
)
def test_the_c_librarys_sentences(sentence: str, wanted: str) -> None:
    assert spelled(sentence, OF_THE_C_LIBRARY) == wanted


def test_other_tables() -> None:
    options = {"scale": "softmax_scale", "window": "window_size"}
    assert spelled("scale is 'scale'; accepted", options) == "softmax_scale is 'scale'; accepted"
    assert spelled("window[0] (left) is 1.5", options) == "window_size[0] (left) is 1.5"
    assert spelled("the scale is 3", options) == "the scale is 3"
    assert spelled("window_size is 3", options) == "window_size is 3"
    packed = {"k": "kv", "v": "kv"}
    assert spelled("not a multiple of that of k and v, 3", packed) == "not a multiple of that of kv, 3"
    assert spelled("x; q, k, v and out must", packed) == "x; q, kv and out must"
    assert spelled("k: no; or pass k.detach()", packed) == "kv: no; or pass kv.detach()"


def test_errors_keep_their_kind_and_others_are_left_alone() -> None:
    for kind in (ValueError, TypeError, NotImplementedError, RuntimeError):
        error = renamed(kind("q: no"), {"q": "query"})
        assert type(error) is kind and str(error) == "query: no"
    foreign = UnicodeDecodeError("utf-8", b"q", 0, 1, "q: no")
    assert renamed(foreign, {"q": "query"}) is foreign
