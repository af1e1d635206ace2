"""The whole config: what only trains is ignored, what changes the export is read or refused."""

import pytest

from exporter.config.parse import parse_pipeline_config
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from tests.exporter.config.conftest import ParseEdited


@pytest.mark.parametrize("family", ["simple_multi_task"])
def test_another_family_is_refused_by_name(text: str, family: str) -> None:
    others = text[: text.index("model_config {")]
    with pytest.raises(UnsupportedConfig, match=f"model {family}") as raised:
        parse_pipeline_config(f"{others} model_config {{ {family} {{}} }}")
    assert "hstu_match" in raised.value.hint


def test_a_config_without_a_model_is_invalid() -> None:
    with pytest.raises(InvalidPipelineConfig, match="describes no model"):
        parse_pipeline_config("")


def test_the_text_and_the_training_rows_are_kept(text: str) -> None:
    config = parse_pipeline_config(text)
    assert config.text == text
    assert config.train_input_path == "data/train.parquet"
    assert config.train_rows_are_encoded


def test_training_only_fields_are_ignored(parse_edited: ParseEdited) -> None:
    edited = parse_edited(("num_steps: 12", 'num_steps: 12 mixed_precision: "BF16" cudnn_allow_tf32: true'))
    assert edited.model == parse_edited().model


@pytest.mark.parametrize(
    ("written", "read"),
    [("TRITON", "triton"), ("CUTLASS", "triton"), ("PYTORCH", "pytorch"), (None, "pytorch")],
)
def test_the_kernel_that_trained_it_is_read(
    parse_edited: ParseEdited, written: str | None, read: str
) -> None:
    assert parse_edited(("kernel: PYTORCH", f"kernel: {written}" if written else "")).default_kernel == read


@pytest.mark.parametrize("mode", ["FG_NORMAL", "FG_DAG", "FG_BUCKETIZE"])
def test_raw_training_rows_of_plain_ids_are_as_good_as_encoded(parse_edited: ParseEdited, mode: str) -> None:
    assert parse_edited(("FG_NONE", mode)).train_rows_are_encoded


@pytest.mark.parametrize(
    "edit",
    [
        ("num_buckets: 500", "hash_bucket_size: 500"),
        ('expression: "user:user_id"', 'expression: "user:uid"'),
    ],
)
def test_raw_training_rows_that_need_generation_are_not_encoded(
    parse_edited: ParseEdited, edit: tuple[str, str]
) -> None:
    assert not parse_edited(("FG_NONE", "FG_DAG"), edit).train_rows_are_encoded
    assert parse_edited(edit).train_rows_are_encoded


def test_the_older_switch_wins_over_fg_mode(parse_edited: ParseEdited) -> None:
    hashed = ("num_buckets: 500", "hash_bucket_size: 500")
    assert not parse_edited(hashed, ("fg_mode: FG_NONE", "fg_encoded: false")).train_rows_are_encoded


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (("export_config {", 'export_config { mixed_precision: "FP8"'), "mixed_precision is FP8"),
    ],
)
def test_what_would_change_the_weights_is_refused_by_name(
    parse_edited: ParseEdited, edit: tuple[str, str], named: str
) -> None:
    with pytest.raises(UnsupportedConfig, match=named):
        parse_edited(edit)


_EMA = ("dense_optimizer {", "dense_optimizer { ema {}")


@pytest.mark.parametrize(
    ("edits", "averaged"),
    [
        ([], False),
        ([_EMA], True),
        ([_EMA, ("export_config {", "export_config { use_dense_ema: false")], False),
        ([("export_config {", "export_config { use_dense_ema: true")], True),
    ],
)
def test_training_decides_on_averaged_weights_unless_the_export_does(
    parse_edited: ParseEdited, edits: list[tuple[str, str]], averaged: bool
) -> None:
    assert parse_edited(*edits).averaged_weights is averaged


def test_the_config_of_a_text_is_kept_and_refusals_are_said_each_time(text: str) -> None:
    config = parse_pipeline_config(text)
    assert parse_pipeline_config("".join(text)) is config
    assert parse_pipeline_config(f"{text}\n# changed") is not config
    bad = text.replace("feature_name", "no_such_field", 1)
    said = []
    for where in ("config", "config", "file:///pipeline.config"):
        with pytest.raises(InvalidPipelineConfig) as raised:
            parse_pipeline_config(bad, where=where)
        said.append(raised.value.where)
    assert said[0] == said[1] != said[2] and said[2].startswith("file:///pipeline.config:")


def test_a_long_text_is_read_anew(text: str) -> None:
    long = f"{text}\n{'#' * (1 << 16)}"
    assert parse_pipeline_config(long) == parse_pipeline_config(long)
    assert parse_pipeline_config(long) is not parse_pipeline_config(long)
