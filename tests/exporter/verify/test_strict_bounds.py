"""Packages that refuse more than was tried: their bounds, and what is beyond them."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from exporter.code_cache.fingerprint import request_key
from exporter.data.batch import trace_inputs
from exporter.data.rows import Rows, read_rows
from exporter.dims.entries import dim_entries
from exporter.dims.package_interface import bound_as_published
from exporter.dims.plan import plan_dims
from exporter.errors import DimPlanViolated
from exporter.packages.parts import plan_parts, trace_parts
from exporter.spec import Mode
from exporter.towers.lookup import build_eager_lookup
from exporter.towers.split import split_tower
from exporter.towers.tower import Tower
from exporter.verify.cases import bound_by_tried, make_cases
from tests.exporter.models.recorded import recorded_tower as shared_tower
from tests.exporter.models.recorded import rows_of, tower_of, untrained
from tests.exporter.verify.test_cases import tried_in

CPU = torch.device("cpu")
# With every kind of input: weights, maps of ids, events of several values, several sequences.
TOWERS = [
    ("deepfm", "model"),
    ("dcn_v2", "model"),
    ("dssm_inner", "user_tower"),
    ("hstu_match", "user_tower"),
    ("hstu_match", "item_tower"),
    ("mask_net", "model"),
    ("multi_tower_din_w", "model"),
    ("ultra_hstu", "model"),
]
LARGEST = 64


def untouched(model: str, part: str) -> tuple[Tower, Rows]:
    """A tower of its own, because bounding it changes its module; and rows."""
    config = shared_tower(model, tower_of(part)).config
    tower = replace(untrained(config), plan=plan_dims(config.pipeline.features, max_batch_size=LARGEST))
    path = rows_of(model)
    path = path.with_name("items.parquet") if config.name.reads_items else path
    return tower, read_rows(str(path), config.pipeline.features)


@pytest.mark.parametrize(("model", "part"), TOWERS)
def test_what_is_tried_is_accepted_and_one_more_is_refused(model: str, part: str) -> None:
    tower, rows = untouched(model, part)
    before = make_cases(rows, tower.plan)
    strict = bound_by_tried(tower, rows, CPU)
    cases = make_cases(rows, strict.plan)
    assert [case.name for case in cases.must_agree] == [case.name for case in before.must_agree]
    for case, same in zip(cases.must_agree, before.must_agree, strict=True):
        assert all(torch.equal(case.inputs[name], same.inputs[name]) for name in same.inputs), case.name
    strict.served.lookup(trace_inputs(rows, strict.plan))
    largest = {case.name: case.inputs for case in cases.must_agree}
    for name in ("low_counts", "full_history", "full_row", "high_counts"):
        if name in largest:
            strict.served.lookup(largest[name])
    beyond = [case for case in cases.must_be_refused if case.name.startswith("beyond:")]
    assert len(beyond) == len(strict.plan.row_limits)
    for case in beyond:
        with pytest.raises(RuntimeError, match="no more was tried"):
            strict.served.lookup(case.inputs)
    look_up = build_eager_lookup(strict, max_batch_size=LARGEST)
    for case in cases.must_be_refused:
        if case.name.startswith("beyond_total:"):
            strict.served.lookup(case.inputs)  # no single row holds too much
            with pytest.raises(DimPlanViolated, match=r"dim \w+ is "):
                look_up(case.inputs)
    assert not [case for case in before.must_be_refused if case.name.startswith("beyond")]


def test_all_rows_together_are_refused_one_more_than_was_tried() -> None:
    tower, rows = untouched("mind", "user_tower")
    strict = bound_by_tried(tower, rows, CPU)
    cases = {case.name: case.inputs for case in make_cases(rows, strict.plan).must_be_refused}
    beyond = {name: len(inputs["user_tags.values"]) for name, inputs in cases.items() if "total" in name}
    most = strict.plan.dim("values_user_tags").high
    assert most is not None
    assert beyond["beyond_total:user_tags"] == most + 1
    assert "beyond_total:click_seq__tags" in beyond


def test_a_plan_is_bounded_by_what_was_tried_and_says_so() -> None:
    tower, rows = untouched("deepfm", "model")
    strict = bound_by_tried(tower, rows, CPU)
    entries = dim_entries(strict.plan, tried_in(make_cases(rows, strict.plan).must_agree, strict.plan))
    for dim in entries:
        assert dim.tried is not None
        assert dim.high == dim.tried.largest
        assert dim.share is None or dim.share.refused
    demand = strict.served.demands(trace_inputs(rows, strict.plan))[-1]
    assert demand.endswith("has an entry of more than 4,097, and no more was tried: strict_bounds")


def test_what_the_model_itself_does_not_compute_is_no_bound() -> None:
    tower, rows = untouched("deepfm", "model")
    most = int(rows.columns["user_tags"].per_row.max())

    def raise_for_more(module: nn.Module, given: tuple[dict[str, Tensor], ...]) -> None:
        if int(given[0]["user_tags.lengths"].max()) > most:
            raise IndexError("user_tags")

    tower.module.register_forward_pre_hook(raise_for_more)
    strict = bound_by_tried(tower, rows, CPU)
    share = strict.plan.dim("values_user_tags").share
    assert share is not None and share.refused_above == most
    beyond = [case for case in make_cases(rows, strict.plan).must_agree if case.beyond_rows]
    with pytest.raises(IndexError):
        tower.module(beyond[0].inputs)


@pytest.mark.parametrize("mode", Mode)
def test_bounds_are_part_of_the_key_of_cached_code(mode: Mode) -> None:
    tower, rows = untouched("mind", "user_tower")
    keys = [
        request_key([part.tower for part in plan_parts(each, mode, max_batch_size=LARGEST)], (), CPU)
        for each in (
            tower,
            bound_by_tried(tower, rows, CPU),
            bound_by_tried(untouched("mind", "user_tower")[0], rows, CPU),
        )
    ]
    assert keys[0] != keys[1] == keys[2]


def test_the_tensors_between_packages_are_bounded_as_the_inputs_are() -> None:
    tower, rows = untouched("multi_tower_din", "model")
    strict = bound_by_tried(tower, rows, CPU)
    _, dense = split_tower(strict, max_batch_size=LARGEST)
    highs = {dim.name: dim.high for dim in dense.plan.dims}
    assert highs["longest_click_seq"] == 20
    assert highs["batch"] == LARGEST
    _, before = split_tower(tower, max_batch_size=LARGEST)
    cases = make_cases(rows, strict.plan).must_agree
    entries = dim_entries(strict.plan, tried_in(cases, strict.plan))
    assert bound_as_published(before.plan, entries) == dense.plan
    assert (
        bound_as_published(before.plan, dim_entries(tower.plan, tried_in(cases, tower.plan))) == before.plan
    )


@pytest.mark.parametrize("mode", Mode)
def test_programs_have_the_bounds_in_both_modes(mode: Mode) -> None:
    tower, rows = untouched("dat", "user_tower")
    strict = bound_by_tried(tower, rows, CPU)
    parts = trace_parts(
        plan_parts(strict, mode, max_batch_size=LARGEST), trace_inputs(rows, strict.plan), CPU
    )
    for part in parts:
        highs = {
            int(bounds.upper) for bounds in part.program.range_constraints.values() if bounds.upper < 1e9
        }
        assert {dim.high for dim in part.part.tower.plan.dims} <= highs
    cases = {case.name: case.inputs for case in make_cases(rows, strict.plan).must_be_refused}
    first = parts[0].program.module()

    def run(inputs: dict[str, Tensor]) -> object:
        return first({tensor.name: inputs[tensor.name] for tensor in strict.plan.inputs})

    run(trace_inputs(rows, strict.plan))
    with pytest.raises(RuntimeError):
        run(cases["beyond:user_tags"])
