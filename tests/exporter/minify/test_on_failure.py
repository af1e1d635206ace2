"""What the search for a smaller case takes, and when there is none."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from exporter.dims.plan import BATCH, DimPlan, DynamicDim, TensorInput
from exporter.errors import (
    CompileFailed,
    DimPlanViolated,
    ExportError,
    PackageCrashed,
    PromiseBroken,
    VerificationFailed,
)
from exporter.minify.on_failure import expected_ending, minify_on_trace_failure, minify_towers
from exporter.minify.op_recorder import record_operators
from exporter.minify.repro_script import Step
from exporter.minify.script_runner import Ending, ExpectedEnding
from exporter.minify.search import find_smallest_untraceable
from exporter.towers.tower import Tower
from exporter.trace.trace_tower import trace_tower
from tests.exporter.verify.conftest import mean_price_tower
from tests.memory_taken import memory_taken

PLAN = DimPlan(
    inputs=(TensorInput(name="ids", dtype="int64", shape=(BATCH,)),),
    dims=(DynamicDim(name=BATCH, low=1, high=64, reason="rows per call"),),
)
FEW, MORE = {"ids": torch.tensor([1, 2, 3])}, {"ids": torch.tensor([4, 5, 6, 7, 8])}
WIDTH, TABLE_BYTES = 16, 3 << 30


class BranchesOnRows(nn.Module):
    """A table that is a hole in a file, and a branch that no trace gets past."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        rows = TABLE_BYTES // 4 // WIDTH
        file.touch()
        os.truncate(file, TABLE_BYTES)
        self.table = torch.from_file(str(file), shared=True, size=rows * WIDTH).reshape(rows, WIDTH)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        rows = nn.functional.embedding(inputs["ids"], self.table)
        return {"y": rows + 1 if rows.sum() > 0 else rows.exp()}


def tower_of(module: nn.Module) -> Tower:
    return replace(mean_price_tower(), module=module, plan=PLAN)


def search_with_a_large_table(folder: Path) -> None:
    tower = tower_of(BranchesOnRows(folder / "table"))
    told = minify_towers([tower], FEW, MORE, folder / "evidence", libraries=[])
    assert "in step trace) has" in told


@pytest.mark.slow
def test_a_large_table_takes_no_memory_while_a_smaller_case_is_searched(tmp_path: Path) -> None:
    assert memory_taken(search_with_a_large_table, tmp_path) < TABLE_BYTES / 2


class Doubles(nn.Module):
    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"y": inputs["ids"] * 2}


def test_for_sizes_that_are_not_the_plans_nothing_is_searched(tmp_path: Path) -> None:
    plan = replace(PLAN, inputs=(TensorInput(name="ids", dtype="int64", shape=(BATCH, 4)),))
    tower, wide = replace(tower_of(Doubles()), plan=plan), {"ids": torch.ones(3, 5, dtype=torch.int64)}
    search = minify_on_trace_failure([tower], wide, lambda: wide, tmp_path / "evidence", libraries=[])
    with pytest.raises(DimPlanViolated) as raised, search:
        trace_tower(tower, wide, torch.device("cpu"))
    assert "No smaller case was searched for: torch traced the model" in raised.value.report


@pytest.mark.parametrize(
    ("error", "step", "kind", "alike"),
    [
        (CompileFailed(""), Step.COMPILE, "error InductorError", True),
        (CompileFailed(""), Step.COMPARE, "error AssertionError", False),
        (VerificationFailed(""), Step.COMPARE, "error AssertionError", True),
        (VerificationFailed(""), Step.EAGER, "error ImportError", False),
        (VerificationFailed(""), Step.RUN, "signal 11", False),
        (PackageCrashed(""), Step.RUN, "signal 11", True),
        (PackageCrashed(""), Step.COMPARE, "error AssertionError", False),
        (PackageCrashed(""), Step.RUN, "error AcceleratorError", True),
        (PromiseBroken(""), Step.PROMISE, "error AssertionError", True),
    ],
)
def test_a_script_fails_so_if_it_ends_as_the_failure_did(
    error: ExportError, step: Step, kind: str, alike: bool
) -> None:
    assert expected_ending(error).matches(Ending(step=step, kind=kind)) is alike


@pytest.mark.slow
def test_what_fails_otherwise_is_no_smaller_case(tmp_path: Path) -> None:
    """It runs into the same branch, but not by the error that is looked for."""
    expected = ExpectedEnding(kinds=("error CompileError",))
    tower = tower_of(BranchesOnRows(tmp_path / "table"))
    told = minify_towers([tower], FEW, MORE, tmp_path / "evidence", libraries=[], expected=expected)
    assert told.startswith("The operators that the model calls do not fail this way by themselves")


def test_a_search_whose_time_is_up_blames_nothing(tmp_path: Path) -> None:
    told = minify_towers([tower_of(Doubles())], FEW, MORE, tmp_path / "e", libraries=[], budget_s=-1)
    assert told == "The time limit was reached before a smaller case was found."


@pytest.mark.slow
def test_each_smaller_case_is_kept_as_it_is_found(tmp_path: Path) -> None:
    """A search that is ended leaves what it had: the first script that failed is kept before others run."""
    graphs: list[int] = []
    recorded = record_operators(BranchesOnRows(tmp_path / "table"), FEW, MORE)
    found = find_smallest_untraceable(
        recorded,
        libraries=[],
        folder=tmp_path,
        budget_s=60,
        on_found=lambda each: graphs.append(len(each.nodes)),
    )
    assert found is not None and graphs == sorted(graphs, reverse=True)
    assert graphs[0] == found.of_nodes and graphs[-1] == len(found.nodes) < graphs[0]
