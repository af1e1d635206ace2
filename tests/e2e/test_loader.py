"""Recorded models in both modes, prepared and loaded as servers load them: the bits of torch's own loader."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._inductor import aoti_load_package  # noqa: TID251  what the loader is compared with

from exporter.artifact.read import find_tower, read_manifest
from exporter.spec import Mode, TowerName
from slipway.loader import InputRefused, load, prepare
from tests.e2e.conftest import FIXTURES, Export
from tests.e2e.loaded_rows import tensors_of

pytestmark = pytest.mark.slow

MODEL = "hstu_match"
ROWS = {TowerName.USER: "ref_b7.parquet", TowerName.ITEM: "ref_items_b7.parquet"}


@pytest.mark.parametrize("tower", ROWS)
@pytest.mark.parametrize("mode", Mode)
def test_a_server_gets_the_bits_of_torchs_loader(
    mode: Mode, tower: TowerName, artifact_of: Export, two_stage_of: Export, tmp_path: Path
) -> None:
    artifact = (artifact_of if mode is Mode.UNIFIED else two_stage_of)(MODEL)
    inputs = tensors_of(artifact, tower, FIXTURES / "data" / ROWS[tower], tmp_path / "fetched")
    folder = prepare(artifact, tmp_path / "prepared")
    with load(folder, tower, check="all") as served:
        outputs = served(inputs)
        assert {name: list(each.shape) for name, each in outputs.items()} == {
            entry.name: [7, *entry.shape[1:]] for entry in served.outputs
        }
        assert all(map(torch.equal, outputs.values(), of_torch(artifact, tower, inputs).values()))
        name = next(name for name in inputs if name.endswith(".lengths"))
        with pytest.raises(InputRefused, match=f"^{name.rpartition('.')[0]}"):
            served({**inputs, name: inputs[name] + 1})


def of_torch(artifact: str, tower: TowerName, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    entry = find_tower(read_manifest(artifact), tower, artifact)
    tensors = inputs
    for part in (entry.sparse, entry):
        if part is not None:
            tensors = aoti_load_package(f"{artifact}/{part.package.path}")(tensors)
    return tensors
