"""What each stage of TorchEasyRec's ranking model gave, where ours has the same stage."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.exporter.models.recorded import observe, read_batch, recorded_tower

ENCODER = "_hstu_transducer"
PREPROCESSOR = f"{ENCODER}._input_preprocessor"
STAGES = (
    f"{PREPROCESSOR}._content_embedding_mlp",
    f"{PREPROCESSOR}._action_embedding_mlp",
    f"{ENCODER}._positional_encoder",
    f"{ENCODER}._stu_module._stu_layers.0",
    f"{ENCODER}._stu_module._stu_layers.1",
    f"{ENCODER}._output_postprocessor",
    "_item_embedding_mlp",
    "_multitask_module.tower_mlp",
)
BATCHES = [
    (model, batch) for model in ("dlrm_hstu", "dlrm_hstu_trunc") for batch in ("b1", "b2", "b3_empty", "b7")
]

Observed = tuple[dict[str, Any], dict[str, Tensor]]


@pytest.fixture(params=BATCHES, ids="-".join)
def observed(request: pytest.FixtureRequest) -> Observed:
    """What our stages gave on a batch, and what was recorded."""
    model, batch = request.param
    seen = observe(
        recorded_tower(model, "model"),
        (*STAGES, PREPROCESSOR),
        read_batch(model, f"model__{batch}", "in"),
    )
    return seen, read_batch(model, f"model__{batch}", "mid")


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_embedding_groups_agree(observed: Observed) -> None:
    seen, recorded = observed
    for group, tensor in seen["embedding_group"].items():
        close(tensor, recorded[f"model.embedding_group[{group}]"].to(tensor.dtype))


def test_preprocessor_agrees(observed: Observed) -> None:
    seen, recorded = observed
    sequence = seen[PREPROCESSOR]
    assert torch.equal(sequence.layout.lengths, recorded[f"model.{PREPROCESSOR}.3"])
    close(sequence.timestamps, recorded[f"model.{PREPROCESSOR}.5"])
    close(sequence.values, recorded[f"model.{PREPROCESSOR}.6"])
    assert torch.equal(sequence.candidates.lengths, recorded[f"model.{PREPROCESSOR}.7"])


@pytest.mark.parametrize("stage", STAGES)
def test_stages_agree(observed: Observed, stage: str) -> None:
    seen, recorded = observed
    close(seen[stage], recorded[f"model.{stage}" + (".0" if "_stu_layers" in stage else "")])
