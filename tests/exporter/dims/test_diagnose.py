"""torch's words about sizes become features, groups, a line of code, and what the config can change."""

from dataclasses import replace
from pathlib import Path

import pytest

from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import Feature, PipelineConfig
from exporter.dims.diagnose import (
    Equality,
    Narrowing,
    SizeGuard,
    diagnose,
    parse_violations,
    report_guards,
    sizes_in,
)
from exporter.dims.plan import DimPlan, plan_dims, plan_group_tensors
from exporter.errors import DimsConflict, DimSpecialised

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"

EQUAL = """Constraints violated (seq_a, seq_b)! For more information, run with TORCH_LOGS="+dynamic".
  - The values of seq_a = L['inputs']['a.values'].size()[0] and seq_c = L['inputs']['c.values'].size()[0] must always be equal.
  - The values of seq_b = L['inputs']['b.values'].size()[0] and seq_c = L['inputs']['c.values'].size()[0] must always be equal.
Suggested fixes:
  seq_a = seq_c
  seq_b = seq_c

The error above occurred when calling torch.export.export."""  # noqa: E501  as torch writes it
FIXED = """Constraints violated (batch)! For more information, run with TORCH_LOGS="+dynamic".
  - You marked batch as dynamic but your code specialized it to be a constant (5). If you're using mark_dynamic
Suggested fixes:
  batch = 5
"""  # noqa: E501  as torch writes it
NARROWED = """Constraints violated (batch)! For more information, run with TORCH_LOGS="+dynamic".
  - Not all values of batch = L['inputs']['a.lengths'].size()[0] in the specified range batch <= 64 satisfy the generated guard L['inputs']['a.lengths'].size()[0] <= 49
Suggested fixes:
  batch = Dim('batch', min=2, max=49)
"""  # noqa: E501  as torch writes it
DERIVED = """Constraints violated (n)!
  - Not all values of n = L['inputs']['a.values'].size()[0] in the specified range n <= 100 satisfy the generated guard (L['inputs']['a.values'].size()[0] % 2) == 0.
  - Not all values of n = L['inputs']['a.values'].size()[0] in the specified range n <= 100 satisfy the generated guard L['inputs']['a.values'].size()[0] == (2*(L['inputs']['a.values'].size()[0] // 2)).
Suggested fixes:
  _n = Dim('_n', min=1, max=50)
  n = 2*_n
"""  # noqa: E501  as torch writes it


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (EQUAL, (Equality(left="seq_a", right="seq_c"), Equality(left="seq_b", right="seq_c"))),
        (FIXED, (Narrowing(dim="batch", found="5"),)),
        (NARROWED, (Narrowing(dim="batch", found="at least 2 and at most 49"),)),
        (DERIVED, (Narrowing(dim="n", found="2*_n"),)),
        ("an operator has no fake kernel", ()),
    ],
    ids=["equal", "fixed", "narrowed", "derived", "other"],
)
def test_torchs_message_is_read(message: str, found: tuple[Equality | Narrowing, ...]) -> None:
    assert parse_violations(message) == found


def test_sources_name_inputs_and_axes() -> None:
    assert sizes_in("L['inputs']['a.values'].size()[1]") == (("a.values", 1),)


@pytest.fixture
def pipeline() -> PipelineConfig:
    """The recorded model, its history not known to be one sequence."""
    config = parse_pipeline_config((FIXTURES / "hstu_match_desc" / "pipeline.config").read_text())
    return replace(config, features=tuple(map(_apart, config.features)))


def _apart(feature: Feature) -> Feature:
    if feature.sequence is None:
        return feature
    return replace(feature, sequence=replace(feature.sequence, name=feature.bare_name))


@pytest.fixture
def plan(pipeline: PipelineConfig) -> DimPlan:
    return plan_dims(pipeline.features, max_batch_size=64)


ACTIONS = ("uih_seq__action_weight.values", 0)
WATCH_TIMES = ("uih_seq__watch_time.values", 0)
GUARDS = (
    SizeGuard(
        condition="Eq(s1, s2)",
        sizes=(("user_id.lengths", 0), ("uih_seq__watch_time.lengths", 0)),
        place="exporter/models/blocks/jagged.py:3",
        code="join(rows)",
    ),
    SizeGuard(
        condition="Eq(s3, s4)",
        sizes=(ACTIONS, WATCH_TIMES),
        place="exporter/models/hstu/action_encoder.py:38",
        code="masks | times",
    ),
    SizeGuard(condition="u0 >= 2", sizes=(), place="exporter/models/blocks/jagged.py:5", code="check(u0)"),
)
JOINED = Equality(left="seq_action_weight", right="seq_watch_time")


def test_a_conflict_names_features_groups_line_and_remedy(pipeline: PipelineConfig, plan: DimPlan) -> None:
    error = diagnose([JOINED], plan, pipeline, tower="user tower", guards=GUARDS)
    assert isinstance(error, DimsConflict)
    assert "the size of uih_seq__action_weight (group uih_action)" in error.message
    assert "the size of uih_seq__watch_time (group uih_watchtime)" in error.message
    assert error.message.endswith("needed at exporter/models/hstu/action_encoder.py:38 `masks | times`")
    assert error.hint.startswith("write uih_seq__action_weight, uih_seq__watch_time in one sequence_feature")


def test_a_conflict_of_group_tensors_names_the_features_behind_them(pipeline: PipelineConfig) -> None:
    plan = plan_group_tensors(pipeline, max_batch_size=64)
    error = diagnose([JOINED], plan, pipeline, tower="user tower")
    assert "the size of uih_seq__action_weight (group uih_action)" in error.message


@pytest.mark.parametrize(
    ("left", "hint"),
    [
        ("values_user_id", "set value_dim: 1 for user_id"),
        ("seq_watch_time", "uih_seq__watch_time as one element per row"),
    ],
)
def test_what_should_be_one_per_row_is_told_so(
    pipeline: PipelineConfig, plan: DimPlan, left: str, hint: str
) -> None:
    error = diagnose([Equality(left=left, right="batch")], plan, pipeline, tower="user tower")
    assert hint in error.hint
    assert "rows per call" in error.message


def test_a_narrowed_dim_names_an_input_and_both_ranges(pipeline: PipelineConfig, plan: DimPlan) -> None:
    [found] = parse_violations(NARROWED)
    error = diagnose([found], plan, pipeline, tower="user tower", guards=GUARDS)
    assert isinstance(error, DimSpecialised)
    assert "dim batch of cand_seq__video_id.lengths and" in error.message
    assert "planned for 1 to 64, and tracing found at least 2 and at most 49" in error.message
    assert "at exporter/models/blocks/jagged.py:3 `join(rows)`" in error.message


def test_the_report_leaves_out_what_the_plan_grants(plan: DimPlan) -> None:
    assert report_guards([*GUARDS, GUARDS[1]], plan) == (
        "exporter/models/hstu/action_encoder.py:38: masks | times\n"
        "    Eq(s3, s4), of uih_seq__action_weight.values axis 0, uih_seq__watch_time.values axis 0"
    )
