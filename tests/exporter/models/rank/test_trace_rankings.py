"""Ranking models keep every size of a batch when torch.export traces them, whatever options they have."""

import pytest
import torch

from exporter.spec import TowerName
from exporter.towers.view import training_tower
from exporter.trace.trace_tower import trace_tower
from tests.exporter.models.rank.random_rankings import RandomFeature, RandomModel
from tests.exporter.models.recorded import random_inputs, untrained

pytestmark = pytest.mark.slow

IDS = [RandomFeature(name=f"id_{number}", width=4, is_sparse=True) for number in range(3)]
RAW = [RandomFeature(name="raw", width=4, is_sparse=False)]
FINAL = "final { hidden_units: 5 }"
DENSE_MLP = "dense_mlp { hidden_units: 4 }"
LAYER = "lcb_feature_num: {} fmb_feature_num: 2 feature_num_mlp {{ hidden_units: 3 }}"
TOWER = 'towers {{ input: "{}" mlp {{ hidden_units: 3 }} }}'
ALONE, PAIR, WIDE = {"only": IDS + RAW}, {"dense": RAW, "sparse": IDS}, {"wide": IDS, "deep": IDS + RAW}


@pytest.mark.parametrize(
    ("groups", "family"),
    [
        pytest.param(ALONE, f"dlrm {{ {FINAL} arch_with_sparse: false }}", id="dlrm of pairs only"),
        pytest.param(PAIR, f"dlrm {{ {FINAL} {DENSE_MLP} arch_with_sparse: false }}", id="dlrm with dense"),
        pytest.param(PAIR, f"wukong {{ {FINAL} {DENSE_MLP} }}", id="wukong without layers"),
        pytest.param(
            PAIR,
            f"wukong {{ {FINAL} {DENSE_MLP} wukong_layers {{ {LAYER.format(2)} }} "
            f"wukong_layers {{ {LAYER.format(3)} }} }}",
            id="wukong with both residuals",
        ),
        pytest.param(WIDE, "deepfm { deep { hidden_units: 5 } }", id="deepfm added up"),
        pytest.param(WIDE, "wide_and_deep { deep { hidden_units: 5 } }", id="wide_and_deep added up"),
        pytest.param(
            WIDE,
            f"xdeepfm {{ cin {{ cin_layer_size: 3 cin_layer_size: 1 }} deep {{ hidden_units: 5 }} {FINAL} }}",
            id="xdeepfm",
        ),
        pytest.param(
            PAIR, f"multi_tower {{ {TOWER.format('dense')} {TOWER.format('sparse')} }}", id="multi_tower"
        ),
    ],
)
def test_a_model_is_traced_for_every_batch(groups: dict[str, list[RandomFeature]], family: str) -> None:
    model = RandomModel(features=IDS + RAW, groups=groups, wide_dim=4, has_dropout=True, num_class=3)
    tower = untrained(training_tower(model.pipeline(family), TowerName.MODEL))
    inputs = random_inputs(tower, [0] * 7)
    for number, feature in enumerate(IDS):  # sizes that no other input has
        inputs[f"{feature.name}.lengths"] = torch.tensor([11 + number, 2, 0, 1, 1, 0, 3])
        inputs[f"{feature.name}.values"] = torch.zeros(18 + number, dtype=torch.long)
    program = trace_tower(tower, inputs, torch.device("cpu"))
    one = {name: tensor[:1] for name, tensor in inputs.items() if not name.startswith("id_")}
    for feature in IDS:
        one |= {
            f"{feature.name}.lengths": torch.zeros(1, dtype=torch.long),
            f"{feature.name}.values": torch.zeros(0, dtype=torch.long),
        }
    traced = program.module()(one)
    torch.testing.assert_close(traced, tower.module(one))
