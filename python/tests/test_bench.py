"""tilefold.bench: its CSV is read back as it was written, and drawn; a short run on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tilefold import bench

TABLE = """# a machine
# peak: 840.5 TFLOP/s (wgmma from registers)
peer,pass,dtype,hdim,causal,batch,heads,seqlen,median_ms,tflops,extra
tilefold_sm90,fwd,fp16,128,0,4,16,4096,1.0,550.0,x
tilefold_sm90,fwd,fp16,128,0,2,16,8192,2.0,560.0,x
torch_fa2,fwd,fp16,128,0,4,16,4096,1.5,370.0,x
torch_fa2,fwd,fp16,64,1,4,16,4096,1.5,370.0,x
torch_fa2,bwd,bf16,64,1,4,16,4096,1.5,370.0,x
"""


def test_tables_are_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(TABLE)
    results = bench.read([path])
    assert len(results.points) == 5
    assert results.points[3].causal and results.points[4].direction == "bwd"
    assert results.peak == 840.5 and results.peak_name == "wgmma from registers"
    again = tmp_path / "b.csv"
    with again.open("w") as file:
        bench.write(results, file)
    assert bench.read([again]) == results


def test_gflops_and_modes(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "peer,pass,dtype,hdim,causal,batch,heads,seqlen,median_ms,gflops,mode\n"
        "torch,forward,float32,64,0,1,4,4096,101.7,168.9,sustained\n"
        "torch,forward,float32,64,0,1,4,4096,90.0,190.9,burst\n"
    )
    (point,) = bench.read([path]).points
    assert (point.direction, point.dtype, point.tflops) == ("fwd", "fp32", pytest.approx(0.1689))
    (point,) = bench.read([path], mode="burst").points
    assert point.median_ms == 90.0


def test_bad_tables_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("peer,pass\nx,fwd\n")
    with pytest.raises(ValueError, match="a.csv: it has no column dtype, hdim"):
        bench.read([path])
    path.write_text(TABLE.replace(",4096,1.0", ",four,1.0"))
    with pytest.raises(ValueError, match="line 1 of the table"):
        bench.read([path])
    with pytest.raises(SystemExit):
        bench.main(["--csv", str(tmp_path / "none.csv"), "--plot", "x.svg"])
    assert "none.csv" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_pictures(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "a.csv"
    path.write_text(TABLE)
    picture = tmp_path / "new" / f"a.{suffix}"
    assert bench.main(["--csv", str(path), "--plot", str(picture)]) == 0
    assert picture.stat().st_size > 1000
    with pytest.raises(SystemExit):
        bench.main(["--csv", str(path), "--plot", str(picture), "--dtype", "fp32"])


def test_the_peak_is_that_of_the_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace as Fake

    hopper = Fake(name="NVIDIA H200", major=9, minor=0, multi_processor_count=132)
    torch = Fake(cuda=Fake(get_device_properties=lambda device: hopper))
    listed = Fake(stdout="NVIDIA H200 NVL, 1785\nNVIDIA H200, 1980\n")
    monkeypatch.setattr(bench.subprocess, "run", lambda *command, **options: listed)
    assert bench._tensor_peak(torch, "cuda") == (pytest.approx(1070.5, abs=0.1), "the tensor cores at 1980 MHz")
    hopper.minor = 1  # a processor that is not known
    assert bench._tensor_peak(torch, "cuda") is None

    def absent(*command: Any, **options: Any) -> Any:
        raise FileNotFoundError("nvidia-smi")

    hopper.minor = 0
    monkeypatch.setattr(bench.subprocess, "run", absent)
    assert bench._tensor_peak(torch, "cuda") is None


def test_a_short_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "run.csv"
    command = "--device cpu --head-dims 32 --rows 16,32 --tokens 32 --width 32 --seconds 0.01"
    assert bench.main([*command.split(), "--out", str(out)]) == 0
    results = bench.read([out])
    assert {p.peer for p in results.points} == {"tilefold", "torch_cpu"}
    assert len(results.points) == 2 * 2 * 2 and results.peak is not None
    assert all(p.tflops > 0 for p in results.points)
