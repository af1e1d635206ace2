"""dlrm_hstu: every field is read, and what TorchEasyRec could not run is refused at submit."""

from collections.abc import Callable

import pytest

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.tasks import Loss, TaskConfig
from exporter.config.families.multi_task.dlrm_hstu import DlrmHstuConfig
from exporter.config.hstu.encoder import ContentEncoderKind, ContextualPreprocessorConfig
from exporter.config.parse import parse_pipeline_config
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from tests.exporter.config.conftest import FIXTURES

Edit = tuple[str, str]
Read = Callable[..., DlrmHstuConfig]

_MLP = "{ hidden_units: 24 }"
_WIDE_CANDIDATES = (
    'group_name: "candidate"\n',
    'group_name: "candidate" feature_names: "cand_seq__query_time"\n',
)
_INTERLEAVED = ("contextual_preprocessor {", "contextual_interleave_preprocessor {")


@pytest.fixture
def read() -> Read:
    """The model of the recorded config, with pairs of (old, new) text replaced, the first of each."""

    def parse(*edits: Edit) -> DlrmHstuConfig:
        text = (FIXTURES / "dlrm_hstu" / "pipeline.config").read_text()
        for old, new in edits:
            assert old in text
            text = text.replace(old, new, 1)
        model = parse_pipeline_config(text).model
        assert isinstance(model, DlrmHstuConfig)
        return model

    return parse


def preprocessor(model: DlrmHstuConfig) -> ContextualPreprocessorConfig:
    assert isinstance(model.transducers[0].preprocessor, ContextualPreprocessorConfig)
    return model.transducers[0].preprocessor


def test_the_model_is_read(read: Read) -> None:
    model = read()
    assert (model.max_seq_len, model.item_embedding_hidden_dim) == (96, 64)
    assert (model.timestamps_ascending, model.concat_contextual) == (True, False)
    assert model.tower_mlp == MlpConfig(hidden_units=(64,), activation="nn.SiLU", use_ln=True)
    assert model.tasks == (
        TaskConfig(name="is_click", num_class=1, losses=(Loss.BINARY_CROSS_ENTROPY,)),
        TaskConfig(name="is_like", num_class=2, losses=(Loss.JRC,)),
        TaskConfig(name="watchtime", num_class=1, losses=(Loss.L2,)),
    )


def test_the_preprocessor_is_read(read: Read) -> None:
    config = preprocessor(read())
    assert config.content_encoder.kind is ContentEncoderKind.SLICE
    assert config.action_encoder is not None
    assert config.action_encoder.watchtime_thresholds == (30, 120)
    assert not config.interleaved


@pytest.mark.parametrize(("field", "interleaved"), [("", True), ("enable_interleaving: false", False)])
def test_actions_may_be_interleaved(read: Read, field: str, interleaved: bool) -> None:
    old, new = _INTERLEAVED
    assert preprocessor(read((old, f"{new} {field}"))).interleaved is interleaved


def test_a_content_encoder_of_perceptrons_is_read(read: Read) -> None:
    encoder = f"mlp_content_encoder {{ uih_mlp {_MLP} target_mlp {_MLP} }}"
    config = preprocessor(read(("slice_content_encoder {\n            }", encoder))).content_encoder
    assert (config.uih_mlp, config.target_mlp) == (MlpConfig(hidden_units=(24,)),) * 2


def test_timestamps_may_descend(read: Read) -> None:
    assert not read(("timestamp_is_ascending: true", "timestamp_is_ascending: false")).timestamps_ascending


def test_contextual_features_of_several_widths_may_be_one_element(read: Read) -> None:
    narrow = ("embedding_dim: 16", "embedding_dim: 8")
    together = ("concat_contextual_features: false", "concat_contextual_features: true")
    assert read(narrow, together).concat_contextual
    with pytest.raises(InvalidPipelineConfig, match="differ in width"):
        read(narrow)


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (("slice_content_encoder", "pad_content_encoder"), "pad_content_encoder cannot join"),
        (("slice_content_encoder {\n            }", ""), "content_encoder"),
        (
            (
                "slice_content_encoder {\n            }",
                f"mlp_content_encoder {{ uih_mlp {_MLP} target_mlp {{ hidden_units: 8 }} }}",
            ),
            "uih_mlp ends in width 24 and target_mlp in 8",
        ),
        (("max_seq_len: 96", "max_seq_len: 0"), "max_seq_len is 0"),
        (('task_name: "is_like"', 'task_name: "is_click"'), "two tasks are named is_click"),
        (("num_class: 2", "num_class: 3"), "num_class is 3, which does not go with jrc_loss"),
        (("binary_cross_entropy {", "softmax_cross_entropy {"), "does not go with softmax_cross_entropy"),
        (("losses {\n          l2_loss {\n          }\n        }", ""), "it has no losses"),
        (('feature_names: "cand_seq__query_time"', 'feature_names: "cand_seq__video_id"'), "plain number"),
    ],
)
def test_what_the_peer_could_not_run_is_refused(read: Read, edit: Edit, named: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=named):
        read(edit)


def test_truncation_keeps_no_more_context_than_there_is(read: Read) -> None:
    truncated = ("    hstu {", "    hstu { attn_truncation_split_layer: 1 attn_truncation_tail_len: 8")
    assert (
        read(truncated, ("num_heads: 2", "num_heads: 2 contextual_seq_len: 6")).transducers[0].num_layers == 2
    )
    with pytest.raises(InvalidPipelineConfig, match="contextual_seq_len 7 .* there are 6"):
        read(truncated, ("num_heads: 2", "num_heads: 2 contextual_seq_len: 7"))


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (("l2_loss", "recon_loss"), "task watchtime: a loss of another kind"),
        (("kernel: PYTORCH", "variational_dropout {}"), "variational_dropout"),
    ],
)
def test_what_the_family_does_not_have_is_refused_by_name(read: Read, edit: Edit, named: str) -> None:
    with pytest.raises(UnsupportedConfig, match=named):
        read(edit)


def test_a_preprocessor_without_candidates_is_refused(read: Read) -> None:
    uih = "input_preprocessor { uih_preprocessor {} } output_postprocessor {"
    with pytest.raises(UnsupportedConfig, match="uih_preprocessor has no place for candidates"):
        read(("output_postprocessor {", uih))


@pytest.mark.parametrize(
    "group",
    ["contextual", "uih", "candidate", "candidate_timestamp", "uih_action", "uih_watchtime", "uih_timestamp"],
)
def test_a_group_that_the_model_needs_is_asked_for(read: Read, group: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=f"needs feature group {group},"):
        read((f'group_name: "{group}"', 'group_name: "unheard_of"'))
