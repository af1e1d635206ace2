"""The packages of `slipway export`, through `slipway predict`, compute what TorchEasyRec computed."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from cli.main import main
from exporter.manifest import CaseKind, Manifest
from exporter.publish import read_manifest
from tests.e2e.conftest import FIXTURES, SAMPLES, Export, recorded_batches

pytestmark = pytest.mark.slow

BATCHES = [
    pytest.param(model, batch["part"], batch["batch"], batch["parquet"], id=f"{model}-{batch['batch']}")
    for model in SAMPLES
    for batch in recorded_batches(model)
]


@pytest.mark.parametrize(("model", "part", "batch", "rows"), BATCHES)
def test_predictions_are_the_recorded_outputs(
    model: str, part: str, batch: str, rows: str, artifact_of: Export, tmp_path: Path
) -> None:
    output, tower = tmp_path / "out.parquet", part.removesuffix("_tower")
    command = ["predict", "--artifact", artifact_of(model), "--tower", tower]
    assert main([*command, "--input", str(FIXTURES / rows), "--output", str(output)]) == 0
    predicted = pq.read_table(output).to_pydict()
    recorded = load_file(FIXTURES / model / "outputs" / f"{part}__{batch}.out.safetensors")
    assert predicted.keys() == recorded.keys()
    for name, expected in recorded.items():
        np.testing.assert_allclose(np.array(predicted[name]), expected, rtol=0, atol=1e-5)


@pytest.fixture(params=SAMPLES)
def manifest(request: pytest.FixtureRequest, artifact_of: Export) -> Manifest:
    return read_manifest(artifact_of(request.param))


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
    assert {"longest_history", "empty_history"} <= agreeing.keys()
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


def test_a_server_learns_what_to_import(manifest: Manifest) -> None:
    assert manifest.op_libraries == ("fbgemm_gpu",)


def test_inspect_shows_the_manifest(
    manifest: Manifest, artifact_of: Export, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact = next(artifact_of(model) for model in SAMPLES if manifest.job_id in artifact_of(model))
    assert main(["inspect", artifact, "--json"]) == 0
    assert Manifest.model_validate_json(capsys.readouterr().out) == manifest
    assert main(["inspect", artifact]) == 0
    assert "user verified" in capsys.readouterr().out
