"""A tower that cannot be traced says which features stand in each other's way, and where in the code."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import Feature, PipelineConfig, TowerConfig
from exporter.data.batch import trace_inputs
from exporter.data.rows import read_rows
from exporter.dims.plan import plan_dims
from exporter.errors import DimsConflict, DimSpecialised, ExportError, TraceFailed
from exporter.models.registry import build_tower
from exporter.outcome import Failure
from exporter.spec import TowerName
from exporter.towers.tower import ServedModule, Tower
from exporter.towers.view import tower_configs
from exporter.trace.trace_tower import trace_tower
from exporter.trace.untraceable import one_element_per_row

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"
CPU = torch.device("cpu")
ROWS = {
    "hstu_match_desc": FIXTURES / "data" / "train_desc.parquet",
    "dlrm_hstu": FIXTURES / "data" / "train.parquet",
}

ONE_LAYER = ("attn_num_layers: 2", "attn_num_layers: 1")  # what is joined, is joined before the first

# Actions and watch times, each standalone, as a config may give them instead of one sequence_feature.
STANDALONE = {
    "uih_seq__watch_time": "watch",
    "uih_seq__action_weight": "action",
    "uih_seq__action_timestamp": "time",
}


def _pipeline(*edits: tuple[str, str], model: str = "hstu_match_desc") -> PipelineConfig:
    text = (FIXTURES / model / "pipeline.config").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return parse_pipeline_config(text)


def _history_tower(pipeline: PipelineConfig) -> TowerConfig:
    """The tower that reads the history: the user's, or the whole of a ranking model."""
    return next(tower for tower in tower_configs(pipeline, None) if tower.name is not TowerName.ITEM)


def _without_the_rule(pipeline: PipelineConfig) -> PipelineConfig:
    """Every feature of the history in a sequence of its own, so that each has a dim of its own."""

    def apart(feature: Feature) -> Feature:
        if feature.sequence is None or feature.name.startswith("cand_"):
            return feature
        return replace(feature, sequence=replace(feature.sequence, name=feature.name))

    return replace(pipeline, features=tuple(map(apart, pipeline.features)))


def _trace(pipeline: PipelineConfig, rows: str) -> None:
    config = _history_tower(pipeline)
    tower = build_tower(config, plan_dims(config.pipeline.features, max_batch_size=64))
    trace_tower(tower, trace_inputs(read_rows(rows, config.pipeline.features), tower.plan), CPU)


def _standalone(model: str, folder: Path) -> tuple[PipelineConfig, str]:
    """The recorded model and its rows, with what happened to each event written as standalone features."""
    features = "".join(
        f'feature_configs {{ sequence_raw_feature {{ feature_name: "{name}" expression: "user:{name}" }} }}\n'
        for name in STANDALONE.values()
    )
    groups = [(f'feature_names: "{old}"', f'feature_names: "{new}"') for old, new in STANDALONE.items()]
    rows = pq.read_table(ROWS[model])
    renamed = rows.rename_columns([STANDALONE.get(name, name) for name in rows.column_names])
    pq.write_table(renamed, folder / "rows.parquet")
    edited = _pipeline(ONE_LAYER, ("feature_configs", f"{features}feature_configs"), *groups, model=model)
    return edited, str(folder / "rows.parquet")


class Toy(ServedModule):
    """A tower whose one step is any function of the inputs."""

    def __init__(self, step: Callable[[Mapping[str, Tensor]], Tensor]) -> None:
        super().__init__()
        self._step = step

    def lookup(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(inputs)

    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"out": self._step(embedded)}


def _trace_toy(step: Callable[[Mapping[str, Tensor]], Tensor]) -> ExportError:
    config = _history_tower(_without_the_rule(_pipeline()))
    plan = plan_dims(config.pipeline.features, max_batch_size=64)
    inputs = trace_inputs(read_rows(str(ROWS["hstu_match_desc"]), config.pipeline.features), plan)
    with pytest.raises(ExportError) as raised:
        trace_tower(Tower(config=config, module=Toy(step), plan=plan), inputs, CPU)
    return raised.value


def _join(inputs: Mapping[str, Tensor]) -> Tensor:
    return inputs["uih_seq__action_weight.values"] + inputs["uih_seq__watch_time.values"]


def test_joined_sizes_are_a_conflict_with_features_line_and_report() -> None:
    failure = Failure.of(_trace_toy(_join))
    assert failure.code == DimsConflict.code
    assert "uih_seq__action_weight (group uih_action)" in failure.message
    assert "test_untraceable.py" in failure.message
    assert "must always be equal" in failure.report
    assert "Eq(" in failure.report.partition("draft_export:")[2]


def test_a_fixed_size_is_specialised() -> None:
    error = _trace_toy(lambda inputs: inputs["user_id.lengths"].view(5) * 2)
    assert isinstance(error, DimSpecialised)
    assert "planned for 1 to 64, and tracing found 5" in error.message


def test_another_failure_keeps_its_own_words() -> None:
    error = _trace_toy(lambda inputs: inputs["user_id.lengths"][inputs["user_id.lengths"].sum().item() :, 7])
    assert isinstance(error, TraceFailed)


def test_alike_inputs_have_one_size_and_agree_with_themselves() -> None:
    config = _history_tower(_without_the_rule(_pipeline()))
    plan = plan_dims(config.pipeline.features, max_batch_size=64)
    rows = read_rows(str(ROWS["hstu_match_desc"]), config.pipeline.features)
    alike = one_element_per_row(trace_inputs(rows, plan), plan)
    assert len({tensor.shape[0] for tensor in alike.values()}) == 1
    assert all(tensor.sum() == len(tensor) for name, tensor in alike.items() if "lengths" in name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "standalone"),
    [
        pytest.param("hstu_match_desc", False, id="two-tower", marks=pytest.mark.families),
        pytest.param("hstu_match_desc", True, id="two-tower, standalone features"),
        pytest.param("dlrm_hstu", True, id="ranking, standalone features", marks=pytest.mark.families),
    ],
)
def test_the_action_encoder_needs_the_sharing_rule(model: str, standalone: bool, tmp_path: Path) -> None:
    """watchtime_to_action_thresholds join actions and watch times: traced with the rule, not without it."""
    pipeline, rows = _pipeline(ONE_LAYER, model=model), str(ROWS[model])
    if standalone:
        pipeline, rows = _standalone(model, tmp_path)
    _trace(pipeline, rows)
    with pytest.raises(DimsConflict) as raised:
        _trace(_without_the_rule(pipeline), rows)
    watch = "watch" if standalone else "uih_seq__watch_time"
    assert f"the size of {watch} (group uih_watchtime)" in raised.value.message
    assert "exporter/models/hstu/action_encoder.py" in raised.value.message
    assert "must always be equal" in raised.value.report
