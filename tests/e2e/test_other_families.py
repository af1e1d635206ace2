"""The families without HSTU: what `slipway export` makes of them predicts what TorchEasyRec computed.

One runs with the other tests, and every family in both modes in `make families`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from cli.main import main
from exporter.published import read_manifest
from exporter.spec import IdWeights, Mode
from tests.e2e.conftest import FIXTURES, recorded_batches

pytestmark = pytest.mark.slow

TOLERANCE = 1e-5
TWO_TOWER = ("dssm", "dssm_inner", "dat", "mind")
RANKING = ("multi_tower_din", "multi_tower_din_w", "dbmtl")
ALWAYS = ("multi_tower_din_w", Mode.UNIFIED)
EXPORTS = [
    pytest.param(
        (model, mode),
        marks=[] if (model, mode) == ALWAYS else pytest.mark.families,
        id=f"{model}-{mode}",
    )
    for model in (*TWO_TOWER, *RANKING)
    for mode in Mode
]

Exported = Callable[[str, Mode, IdWeights], str]


@pytest.fixture(scope="session")
def artifact_of(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """The artifact of a recorded model, by model, mode and weights; compiled when first asked for."""
    made: dict[tuple[str, Mode, IdWeights], str] = {}

    def artifact(model: str, mode: Mode, weights: IdWeights) -> str:
        if (model, mode, weights) not in made:
            output = tmp_path_factory.mktemp(f"{model}_{mode}")
            command = [
                "export",
                *("--config", str(FIXTURES / model / "pipeline.config")),
                *("--checkpoint", str(FIXTURES / model / "model.ckpt-11")),
                *("--item-input", str(FIXTURES / "data" / "rec" / "items.parquet")),
                *("--sample-input", str(FIXTURES / "data" / "rec" / "train.parquet")),
                *("--mode", mode, "--id-weights", weights, "--output", str(output)),
            ]
            assert main(command) == 0
            [made[model, mode, weights]] = (str(folder) for folder in output.iterdir())
        return made[model, mode, weights]

    return artifact


@pytest.mark.parametrize("export", EXPORTS)
def test_predictions_are_the_recorded_outputs(
    export: tuple[str, Mode], artifact_of: Exported, tmp_path: Path
) -> None:
    model, mode = export
    artifact = artifact_of(model, mode, IdWeights.IGNORE)  # as TorchEasyRec's own packages do
    for batch in recorded_batches(model):
        predicted = predict(artifact, batch["part"], FIXTURES / batch["parquet"], tmp_path)
        recorded = FIXTURES / model / "outputs" / f"{batch['part']}__{batch['batch']}.out.safetensors"
        if "error" in batch:  # TorchEasyRec fails on rows without any history
            assert all(np.isfinite(values).all() for values in predicted.values())
            continue
        expected = load_file(recorded)
        assert predicted.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(
                predicted[name], values, rtol=0, atol=TOLERANCE, err_msg=f"{batch['batch']}, {name}"
            )


@pytest.mark.families
def test_weighted_ids_count_as_they_did_in_training(artifact_of: Exported, tmp_path: Path) -> None:
    artifact = artifact_of("multi_tower_din_w", Mode.UNIFIED, IdWeights.APPLY)
    predicted = predict(artifact, "model", FIXTURES / "data" / "rec" / "ref_b7.parquet", tmp_path)
    trained = pq.read_table(FIXTURES / "multi_tower_din_w" / "as_trained" / "b7.parquet").to_pydict()
    assert predicted.keys() == trained.keys()
    for name, values in predicted.items():
        np.testing.assert_allclose(values, np.array(trained[name]), rtol=0, atol=TOLERANCE)
    [tower] = read_manifest(artifact).towers
    assert tower.id_weights is IdWeights.APPLY


def predict(artifact: str, part: str, rows: Path, folder: Path) -> dict[str, NDArray[np.float64]]:
    output = folder / rows.name
    command = ["predict", "--artifact", artifact, "--tower", part.removesuffix("_tower")]
    assert main([*command, "--input", str(rows), "--output", str(output)]) == 0
    columns: dict[str, list[object]] = pq.read_table(output).to_pydict()
    return {
        name: np.array(list(_numbers(values))).reshape(_shape(values)) for name, values in columns.items()
    }


def _numbers(values: object) -> Iterator[float]:
    if isinstance(values, list):
        for value in values:
            yield from _numbers(value)
    else:
        assert isinstance(values, int | float)
        yield values


def _shape(values: object) -> tuple[int, ...]:
    return (len(values), *_shape(values[0])) if isinstance(values, list) else ()
