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


@pytest.mark.parametrize(
    "arguments, words",
    [
        ("--device tpu", "argument --device: 'tpu'; accepted: cpu, cuda, cuda:0 and so on"),
        ("--device cuda:x", "argument --device: 'cuda:x'; accepted: cpu, cuda"),
        ("--device cpu:1", "argument --device: 'cpu:1'; accepted: cpu, cuda"),
        ("--dtype int8", "argument --dtype: invalid choice: 'int8' (choose from "),
        ("--rows 4,x", "argument --rows: 'x'; accepted: whole numbers of 1 and more"),
        ("--rows 0", "argument --rows: '0'; accepted: whole numbers of 1 and more"),
        ("--rows ,", "argument --rows: ','; accepted: whole numbers of 1 and more"),
        ("--head-dims=-8", "argument --head-dims: '-8'; accepted: whole numbers of 1 and more"),
        ("--tokens 0", "argument --tokens: '0'; accepted: whole numbers of 1 and more"),
        ("--width 1.5", "argument --width: '1.5'; accepted: whole numbers of 1 and more"),
        ("--seconds nan", "argument --seconds: 'nan'; accepted: a number above 0"),
        ("--peak x", "argument --peak: 'x'; accepted: a number above 0"),
        ("--pass up", "argument --pass: invalid choice: 'up' (choose from "),
        ("--mode all", "argument --mode: invalid choice: 'all' (choose from "),
        ("--plot a.bmp", "argument --plot: 'a.bmp'; accepted: a name in .svg, .png or .pdf"),
        ("--csv FILE", "argument --csv: there is nothing to do with it; accepted: with --plot, --out"),
        ("--out FILE/a.csv", "tilefold.bench: --out FILE/a.csv cannot be written: "),
        ("--out FOLDER", "tilefold.bench: --out FOLDER cannot be written: Is a directory"),
        ("--plot FILE/a.svg", "tilefold.bench: --plot FILE/a.svg cannot be written: "),
        ("--csv FOLDER/none.csv --out FOLDER/a", "tilefold.bench: FOLDER/none.csv: No such file"),
        ("--csv FOLDER --out FOLDER/a", "tilefold.bench: FOLDER: Is a directory"),
        ("--csv FILE --out FOLDER/a", "tilefold.bench: FILE: it has no column peer, pass, dtype"),
        ("--csv BINARY --out FOLDER/a", "tilefold.bench: BINARY: it is no text in UTF-8"),
        ("--csv HUGE --out FOLDER/a", "tilefold.bench: HUGE: it is no CSV: "),
    ],
)
def test_bad_options_are_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, words: str
) -> None:
    places = {name: tmp_path / name.lower() for name in ("FILE", "FOLDER", "BINARY", "HUGE")}
    places["FOLDER"].mkdir()
    places["FILE"].write_text("a,b\n1,2\n")
    places["BINARY"].write_bytes(b"\xff\xfe\x00")
    places["HUGE"].write_text(",".join(bench.COLUMNS) + "\n" + "x" * 200000 + "\n")
    for name, path in places.items():
        arguments, words = arguments.replace(name, str(path)), words.replace(name, str(path))
    before = sorted(places["FOLDER"].iterdir())
    with pytest.raises(SystemExit):
        bench.main(arguments.split())
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.replace("python -m tilefold.bench: error: ", "").startswith(words)
    assert sorted(places["FOLDER"].iterdir()) == before


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


def test_devices_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    from types import SimpleNamespace as Fake

    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit):
            bench.main(["--device", "cuda:1"])
        assert "--device cuda:1, but PyTorch sees no CUDA device; accepted here: cpu" in capsys.readouterr().err
    chosen: Any = []
    cuda = Fake(is_available=lambda: True, device_count=lambda: 2, set_device=chosen.append)
    with pytest.raises(ValueError, match="--device cuda:2, but .*; accepted here: cpu, cuda:0, cuda:1"):
        bench._use_cuda(Fake(cuda=cuda), "cuda:2")
    bench._use_cuda(Fake(cuda=cuda), "cuda:1")
    assert chosen == [1]


def test_a_problem_that_memory_does_not_hold() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="B, H, N, D = 1, 64, 999999999999, 8: "):
        bench._inputs(torch, (1, 64, 999999999999, 8), "cpu", torch.float32)


def test_a_short_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "run.csv"
    command = "--device cpu --head-dims 32 --rows 16,32 --tokens 32 --width 32 --seconds 0.01"
    assert bench.main([*command.split(), "--out", str(out)]) == 0
    results = bench.read([out])
    assert {p.peer for p in results.points} == {"tilefold", "torch_cpu"}
    assert len(results.points) == 2 * 2 * 2 and results.peak is not None
    assert all(p.tflops > 0 for p in results.points)
