"""Places of errors are found again in a config's text."""

import re
from pathlib import Path

import pytest

from exporter.config.message import read_message
from exporter.config.positions import errors_with_lines, line_of
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"
CONFIGS = sorted(FIXTURES.glob("*/pipeline.config"))

TEXT = """# feature_configs { id_feature { feature_name: "shared" } }
feature_configs { id_feature { feature_name: "a"
    embedding_name: "b" } }
feature_configs: < id_feature: < feature_name: 'b'; num_buckets: -1, > >
feature_configs { sequence_feature {
  sequence_name: "clicks"
  features { id_feature { feature_name: "a" } }
  features { raw_feature {
    feature_name: "p" "rice"
  } }
} }
model_config {
  feature_groups {
    group_name: "deep"
    feature_names: ["a",
                    "b"]
    sequence_encoders [
      { pooling_encoder { input: "x" } },
      {
        din_encoder { input: "y" attn_mlp {
          hidden_units: 0 } } }
    ]
  }
  dbmtl {
    task_towers { tower_name: "ctr"
    }
    task_towers { tower_name: "cvr"
      mlp {
      }
    }
  }
}
"""


@pytest.mark.parametrize(
    ("place", "problem", "line"),
    [
        ("feature_configs[0]", "", 2),
        ("feature_configs: a", "", 2),
        ("feature_configs: a", "id_feature a: embedding_name is taken", 3),
        ("feature_configs: b", "", 4),
        ("feature_configs[1].id_feature.num_buckets", "", 4),
        ("feature_configs: clicks__a", "", 7),
        ("feature_configs: clicks_price", "", 8),
        ("feature_configs: clicks__price", "its feature_name is odd", 8),
        ("feature_configs: clicks, features[1]", "", 8),
        ("feature_configs[2].sequence_feature.sequence_name", "", 6),
        ("feature_groups: deep", "", 13),
        ("feature_groups: deep", "no feature is named b", 16),
        ("model_config.feature_groups", "", 13),
        ("feature_groups: deep, sequence_encoders[1].din_encoder.attn_mlp", "", 20),
        ("feature_groups: deep, sequence_encoders[1].din_encoder.attn_mlp", "hidden_units hold a 0", 21),
        ("model_config.dbmtl", "", 24),
        ("model_config.dbmtl: task cvr.mlp", "", 28),
        ("model_config.dbmtl: task ctr.mlp", "", 25),  # the task has no mlp
        ("model_config.dbmtl.expert_mlp", "", 24),
        ("model_config.mmoe", "", 12),
        ("export_config.mixed_precision", "", None),
        ("feature_configs: nowhere", "", None),
        ("", "", None),
    ],
)
def test_a_place_has_a_line(place: str, problem: str, line: int | None) -> None:
    assert line_of(TEXT, place, problem) == line


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.parent.name)
def test_every_entry_of_the_recorded_configs_is_found(config: Path) -> None:
    text = config.read_text()
    lines = text.splitlines()

    def after(place: str) -> str:
        line = line_of(text, place)
        assert line is not None, place
        return "".join(lines[line - 1 : line + 6])

    message = read_message(text, "config")
    for position, entry in enumerate(message.feature_configs):
        kind = entry.WhichOneof("feature")
        feature = getattr(entry, kind or "")
        assert f"{kind} {{" in after(f"feature_configs[{position}]")
        if kind != "sequence_feature":
            assert f'"{feature.feature_name}"' in after(f"feature_configs: {feature.feature_name}")
            continue
        for inner in feature.features:
            name = getattr(inner, inner.WhichOneof("feature") or "").feature_name
            assert f'"{name}"' in after(f"feature_configs: {feature.sequence_name}__{name}")
    for group in message.model_config.feature_groups:
        assert f'"{group.group_name}"' in after(f"feature_groups: {group.group_name}")
    model = message.model_config.WhichOneof("model")
    assert re.search(rf"^\s+{model} \{{", after(f"model_config.{model}"))


def test_an_error_tells_the_line_once() -> None:
    with (
        pytest.raises(UnsupportedConfig) as raised,
        errors_with_lines(TEXT, "c"),
        errors_with_lines(TEXT, "c"),
    ):
        raise UnsupportedConfig("id_feature b: no", where="feature_configs: b")
    assert (raised.value.message, raised.value.where) == ("c:4: id_feature b: no", "c:4: feature_configs: b")
    assert str(raised.value) == raised.value.message


def test_the_line_follows_the_name_of_the_text() -> None:
    with pytest.raises(InvalidPipelineConfig) as raised, errors_with_lines(TEXT, "c"):
        raise InvalidPipelineConfig("c lacks b.c", where="c: feature_configs[1].id_feature.x")
    assert raised.value.message == "c:4 lacks b.c"
    assert raised.value.where == "c:4: feature_configs[1].id_feature.x"


def test_an_error_whose_place_is_not_in_the_text_stays_as_it_is() -> None:
    with pytest.raises(InvalidPipelineConfig) as raised, errors_with_lines(TEXT, "c"):
        raise InvalidPipelineConfig("c describes no loss", where="train_config")
    assert (raised.value.message, raised.value.where) == ("c describes no loss", "train_config")
