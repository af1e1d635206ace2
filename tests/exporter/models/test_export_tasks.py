"""Models over one vector per row, with options that were not recorded, survive torch.export."""

from typing import Any

import pytest
import torch

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.mmoe import MmoeConfig
from exporter.config.families.multi_task.pepnet import PpnetConfig
from exporter.config.families.multi_task.ple import ExtractionConfig
from exporter.dtypes import Precision
from exporter.lowering.precision import InPrecision
from exporter.towers.split import split_tower
from exporter.trace.trace_tower import trace_tower
from tests.exporter.models.rebuilt import rebuilt_tower
from tests.exporter.models.recorded import read_batch, require_close

pytestmark = pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning")  # fbgemm's

_ONE = MlpConfig(hidden_units=(1,), use_ln=True)
_NORMED = MlpConfig(hidden_units=(5, 3), activation="Dice", use_bn=True)
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "no cross layer": ("dcn_v1", {"cross_layers": 0}),
    "cross network alone": ("dcn_v2", {"backbone": None, "deep": None, "low_rank": 1}),
    "nothing shared": ("rocket_launching", {"share_mlp": None, "light_mlp": _NORMED}),
    "one expert": ("mmoe", {"mmoe": MmoeConfig(expert_mlp=_ONE, num_expert=1)}),
    "own experts only": (
        "ple",
        {
            "extractions": (
                ExtractionConfig(
                    task_experts=1, task_expert_mlp=_ONE, shared_experts=0, shared_expert_mlp=_NORMED
                ),
            )
        },
    ),
    "domains": (
        "pepnet",
        {"domains": 2, "epnet": None, "ppnet": PpnetConfig(gamma=0.5, layers=_NORMED)},
    ),
    "interventions": ("dc2vr", {"bottom_mlp": _NORMED}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_program_computes_what_eager_computes_at_other_sizes(variant: str) -> None:
    family, changes = VARIANTS[variant]
    sparse, dense = split_tower(rebuilt_tower(family, **changes), max_batch_size=64)
    batches = {
        batch: sparse.module(read_batch(family, f"model__{batch}", "in"))
        for batch in ("b1", "b2", "b3_empty", "b7", "b32")
    }
    program = trace_tower(dense, batches.pop("b7"), torch.device("cpu")).module()
    for inputs in batches.values():
        with torch.no_grad():
            require_close(program(inputs), dense.module(inputs), {})


@pytest.mark.parametrize("family", ["dcn_v1", "dcn_v2", "mmoe", "ple", "pepnet", "dc2vr"])
def test_bf16_keeps_outputs_near(family: str) -> None:
    served = rebuilt_tower(family).served
    inputs = read_batch(family, "model__b32", "in")
    with torch.no_grad():
        exact, low = served(inputs), InPrecision(served, Precision.BF16)(inputs)
    for name, output in exact.items():
        assert low[name].dtype is torch.float32
        assert float((low[name] - output).abs().max()) <= 0.05 * max(1.0, float(output.abs().max())), name
    assert any(not torch.equal(low[name], exact[name]) for name in exact)
