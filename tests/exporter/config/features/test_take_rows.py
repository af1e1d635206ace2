"""Tables whose size a file decided in training have the rows of the checkpoint."""

import pytest

from exporter.checkpoint.load import require_match
from exporter.config.features.tables import take_rows
from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import ROWS_OF_CHECKPOINT, PipelineConfig
from exporter.dims.plan import plan_dims
from exporter.errors import CheckpointMismatch, InvalidPipelineConfig
from exporter.models.registry import build_tower
from exporter.towers.view import tower_configs
from tests.exporter.config.conftest import FIXTURES
from tests.exporter.models.recorded import recorded_checkpoint

GROUP = "model.embedding_group"
SHAPES = {
    f"{GROUP}.emb_impls.__BASE__.ebc.embedding_bags.item_title_emb.weight": (40, 8),
    f"{GROUP}.seq_emb_impls.__BASE__.ec_dict.8.embeddings.tok_emb.weight": (41, 8),
    f"{GROUP}.emb_impls.__BASE__.ebc.embedding_bags.user_id_emb.weight": (7, 8),
}


def _parse(*edits: tuple[str, str]) -> PipelineConfig:
    text = (FIXTURES / "multi_tower" / "pipeline.config").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return parse_pipeline_config(text)


def _rows(pipeline: PipelineConfig, feature: str) -> int | None:
    table = pipeline.feature(feature).table
    return table.rows if table else None


def test_only_what_the_config_leaves_open_is_taken() -> None:
    pipeline = take_rows(_parse(), SHAPES)
    assert (_rows(pipeline, "item_title"), _rows(pipeline, "user_query")) == (40, 41)
    assert _rows(pipeline, "user_id") == 500
    assert take_rows(pipeline, dict.fromkeys(SHAPES, (9, 8))) == pipeline


def test_names_may_have_another_prefix_and_need_not_be_there() -> None:
    shapes = {name.removeprefix("model."): shape for name, shape in SHAPES.items() if "tok_emb" not in name}
    pipeline = take_rows(_parse(), shapes)
    assert _rows(pipeline, "item_title") == 40
    assert _rows(pipeline, "user_query") == ROWS_OF_CHECKPOINT


def test_a_table_of_a_longer_name_is_another_one() -> None:
    [name] = [name for name in SHAPES if "item_title_emb" in name]
    other = name.replace("item_title_emb", "my.item_title_emb").replace("bags.my.", "bags.my_")
    assert _rows(take_rows(_parse(), {other: (5, 8)}), "item_title") == ROWS_OF_CHECKPOINT


def test_a_table_that_the_checkpoint_lacks_is_missed_by_name() -> None:
    pipeline = _parse(('embedding_name: "tok_emb"', 'embedding_name: "other_emb"'))
    checkpoint = recorded_checkpoint("multi_tower")
    shapes = {name: meta.shape for name, meta in checkpoint.tensors().items()}
    [tower] = tower_configs(take_rows(pipeline, shapes), None)
    built = build_tower(tower, plan_dims(tower.pipeline.features, max_batch_size=8))
    with pytest.raises(CheckpointMismatch, match="other_emb"):
        require_match(built.module, checkpoint)


def test_features_of_one_file_share_a_table_with_one_of_as_many_rows() -> None:
    shared = 'embedding_name: "user_id_emb" vocab_file: "data/rec2/tokenizer.json"\n    pooling: "mean"'
    old = 'vocab_file: "data/rec2/tokenizer.json"\n    pooling: "mean"'
    with pytest.raises(InvalidPipelineConfig, match="pooled by"):
        _parse((old, shared))
    pipeline = _parse((old, shared.replace("mean", "sum")))
    assert _rows(take_rows(pipeline, dict.fromkeys(SHAPES, (500, 8))), "item_title") == 500
    with pytest.raises(InvalidPipelineConfig, match="of width 8"):
        _parse(
            (old, shared.replace("mean", "sum")),
            ('title"\n    embedding_dim: 8', 'title"\n    embedding_dim: 4'),
        )
