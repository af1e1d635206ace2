"""Packages of `slipway export`, of models that have no file of their own here, predict what was recorded."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from cli.main import main
from exporter.artifact.read import read_manifest
from exporter.checkpoint.read import open_checkpoint
from exporter.spec import IdWeights, Mode
from tests.e2e.conftest import FIXTURES, RANKING, TWO_TOWER
from tests.e2e.recorded import assert_as_recorded, predict
from tests.e2e.triton_server import assert_serves_samples
from tests.exporter.models.recorded import MODELS, pipeline_of, recorded_batches, rows_of

pytestmark = [pytest.mark.slow, pytest.mark.families]

SORTED_IDS, FREE = "_mch_sorted_raw_ids", 2**63 - 1  # a free slot of a map
EXPORTS = [
    pytest.param((model, mode), id=f"{model}-{mode}")
    for model in MODELS
    if model not in {*TWO_TOWER, *RANKING}  # test_recorded_outputs.py and test_two_stage.py have these
    for mode in Mode
]

Exported = Callable[[str, Mode, IdWeights], str]


def export(model: str, mode: Mode, weights: IdWeights, checkpoint: Path, output: Path) -> str:
    """Export a recorded model with a checkpoint, and return the artifact."""
    rows = rows_of(model)
    command = [
        "export",
        *("--config", str(FIXTURES / model / "pipeline.config")),
        *("--checkpoint", str(checkpoint)),
        *("--sample-input", str(rows)),
        *("--mode", mode, "--id-weights", weights, "--output", str(output)),
        *("--layout", "triton" if mode is Mode.TWO_STAGE else "slipway"),
    ]
    if any(tower.reads_items for tower in pipeline_of(model).model.towers):
        command += ["--item-input", str(rows.with_name("items.parquet"))]
    assert main(command) == 0
    [artifact] = (str(folder) for folder in output.iterdir())
    return artifact


@pytest.fixture(scope="session")
def artifact_of(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The artifact of a recorded model, by model, mode and weights; compiled when first asked for."""
    made: dict[tuple[str, Mode, IdWeights], str] = {}

    def artifact(model: str, mode: Mode, weights: IdWeights) -> str:
        if (model, mode, weights) not in made:
            output = tmp_path_factory.mktemp(f"{model}_{mode}")
            [checkpoint] = (FIXTURES / model).glob("model.ckpt-*")
            made[model, mode, weights] = export(model, mode, weights, checkpoint, output)
        return made[model, mode, weights]

    return artifact


@pytest.mark.parametrize("exported", EXPORTS)
def test_predictions_are_the_recorded_outputs(
    exported: tuple[str, Mode], artifact_of: Exported, tmp_path: Path
) -> None:
    model, mode = exported
    artifact = artifact_of(model, mode, IdWeights.IGNORE)  # as TorchEasyRec's own packages do
    for batch in recorded_batches(model):
        assert_as_recorded(artifact, model, batch, tmp_path)


@pytest.mark.parametrize("model", sorted({model for model in MODELS if model not in {*TWO_TOWER, *RANKING}}))
def test_a_model_repository_answers_sample_requests_as_published(
    model: str, artifact_of: Exported, tmp_path: Path
) -> None:
    artifact = artifact_of(model, Mode.TWO_STAGE, IdWeights.IGNORE)
    for tower in read_manifest(artifact).towers:
        assert_serves_samples(artifact, tower.name, tower.name, tmp_path)


def test_weighted_ids_count_as_they_did_in_training(artifact_of: Exported, tmp_path: Path) -> None:
    artifact = artifact_of("multi_tower_din_w", Mode.UNIFIED, IdWeights.APPLY)
    predicted = predict(artifact, "model", FIXTURES / "data" / "rec" / "ref_b7.parquet", tmp_path)
    trained = pq.read_table(FIXTURES / "multi_tower_din_w" / "as_trained" / "b7.parquet").to_pydict()
    assert predicted.keys() == trained.keys()
    for name, values in predicted.items():
        np.testing.assert_allclose(values, np.array(trained[name]).flatten(), rtol=0, atol=1e-5)
    [tower] = read_manifest(artifact).towers
    assert tower.id_weights is IdWeights.APPLY


def test_new_weights_take_the_code_of_the_earlier_export(artifact_of: Exported, tmp_path: Path) -> None:
    """Among these weights are the maps of ids, which may be others after further training."""
    model = "dcn_v2"
    [first] = read_manifest(artifact_of(model, Mode.UNIFIED, IdWeights.IGNORE)).towers
    [trained] = (FIXTURES / model).glob("model.ckpt-*")
    checkpoint = open_checkpoint(trained)
    weights = {name: checkpoint.read(name) for name in checkpoint.tensors()}
    for name, weight in weights.items():
        if name.endswith(SORTED_IDS):
            weights[name] = torch.where(weight < FREE, weight + 1, weight)
        elif weight.is_floating_point():
            weights[name] = weight * 1.25
    save_file(weights, tmp_path / "trained_further.safetensors")
    artifact = export(
        model, Mode.UNIFIED, IdWeights.IGNORE, tmp_path / "trained_further.safetensors", tmp_path / "out"
    )
    [tower] = read_manifest(artifact).towers
    assert (first.code, tower.code, tower.reused) == ("cold", "warm", "request")
    assert tower.package.sha256 != first.package.sha256
    assert {case.name for case in tower.verified.cases} == {case.name for case in first.verified.cases}
