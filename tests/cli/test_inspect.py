"""`slipway inspect`: it shows all that an artifact holds, and cuts nothing short."""

from pathlib import Path

import pytest

from cli.main import main
from exporter.dtypes import Kernel, Precision, TableDtype
from exporter.manifest import (
    DimEntry,
    FileRef,
    Fp32Report,
    Manifest,
    OutputDifference,
    RowError,
    ShareEntry,
    SlowNode,
    SourceRef,
    SparseEntry,
    TableEntry,
    TensorEntry,
    TowerEntry,
    TraceTime,
    TriedSizes,
    VerificationReport,
    Versions,
)
from exporter.spec import Device, Mode, TowerName
from jobs.ids import new_job_id

SOURCE = SourceRef(role="checkpoint", uri=f"s3://models/{'deep/' * 40}[1]/model.ckpt-11", sha256="c" * 64)
SPARSE = SparseEntry(
    package=FileRef(path="user/sparse/aoti_model.pt2", size=2345, sha256="b" * 64),
    tensors=(TensorEntry(name="uih__sequence", dtype="float32", shape=("seq_uih", 16)),),
    dims=(DimEntry(name="seq_uih", low=0, high=None, reason="events of all rows"),),
)
QUANTISED = TableEntry(
    name="user_id_emb",
    path="embedding_group.emb_impls.__BASE__.ebc.embedding_bags.user_id_emb",
    rows=2000,
    width=16,
    dtype=TableDtype.INT8,
    fp32_bytes=128_000,
    bytes=48_000,
    error=RowError(max_absolute=0.0134, mean_absolute=0.00647, max_relative=0.0039, mean_relative=0.0031),
)
WORST = OutputDifference(output="user_tower_emb", largest=0.0035, scale=0.65, case="batch_512")
TOWER = TowerEntry(
    name=TowerName.USER,
    view="training",
    package=FileRef(path="user/dense/aoti_model.pt2", size=1, sha256="a" * 64),
    sparse=SPARSE,
    files=(FileRef(path="user/fg.json", size=7, sha256="d" * 64),),
    inputs=(),
    outputs=(),
    dims=(
        DimEntry(
            name="values_tags",
            low=0,
            high=None,
            reason="values of all rows",
            tried=TriedSizes(smallest=0, largest=65_537),
            share=ShareEntry(counts="values per row", tried=TriedSizes(smallest=0, largest=4097)),
        ),
    ),
    code="warm",
    reused="request",
    embeddings=(QUANTISED,),
    precision=Precision.FP16,
    kernel=Kernel.TRITON,
    verified=VerificationReport(
        tolerance=5e-3,
        largest_difference=0,
        cases=(),
        fp32=Fp32Report(tolerance=0.055, outputs=(WORST,)),
    ),
    stage_seconds={"compile": 12.34},
    remarks=("fg.json names files as the config does",),
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
    assert main(["inspect", str(tmp_path), "--full"]) == 0
    return capsys.readouterr().out


def test_without_full_it_is_one_screen_about_what_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = tuple(TensorEntry(name=f"f{each}.values", dtype="int64", shape=("batch",)) for each in range(300))
    towers = (TOWER.model_copy(update={"inputs": many}), TOWER.model_copy(update={"name": TowerName.ITEM}))
    manifest = MANIFEST.model_copy(update={"towers": towers})
    (tmp_path / "manifest.json").write_text(manifest.model_dump_json())
    assert main(["inspect", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert 20 <= len(told.splitlines()) <= 40
    assert "f3.values and 296 more" in told and "hstu_match" in told and "by at most 0" in told
    assert told.rstrip().endswith(f"slipway inspect {tmp_path} --full")


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


def test_it_says_which_sizes_were_tried_beside_what_the_contract_says(shown: str) -> None:
    told = " ".join(shown.replace("│", " ").split())
    assert "tried 0 to 65,537; values per row: tried 0 to 4,097; the contract says 0 to any" in told


def test_it_says_where_the_compiled_code_is_from(shown: str) -> None:
    assert "user tower: warm, neither traced nor compiled" in " ".join(shown.split())


def test_it_says_what_computes_it(shown: str) -> None:
    told = "user tower: Triton kernels that are part of the package compute its HSTU layers"
    assert told in " ".join(shown.split())


def test_it_shows_the_remarks_on_a_tower(shown: str) -> None:
    assert "user tower: fg.json names files as the config does" in " ".join(shown.split())


def test_it_says_what_lower_precision_saves_and_costs(shown: str) -> None:
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines()]
    errors = ["0.013 (0.0039 of the row)", "0.0065 (0.0031 of the row)"]
    assert ["user_id_emb", "2,000 × 16", "fp32", "int8", "48,000", "128,000", *errors] in rows
    assert ["user_tower_emb", "0.0035", "0.0054", "batch_512"] in rows
    assert "user tower: it computes in fp16 by autocast, and its outputs are fp32" in shown
    assert "user against the model in fp32: allowed 0.055 of the output's scale" in " ".join(shown.split())


def test_the_signature_of_a_job_is_checked_by_verify(capsys: pytest.CaptureFixture[str]) -> None:
    job_id = new_job_id()
    assert main(["inspect", job_id, "--verify", "signing-key.pub"]) == 1
    told = capsys.readouterr().err
    assert "takes an artifact's URI" in told and f"slipway verify {job_id} --key signing-key.pub" in told
