"""tilefold.explain, devices, kernels and the version."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tilefold


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", tilefold.__version__)


def test_devices() -> None:
    cpu = tilefold.devices()[0]
    assert (cpu.type, cpu.index, cpu.compute_capability, cpu.usable) == ("cpu", 0, (0, 0), True)
    assert all(device.type == "cuda" for device in tilefold.devices()[1:])


def test_kernels() -> None:
    kernels = tilefold.kernels()
    assert len({kernel.name for kernel in kernels}) == len(kernels)
    assert {kernel.backend for kernel in kernels} <= {"cpu", "sm80", "sm90", "generic"}
    assert all(set(kernel.dtypes) <= {"float32", "float16", "bfloat16"} for kernel in kernels)


def test_explain() -> None:
    q = np.ones((1, 2, 4, 8), np.float32)
    why = tilefold.explain(q, q, q, causal=True, return_lse=True)
    assert why.kernel in {kernel.name for kernel in tilefold.kernels() if kernel.backend == "cpu"}
    assert set(why.reasons) == {kernel.name for kernel in tilefold.kernels()}
    assert str(why).startswith(str(why.kernel))
    for kernel in tilefold.kernels():
        if kernel.backend != "cpu":
            assert "CPU" in why.reasons[kernel.name]


def test_explain_runs_nothing_and_refuses_like_attention() -> None:
    for rows in (1 << 30, 1 << 40):  # outputs larger than any address space, that are never made
        big = np.broadcast_to(np.float16(0), (1, 1, rows, 64))
        assert tilefold.explain(big, big, big, return_lse=True).kernel is not None
    q = np.ones((1, 2, 4, 8), np.float32)
    with pytest.raises(ValueError, match="k: its head dim"):
        tilefold.explain(q, q[..., :4], q)
    with pytest.raises(ValueError, match="q: its rank"):
        tilefold.explain(q[0], q, q)
    assert tilefold.explain(q, q, q, layout="BNHD").kernel is not None


def test_a_kernel_by_name() -> None:
    q = np.ones((1, 2, 4, 8), np.float32)
    name = tilefold.explain(q, q, q).kernel
    assert np.array_equal(tilefold.attention(q, q, q, kernel=name), tilefold.attention(q, q, q))
    for kernel in tilefold.kernels():
        if kernel.backend != "cpu":
            with pytest.raises(NotImplementedError, match=kernel.name):
                tilefold.attention(q, q, q, kernel=kernel.name)
            break


def test_explain_ignores_no_argument() -> None:
    q = np.ones((1, 2, 4, 8), np.float32)
    assert tilefold.explain(q, q, q, num_threads=1, empty_row_lse="-inf").kernel is not None
    with pytest.raises(ValueError, match="num_threads"):
        tilefold.explain(q, q, q, num_threads=-1)
    with pytest.raises(ValueError, match="empty_row_lse is 'x'"):
        tilefold.explain(q, q, q, empty_row_lse="x")  # type: ignore[arg-type]
