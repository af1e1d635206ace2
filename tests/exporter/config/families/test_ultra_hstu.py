"""ultra_hstu: several transducers are read, and those that TorchEasyRec could not run are refused."""

import pytest

from exporter.config.families.multi_task.ultra_hstu import UltraHstuConfig
from exporter.config.hstu.encoder import ContextualPreprocessorConfig
from exporter.config.parse import parse_pipeline_config
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from tests.exporter.config.conftest import FIXTURES

Edit = tuple[str, str]
TEXT = (FIXTURES / "ultra_hstu" / "pipeline.config").read_text()


def read(*edits: Edit) -> UltraHstuConfig:
    """Read the recorded model with pairs of (old, new) text replaced, the first of each."""
    text = TEXT
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    model = parse_pipeline_config(text).model
    assert isinstance(model, UltraHstuConfig)
    return model


def without_second(name: str) -> tuple[Edit, ...]:
    """Return edits that leave only the first transducer, under another name."""
    first, second = TEXT.index("    hstu {"), TEXT.rindex("    hstu {")
    assert first < second
    rest = TEXT[second : TEXT.index("    fusion_mtl_tower {")]
    renamed = [
        ("group_name: " + f'"uih_click{part}"', f'group_name: "{name or "uih"}{part}"') for part in PARTS
    ]
    return (rest, ""), ('  name: "uih_click"\n', f'name: "{name}"\n' if name else ""), *renamed


PARTS = ("", "_action", "_watchtime", "_timestamp")


def test_every_transducer_is_read_in_order() -> None:
    model = read()
    assert [hstu.history for hstu in model.transducers] == ["uih_click", "uih_view"]
    assert [hstu.stu.embedding_dim for hstu in model.transducers] == [16, 24]
    assert model.width == 40
    assert model.groups_in_step == (
        ("uih_click", "uih_click_action", "uih_click_watchtime", "uih_click_timestamp"),
        ("uih_view", "uih_view_action", "uih_view_watchtime", "uih_view_timestamp"),
        ("candidate", "candidate_timestamp"),
    )


def test_transducers_have_settings_of_their_own() -> None:
    first, second = read(("use_group_norm: true", "use_group_norm: true sla_k1: 4 sla_k2: 3")).transducers
    assert (first.stu.sla_k1, first.stu.sla_k2, second.stu.sla_k1) == (4, 3, 0)
    assert (first.stu.use_group_norm, second.stu.use_group_norm) == (True, False)
    assert isinstance(second.preprocessor, ContextualPreprocessorConfig)
    assert second.preprocessor.action_encoder is not None
    assert second.preprocessor.action_encoder.watchtime_thresholds == (30,)


@pytest.mark.parametrize("name", ["", "uih_long"])
def test_a_single_transducer_may_have_a_name_or_none(name: str) -> None:
    model = read(*without_second(name))
    assert [hstu.history for hstu in model.transducers] == [name or "uih"]


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (('  name: "uih_view"\n', ""), "its transducers are named uih_click, nothing"),
        (('  name: "uih_view"\n', 'name: "uih_click"\n'), "its transducers are named uih_click, uih_click"),
        (("attn_num_layers: 2", "attn_num_layers: 0"), r"hstu\[0\]: attn_num_layers is 0"),
        (("embedding_dim: 24", "embedding_dim: 0"), r"hstu\[1\].stu: embedding_dim is 0"),
        (
            ('group_name: "uih_view_action"', 'group_name: "elsewhere"'),
            "needs feature group uih_view_action,",
        ),
        (("max_seq_len: 96", "max_seq_len: 0"), "ultra_hstu: max_seq_len is 0"),
    ],
)
def test_what_the_peer_could_not_run_is_refused(edit: Edit, named: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=named):
        read(edit)


def test_a_model_without_transducers_is_refused() -> None:
    text = TEXT[: TEXT.index("    hstu {")] + TEXT[TEXT.index("    fusion_mtl_tower {") :]
    with pytest.raises(InvalidPipelineConfig, match="it has no hstu"):
        parse_pipeline_config(text)


def test_a_preprocessor_without_candidates_is_refused_in_any_transducer() -> None:
    start = TEXT.rindex("      output_postprocessor {")
    uih = "      input_preprocessor { uih_preprocessor {} }\n"
    with pytest.raises(UnsupportedConfig, match=r"hstu\[1\].* uih_preprocessor has no place for candidates"):
        parse_pipeline_config(TEXT[:start] + uih + TEXT[start:])
