"""The spec's passes, on towers with TorchEasyRec's weights."""

from collections.abc import Sequence

import pytest
import torch

from exporter.errors import PassRefused
from exporter.manifest import AppliedPass
from exporter.packages.parts import TracedPart, plan_parts, trace_parts
from exporter.spec import Mode, Pass, SetPrecision, SwapAttention, TowerName
from exporter.towers.tower import Tower
from exporter.verify.numerics import choose_tolerance
from tests.exporter.models.recorded import random_inputs, recorded_tower

STACK = "user_tower._hstu_encoder._stu_module"
BY_HEAD = SwapAttention(tower=TowerName.USER, submodule=STACK, attention="head_by_head")
IN_BF16 = SetPrecision(tower=TowerName.USER, submodule=f"{STACK}._stu_layers.1", precision="bf16")

pytestmark = pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning")


@pytest.fixture(scope="module")
def tower() -> Tower:
    return recorded_tower("hstu_match", "user")


@pytest.fixture(scope="module")
def traced(tower: Tower) -> tuple[TracedPart, ...]:
    inputs = random_inputs(tower, [3, 9, 5, 0, 4, 2, 6])
    parts = plan_parts(tower, Mode.TWO_STAGE, max_batch_size=64)
    return trace_parts(parts, inputs, torch.device("cpu"), passes=[BY_HEAD, IN_BF16])


def test_passes_reach_the_part_that_calls_the_submodule(traced: Sequence[TracedPart]) -> None:
    sparse, dense = traced
    layers = tuple(f"{STACK}._stu_layers.{layer}._attention" for layer in (0, 1))
    assert sparse.passes == ()
    assert dense.passes == (
        AppliedPass(asked=BY_HEAD, calls=layers),
        AppliedPass(asked=IN_BF16, calls=(IN_BF16.submodule,)),
    )


def test_a_layer_takes_its_precision_and_others_keep_theirs(traced: Sequence[TracedPart]) -> None:
    state = traced[1].program.state_dict
    weights = {number: state[f"served.{STACK}._stu_layers.{number}._uvqk_weight"].dtype for number in (0, 1)}
    assert weights == {0: torch.float32, 1: torch.bfloat16}


@pytest.mark.parametrize("history", [[5, 0, 3], [1], [0, 0], [40] * 9], ids=str)
def test_an_edited_tower_stays_within_its_tolerance(
    tower: Tower, traced: Sequence[TracedPart], history: list[int]
) -> None:
    tensors = random_inputs(tower, history)
    expected = tower.module(tensors)["user_tower_emb"].detach()
    for each in traced:
        names = [tensor.name for tensor in each.part.tower.plan.inputs]
        tensors = each.program.module()({name: tensors[name] for name in names})
    difference = (tensors["user_tower_emb"].detach() - expected).abs().max() / expected.abs().max()
    assert float(difference) < choose_tolerance([BY_HEAD, IN_BF16], tower.config.options)


@pytest.mark.parametrize(
    "asked",
    [
        SetPrecision(tower=TowerName.ITEM, submodule="item_tower.mpl", precision="bf16"),
        SwapAttention(tower=TowerName.ITEM, submodule="item_tower", attention="head_by_head"),
    ],
    ids=lambda asked: str(asked.kind),
)
def test_a_pass_that_changes_nothing_is_refused(asked: Pass) -> None:
    tower = recorded_tower("hstu_match", "item")
    parts = plan_parts(tower, Mode.UNIFIED, max_batch_size=64)
    with pytest.raises(PassRefused, match=f"the item tower calls no {asked.submodule}") as refused:
        trace_parts(parts, random_inputs(tower, [1] * 5), torch.device("cpu"), passes=[asked])
    assert "item_tower.mlp" in refused.value.hint
