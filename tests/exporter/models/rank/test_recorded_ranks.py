"""What each stage of TorchEasyRec's models over whole groups gave, where ours has the same stage."""

import pytest
from torch import Tensor

from exporter.models.embedded_tower import EmbeddedTower
from exporter.verify.numerics import measure_scales
from tests.exporter.models.recorded import (
    observe,
    read_batch,
    require_close,
    tolerance_of,
    tower_as_recorded,
)

FOLDERS = ("deepfm", "wide_and_deep", "xdeepfm", "dlrm", "wukong", "multi_tower")
BATCHES = ("b1", "b1_empty", "b2_allempty", "b3_empty", "b7")
_GROUP = "embedding_group["


def recorded_stages(folder: str, batch: str) -> dict[str, Tensor]:
    """What each stage gave, without padded sequences: ours have two places where all rows are empty."""
    return {
        name.removeprefix("model."): tensor.float()
        for name, tensor in read_batch(folder, f"model__{batch}", "mid").items()
        if not name.endswith(".sequence]")
    }


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("folder", FOLDERS)
def test_stages_agree(folder: str, batch: str) -> None:
    recorded = recorded_stages(folder, batch)
    stages = [name for name in recorded if not name.startswith(_GROUP)]
    assert "output_mlp" in stages
    tower = tower_as_recorded(folder, "model")
    seen = observe(tower, stages, read_batch(folder, f"model__{batch}", "in"))
    assert isinstance(tower.module, EmbeddedTower)
    groups = tower.module.embedding_group.encode(seen["embedding_group"])
    seen |= {f"{_GROUP}{name}]": tensor for name, tensor in groups.items()}
    usual = measure_scales(recorded_stages(folder, "b7"))
    found = {name: seen[name].detach().float() for name in recorded}
    require_close(found, recorded, usual, tolerance_of(folder))
