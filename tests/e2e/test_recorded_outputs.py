"""The packages of `slipway export`, through `slipway predict`, compute what TorchEasyRec computed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from cli.main import main
from exporter.artifact.read import read_manifest
from exporter.manifest import CaseKind, Manifest
from exporter.serving.predict import find_unmet_demand
from exporter.spec import Device
from tests.e2e.conftest import FIXTURES, RANKING, SAMPLES, TWO_TOWER, Export, marks_of
from tests.exporter.models.recorded import recorded_batches

pytestmark = pytest.mark.slow

COUNTS = "__TARGET_REPEAT_INTERLEAVE_KEY__"  # candidates per row
BATCHES = [
    pytest.param(
        *(model, batch["part"], batch["batch"], batch["parquet"]),
        id=f"{model}-{batch['batch']}",
        marks=marks_of(model),
    )
    for model in SAMPLES
    for batch in recorded_batches(model)
]


@pytest.mark.parametrize(("model", "part", "batch", "rows"), BATCHES)
def test_predictions_are_the_recorded_outputs(
    model: str, part: str, batch: str, rows: str, artifact_of: Export, tmp_path: Path
) -> None:
    output, tower = tmp_path / "out.parquet", part.removesuffix("_tower")
    command = ["predict", "--artifact", artifact_of(model), "--tower", tower]
    assert main([*command, "--outputs-only", "--input", str(FIXTURES / rows), "--output", str(output)]) == 0
    predicted = pq.read_table(output).to_pydict()
    recorded = load_file(FIXTURES / model / "outputs" / f"{part}__{batch}.out.safetensors")
    assert predicted.keys() == recorded.keys()
    for name, expected in recorded.items():
        values = predicted[name]
        if part == "model" and name != COUNTS:  # a list per row, of a value per candidate
            assert [len(row) for row in values] == recorded[COUNTS].tolist()
            values = [value for row in values for value in row]
        np.testing.assert_allclose(np.array(values), expected, rtol=0, atol=1e-5)


def test_a_package_that_says_it_is_for_a_gpu_is_refused_by_name_on_a_cpu(
    artifact_of: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = shutil.copytree(artifact_of("hstu_match"), tmp_path / "other")
    manifest = read_manifest(str(other)).model_copy(update={"device": Device.CUDA, "architecture": "sm_999"})
    (other / "manifest.json").write_text(manifest.model_dump_json())
    rows = ["--input", str(FIXTURES / "data" / "items.parquet"), "--output", str(tmp_path / "out.parquet")]
    assert main(["predict", "--artifact", str(other), "--tower", "item", *rows]) == 1
    assert "the package was built for sm_999, and this machine lacks sm_999" in capsys.readouterr().err


@pytest.fixture(params=[pytest.param(model, marks=marks_of(model)) for model in RANKING])
def ranker(request: pytest.FixtureRequest, artifact_of: Export) -> str:
    """The artifact of a ranking model."""
    return artifact_of(request.param)


def test_a_ranking_model_is_one_tower_with_outputs_per_candidate(ranker: str) -> None:
    [tower] = read_manifest(ranker).towers
    assert (tower.name, tower.view, tower.package.path) == ("model", "training", "model/aoti/aoti_model.pt2")
    shapes = {output.name: output.shape for output in tower.outputs}
    assert shapes.pop(COUNTS) == ("batch",)
    assert shapes["probs_is_like"] == ("seq_cand_seq", 2)
    assert {shape[0] for shape in shapes.values()} == {"seq_cand_seq"}


def test_a_server_learns_which_sequence_counts_the_candidates(ranker: str) -> None:
    settings = json.loads(Path(ranker, "model", "model_acc.json").read_text())
    assert settings["cand_seq_pk"] == "cand_seq"


def test_rankings_were_tried_without_history_and_with_one_candidate(ranker: str) -> None:
    [tower] = read_manifest(ranker).towers
    sizes = {case.name: case.sizes for case in tower.verified.cases if case.kind is CaseKind.AGREES}
    assert {case["batch"] for case in sizes.values()} >= {1, 2, 3, 7, 32, 512}
    assert sizes["empty:uih_seq"]["seq_uih_seq"] == 0 < sizes["empty:uih_seq"]["seq_cand_seq"]
    assert sizes["empty:cand_seq"]["seq_cand_seq"] == 0
    assert sizes["one_element:cand_seq"]["seq_cand_seq"] == 1


@pytest.fixture(params=[pytest.param(model, marks=marks_of(model)) for model in TWO_TOWER])
def matcher(request: pytest.FixtureRequest, artifact_of: Export) -> str:
    """The artifact of a model of two towers."""
    return artifact_of(request.param)


@pytest.fixture
def manifest(matcher: str) -> Manifest:
    return read_manifest(matcher)


def test_the_layout_is_what_torcheasyrec_serves(manifest: Manifest) -> None:
    paths = {ref.path for tower in manifest.towers for ref in (tower.package, *tower.files)}
    files = ("aoti/aoti_model.pt2", "pipeline.config", "fg.json", "model_acc.json")
    assert paths == {f"{tower}/{name}" for tower in ("user", "item") for name in files}


def test_every_size_of_the_gate_was_tried(manifest: Manifest) -> None:
    user, item = manifest.towers
    agreeing = {
        case.name: case.sizes["batch"] for case in user.verified.cases if case.kind is CaseKind.AGREES
    }
    assert set(agreeing.values()) >= {1, 2, 3, 7, 32, manifest.max_batch_size}
    assert {"full_history", "empty_row", "high_counts", "full_batch"} <= agreeing.keys()
    assert item.verified.cases[0].sizes == {"batch": 1}
    refusing = [case for case in user.verified.cases if case.kind is CaseKind.REFUSES]
    assert len(refusing) >= 4
    assert all(case.passed for case in refusing)


def test_the_history_shares_one_dim(manifest: Manifest) -> None:
    user = manifest.towers[0]
    sharing = [tensor.name for tensor in user.inputs if "seq_uih_seq" in tensor.shape]
    assert sharing == [
        f"uih_seq__{name}.values" for name in ("action_timestamp", "action_weight", "video_id", "watch_time")
    ]
    assert user.outputs[0].shape[0] == "batch"


def test_a_server_learns_what_a_refusal_means(manifest: Manifest) -> None:
    user, item = manifest.towers
    refusing = [case.detail for case in user.verified.cases if case.name.startswith("lengths_differ")]
    assert [find_unmet_demand(refusal, user.demands) for refusal in refusing] == [
        "uih_seq__action_timestamp.lengths differs from uih_seq__video_id.lengths"
    ]
    assert item.demands[0] == "video_id.values has an id outside the 2000 rows of table video_id_emb"


def test_a_server_learns_what_to_import(manifest: Manifest) -> None:
    assert manifest.op_libraries == ("fbgemm_gpu",)


def test_inspect_shows_the_manifest(
    matcher: str, manifest: Manifest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", matcher, "--json"]) == 0
    assert Manifest.model_validate_json(capsys.readouterr().out) == manifest
    assert main(["inspect", "--full", matcher]) == 0
    assert "user verified" in capsys.readouterr().out
