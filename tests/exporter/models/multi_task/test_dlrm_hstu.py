"""What must hold of a ranking model whatever its weights are."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from exporter.config.families.multi_task.dlrm_hstu import DlrmHstuConfig
from exporter.errors import InvalidSpec
from exporter.models.multi_task.dlrm_hstu import COUNTS_OUTPUT, build_served
from exporter.spec import TowerName
from exporter.towers.tower import Tower
from tests.exporter.models.recorded import (
    Batch,
    load_recorded_weights,
    random_inputs,
    read_batch,
    recorded_tower,
    untrained,
)

MODEL = "dlrm_hstu"


@pytest.fixture
def tower() -> Tower:
    return recorded_tower(MODEL, "model")


def descending() -> Tower:
    """The recorded model, reading sequences newest first."""
    config = recorded_tower(MODEL, "model").config
    model = config.pipeline.model
    assert isinstance(model, DlrmHstuConfig)
    pipeline = replace(config.pipeline, model=replace(model, timestamps_ascending=False))
    tower = untrained(replace(config, pipeline=pipeline))
    load_recorded_weights(tower.module, MODEL)
    return tower


def reversed_rows(values: Tensor, lengths: Tensor) -> Tensor:
    """Each row's elements back to front."""
    return torch.cat([row.flip(0) for row in values.split(lengths.tolist())])


def with_sequences_reversed(inputs: Batch) -> Batch:
    return {
        name: reversed_rows(tensor, inputs[name.replace("values", "lengths")])
        if "_seq__" in name and name.endswith(".values")
        else tensor
        for name, tensor in inputs.items()
    }


def answers(tower: Tower, inputs: Batch) -> Batch:
    with torch.no_grad():
        outputs: Batch = tower.module(inputs)
    return outputs


def test_sequences_may_come_newest_first(tower: Tower) -> None:
    inputs = read_batch(MODEL, "model__b7", "in")
    expected = answers(tower, inputs)
    outputs = answers(descending(), with_sequences_reversed(inputs))
    counts = expected.pop(COUNTS_OUTPUT)
    assert torch.equal(outputs[COUNTS_OUTPUT], counts)
    for name, tensor in expected.items():
        torch.testing.assert_close(reversed_rows(outputs[name], counts), tensor, rtol=1e-5, atol=1e-6)


def test_a_candidates_answer_does_not_depend_on_the_others(tower: Tower) -> None:
    inputs = read_batch(MODEL, "model__b1", "in")
    together = answers(tower, inputs)
    candidates = [name for name in inputs if name.startswith("cand_seq") and name.endswith("values")]
    lengths = [name for name in inputs if name.startswith("cand_seq") and name.endswith("lengths")]
    alone = inputs | {name: inputs[name][2:3] for name in candidates}
    alone |= {name: torch.ones_like(inputs[name]) for name in lengths}
    for name, tensor in answers(tower, alone).items():
        if name != COUNTS_OUTPUT:
            torch.testing.assert_close(tensor, together[name][2:3], rtol=1e-5, atol=1e-6)


def test_rows_may_be_without_candidates(tower: Tower) -> None:
    outputs = answers(tower, random_inputs(tower, [3, 0, 2], [0, 0, 2]))
    assert outputs[COUNTS_OUTPUT].tolist() == [0, 0, 2]
    assert outputs["logits_is_like"].shape == (2, 2)
    nobody = answers(tower, random_inputs(tower, [3, 0], [0, 0]))
    assert nobody["probs_is_click"].shape == (0,)


def test_there_is_one_tower(tower: Tower) -> None:
    with pytest.raises(InvalidSpec, match="dlrm_hstu has no tower `user`"):
        build_served(replace(tower.config, name=TowerName.USER))
