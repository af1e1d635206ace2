"""What each stage of TorchEasyRec's user tower gave, where ours has the same stage."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tests.exporter.models.recorded import observe, read_batch, recorded_tower

OURS = "user_tower._hstu_encoder"
ENCODER = f"model.{OURS}"
STAGES = ("_input_preprocessor._action_encoder", "_positional_encoder", "_stu_module._stu_layers.0",
          "_stu_module._stu_layers.1")  # fmt: skip
BATCHES = [("hstu_match", batch) for batch in ("b1", "b2", "b3_empty", "b32")] + [
    ("hstu_match_desc", batch) for batch in ("b1_desc", "b2_desc", "b3_empty_desc", "b32_desc")
]


class Observed(NamedTuple):
    """What our stages gave on a batch, what was recorded, and our encoder."""

    seen: dict[str, Any]
    recorded: dict[str, Tensor]
    encoder: nn.Module


@pytest.fixture(params=BATCHES, ids="-".join)
def observed(request: pytest.FixtureRequest) -> Observed:
    model, batch = request.param
    tower = recorded_tower(model, "user")
    names = [f"{OURS}.{stage}" for stage in (*STAGES, "_input_preprocessor")]
    seen = observe(tower, names, read_batch(model, f"user_tower__{batch}", "in"))
    return Observed(
        {name.removeprefix(f"{OURS}."): output for name, output in seen.items()},
        read_batch(model, f"user_tower__{batch}", "mid"),
        tower.module.get_submodule(OURS),
    )


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_embedding_groups_agree(observed: Observed) -> None:
    seen, recorded, _ = observed
    for group, tensor in seen["embedding_group"].items():
        close(tensor, recorded[f"model.embedding_group[{group}]"].to(tensor.dtype))


def test_preprocessor_agrees(observed: Observed) -> None:
    seen, recorded, _ = observed
    sequence = seen["_input_preprocessor"]
    close(sequence.values, recorded[f"{ENCODER}._input_preprocessor.6"])
    close(sequence.timestamps, recorded[f"{ENCODER}._input_preprocessor.5"])
    assert torch.equal(sequence.layout.lengths, recorded[f"{ENCODER}._input_preprocessor.3"])
    assert torch.equal(sequence.layout.offsets, recorded[f"{ENCODER}._input_preprocessor.4"])


@pytest.mark.parametrize("stage", STAGES)
def test_stages_agree(observed: Observed, stage: str) -> None:
    seen, recorded, _ = observed
    output = 0 if "layers" in stage else None
    close(seen[stage], recorded[f"{ENCODER}.{stage}" + (f".{output}" if output is not None else "")])


def test_postprocessor_agrees(observed: Observed) -> None:
    _, recorded, encoder = observed
    values = recorded[f"{ENCODER}._stu_module._stu_layers.1.0"]
    timestamps = recorded[f"{ENCODER}._input_preprocessor.5"]
    actual = encoder.get_submodule("_output_postprocessor")(values, timestamps)
    close(actual, recorded[f"{ENCODER}._output_postprocessor"])
