"""An artifact proves itself: its packages give the answers that were published with its sample requests."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from cli.main import main
from exporter.artifact.read import file_ref, read_manifest
from exporter.manifest import Manifest, TowerEntry
from tests.e2e.conftest import FIXTURES, Export

pytestmark = pytest.mark.slow


@pytest.fixture(params=["unified", "two_stage"])
def artifact(request: pytest.FixtureRequest, artifact_of: Export, two_stage_of: Export) -> str:
    return {"unified": artifact_of, "two_stage": two_stage_of}[request.param]("hstu_match")


@pytest.fixture
def copy(artifact_of: Export, tmp_path: Path) -> Path:
    """An artifact that may be damaged."""
    return Path(shutil.copytree(artifact_of("hstu_match"), tmp_path / "copy"))


def test_every_tower_gives_the_published_answers(artifact: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prove", artifact, "--json"]) == 0
    proofs = json.loads(capsys.readouterr().out)
    assert [proof["tower"] for proof in proofs] == ["user", "item"]
    for proof in proofs:
        assert [case["name"] for case in proof["cases"]] == ["batch_1", "batch_7"]
        assert all(0 <= each < 1e-5 for case in proof["cases"] for each in case["differences"].values())


def test_verify_reads_every_file_and_runs_every_package(
    artifact: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", artifact, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    named = {file.path for tower in read_manifest(artifact).towers for file in tower.all_files}
    assert {file["path"] for file in found["files"]} == named
    assert [proof["tower"] for proof in found["towers"]] == ["user", "item"] and found["passed"]
    assert main(["inspect", artifact]) == 0
    assert 20 <= len(capsys.readouterr().out.splitlines()) <= 40


def test_predictions_keep_the_ids_of_their_rows(
    artifact_of: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = FIXTURES / "data" / "items.parquet"
    command = ["predict", "--artifact", artifact_of("hstu_match"), "--tower", "item", "--input", str(rows)]
    assert main([*command, "--output", str(tmp_path / "with.parquet")]) == 0
    kept, given = pq.read_table(tmp_path / "with.parquet"), pq.read_table(rows)
    name, *outputs = kept.column_names
    assert kept[name].to_pylist() == given[name].to_pylist()
    assert f"with {name}" in capsys.readouterr().out
    assert main([*command, "--outputs-only", "--output", str(tmp_path / "alone.parquet")]) == 0
    alone = pq.read_table(tmp_path / "alone.parquet")
    assert alone.column_names == outputs and alone[outputs[0]] == kept[outputs[0]]
    named = [*command, "--id-column", outputs[0], "--output", str(tmp_path / "refused.parquet")]
    assert main(named) == 1
    assert f"has an output {outputs[0]}" in capsys.readouterr().err


def test_the_samples_are_few_bytes_of_real_rows(artifact: str) -> None:
    for tower in read_manifest(artifact).towers:
        assert tower.samples is not None
        assert tower.samples.file in tower.served_files
        assert tower.samples.file.size < 100_000
        tensors = load_file(Path(artifact, tower.samples.file.path))
        names = {tensor.name for tensor in tower.inputs}
        assert {key.removeprefix("inputs/batch_7/") for key in tensors if "inputs/batch_7" in key} == names


def rewrite(copy: Path, change: Callable[[TowerEntry], TowerEntry]) -> Manifest:
    manifest = read_manifest(str(copy))
    manifest = manifest.model_copy(update={"towers": tuple(change(tower) for tower in manifest.towers)})
    (copy / "manifest.json").write_text(manifest.model_dump_json())
    return manifest


def test_another_answer_fails_and_says_by_how_much(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def change(tower: TowerEntry) -> TowerEntry:
        assert tower.samples is not None
        file = copy / tower.samples.file.path
        tensors = load_file(file)
        tensors[f"outputs/batch_7/{tower.outputs[0].name}"][3] += 0.5
        save_file(tensors, file)
        ref = file_ref(tower.samples.file.path, file)
        return tower.model_copy(update={"samples": tower.samples.model_copy(update={"file": ref})})

    rewrite(copy, change)
    assert main(["prove", str(copy), "--tower", "item", "--json"]) == 1
    [proof] = json.loads(capsys.readouterr().out)
    first, second = proof["cases"]
    assert not first["problem"]
    assert second["problem"].startswith("item_tower_emb differs by 0.5, allowed ")
    assert main(["prove", str(copy), "--tower", "item"]) == 1
    assert "FAILED" in capsys.readouterr().out


def test_damaged_samples_are_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = copy / "item" / "samples.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert main(["prove", str(copy), "--tower", "item"]) == 1
    assert "error [invalid_artifact]" in capsys.readouterr().err


def test_samples_that_lack_a_tensor_are_refused(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def change(tower: TowerEntry) -> TowerEntry:
        assert tower.samples is not None
        file = copy / tower.samples.file.path
        save_file({"inputs/batch_1/other": torch.zeros(1)}, file)
        ref = file_ref(tower.samples.file.path, file)
        return tower.model_copy(update={"samples": tower.samples.model_copy(update={"file": ref})})

    rewrite(copy, change)
    assert main(["prove", str(copy), "--tower", "item"]) == 1
    assert "the samples of item/samples.safetensors lack 'inputs/batch_1/" in capsys.readouterr().err


def test_without_samples_nothing_is_proved(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite(copy, lambda tower: tower.model_copy(update={"samples": None}))
    assert main(["prove", str(copy)]) == 1
    error = capsys.readouterr().err
    assert "the user tower was published without sample requests (sample_rows)" in error
