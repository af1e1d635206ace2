"""`slipway inspect`: what an artifact holds, and nothing cut short."""

from pathlib import Path

import pytest

from cli.main import main
from exporter.manifest import (
    DimEntry,
    FileRef,
    Manifest,
    SlowNode,
    SourceRef,
    SparseEntry,
    TensorEntry,
    TowerEntry,
    TraceTime,
    VerificationReport,
    Versions,
)
from exporter.spec import Device, Mode, TowerName

SOURCE = SourceRef(role="checkpoint", uri=f"s3://models/{'deep/' * 40}[1]/model.ckpt-11", sha256="c" * 64)
SPARSE = SparseEntry(
    package=FileRef(path="user/sparse/aoti_model.pt2", size=2345, sha256="b" * 64),
    tensors=(TensorEntry(name="uih__sequence", dtype="float32", shape=("seq_uih", 16)),),
    dims=(DimEntry(name="seq_uih", low=0, high=None, reason="events of all rows"),),
)
TOWER = TowerEntry(
    name=TowerName.USER,
    view="training",
    package=FileRef(path="user/dense/aoti_model.pt2", size=1, sha256="a" * 64),
    sparse=SPARSE,
    files=(FileRef(path="user/fg.json", size=7, sha256="d" * 64),),
    inputs=(),
    outputs=(),
    dims=(),
    code="warm",
    reused="request",
    verified=VerificationReport(tolerance=1e-4, largest_difference=0, cases=()),
    stage_seconds={"compile": 12.34},
    trace=TraceTime(
        nodes=471,
        seconds=3.85,
        slowest=(SlowNode(node="mul_12", operator="aten.mul.Tensor", place="stu.py:99", seconds=0.0871),),
    ),
)
MANIFEST = Manifest(
    job_id="01jd6v7x4mzq3w8c5kftn2rbha",
    created_at="2025-01-01T00:00:00Z",
    family="hstu_match",
    mode=Mode.TWO_STAGE,
    device=Device.CPU,
    architecture="x86_64",
    max_batch_size=512,
    versions=Versions(slipway="1", python="3.11", torch="2", torchrec="1", fbgemm="1", triton="3", cuda=None),
    op_libraries=(),
    sources=(SOURCE,),
    towers=(TOWER,),
)


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    (tmp_path / "manifest.json").write_text(MANIFEST.model_dump_json())
    assert main(["inspect", str(tmp_path)]) == 0
    return capsys.readouterr().out


def test_no_uri_and_no_digest_is_cut(shown: str) -> None:
    assert f"{SOURCE.uri}  sha256 {SOURCE.sha256}" in shown
    assert "…" not in shown


@pytest.mark.parametrize(
    "cells",
    [
        ["user/sparse/aoti_model.pt2", "2,345", "b" * 64],
        ["user/fg.json", "7", "d" * 64],
        ["uih__sequence", "float32", "seq_uih × 16"],
        ["dim seq_uih", "0 to unbounded", "events of all rows"],
        ["compile", "12.3"],
        ["0.087", "mul_12", "aten.mul.Tensor", "stu.py:99"],
    ],
)
def test_files_stages_and_what_passes_between_packages_are_shown(shown: str, cells: list[str]) -> None:
    rows = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in shown.splitlines()]
    assert cells in rows


def test_it_says_where_the_compiled_code_is_from(shown: str) -> None:
    assert "user tower: warm, neither traced nor compiled" in " ".join(shown.split())
