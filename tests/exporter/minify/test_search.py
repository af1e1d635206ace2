"""Four planted failures, each caught and cut to the one operator that has the fault."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from exporter.dims.plan import DimPlan, DynamicDim, TensorInput
from exporter.errors import PromiseBroken
from exporter.minify.on_failure import expected_ending, minify_programs, minify_towers
from exporter.minify.op_recorder import record_operators
from exporter.minify.search import find_smallest_failing, find_smallest_untraceable
from exporter.verify.nodes import check_nodes
from tests.exporter.verify.conftest import mean_price_tower
from tests.planted import ops

assert ops.LIBRARY is not None  # imported for the operators that it registers

ROOT = Path(__file__).parents[3]
PLANTED = torch.ops.planted
INPUTS = {"x": torch.linspace(-1, 1, 20).reshape(5, 4)}

PLAN = DimPlan(
    inputs=(TensorInput(name="x", dtype="float32", shape=("rows", 4)),),
    dims=(DynamicDim(name="rows", low=1, high=64, reason="rows per call"),),
)

pytestmark = [pytest.mark.slow, pytest.mark.planted]


class Around(nn.Module):
    """A faulty operator among sound ones."""

    def __init__(self, faulty: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self._faulty = faulty

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = self.linear(inputs["x"]).relu() + 1
        return {"y": self._faulty(x).sum() * 3, "z": x.exp()}


def around(faulty: Callable[[Tensor], Tensor]) -> ExportedProgram:
    rows = Dim("rows", min=1, max=64)
    return torch.export.export(Around(faulty), (INPUTS,), dynamic_shapes=({"x": {0: rows}},), strict=False)


@pytest.mark.parametrize(
    ("faulty", "fails", "limit_s"),
    [
        (PLANTED.endless, "hang in step eager", 3),
        (lambda x: PLANTED.uncompilable(x, [torch.float32]), "error InductorError in step compile", 120),
        (PLANTED.short, "signal 11 in step run", 120),
        (lambda x: PLANTED.turned(x) * torch.arange(4), "error AssertionError in step compare", 120),
    ],
    ids=["hang", "compile error", "crash", "wrong result"],
)
def test_a_planted_failure_is_cut_to_its_operator(
    faulty: Callable[[Tensor], Tensor], fails: str, limit_s: float, tmp_path: Path
) -> None:
    found = find_smallest_failing(
        around(faulty),
        INPUTS,
        libraries=["tests.planted.ops"],
        folder=tmp_path,
        budget_s=600,
        limit_s=limit_s,
    )
    assert found is not None
    assert str(found.ending) == fails
    assert [name for name in found.nodes if name.startswith("planted")]
    assert len(found.nodes) <= 2 < found.of_nodes


class Branches(nn.Module):
    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x = inputs["x"].exp().relu() + 1
        y = x * 3 if x.sum() > 0 else x
        return {"y": y.tanh(), "z": (y * y).cos().neg().exp().sin()}


def test_what_cannot_be_traced_is_cut_to_its_operators(tmp_path: Path) -> None:
    tower = replace(mean_price_tower(), module=Branches(), plan=PLAN)
    others = {"x": torch.rand(7, 4)}
    told = minify_towers([tower], INPUTS, others, tmp_path / "evidence", libraries=[])
    assert "in step trace) has 2 of" in told and "<built-in function truth>" in told


def test_a_trace_that_hangs_is_cut_to_the_operator_whose_rule_hangs(tmp_path: Path) -> None:
    others = {"x": torch.rand(7, 4)}
    found = find_smallest_untraceable(
        record_operators(Around(PLANTED.untraceable), INPUTS, others),
        libraries=["tests.planted.ops"],
        folder=tmp_path,
        budget_s=300,
        limit_s=10,
    )
    assert found is not None
    assert str(found.ending) == "hang in step trace"
    assert found.nodes == ("planted.untraceable.default",)


def test_a_broken_promise_is_cut_to_its_node_without_a_search(tmp_path: Path) -> None:
    told = minify_programs(
        [around(PLANTED.turned)],
        INPUTS,
        tmp_path / "e",
        libraries=["tests.planted.ops"],
        expected=expected_ending(PromiseBroken("")),
    )
    assert "(error AssertionError in step promise) has 1 of" in told and "planted.turned.default" in told
    assert "stride is (1, 5), promised (4, 1)" in (tmp_path / "e" / "smallest.log").read_text()


def test_the_bundle_runs_alone_and_fails_again(tmp_path: Path) -> None:
    program, folder = around(lambda x: PLANTED.uncompilable(x, [torch.float32])), tmp_path / "evidence"
    told = minify_programs([program], INPUTS, folder, libraries=["tests.planted.ops"])
    assert "has 1 of" in told
    assert {"smallest.py", "smallest.log", "smallest.json"} <= {file.name for file in folder.iterdir()}
    script = ["env", f"PYTHONPATH={ROOT}", sys.executable, str(folder / "smallest.py")]
    ran = subprocess.run(script, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "Unsupported list/tuple argument type" in ran.stderr


def test_a_program_that_does_not_fail_has_no_smallest_case(tmp_path: Path) -> None:
    program = around(torch.sigmoid)
    assert find_smallest_failing(program, INPUTS, libraries=[], folder=tmp_path, budget_s=60) is None


def test_the_wrong_result_is_named_node_by_node_as_well() -> None:
    broken = check_nodes(around(PLANTED.turned), INPUTS)
    assert broken is not None
    assert broken.operator == "planted.turned.default"
    assert broken.differs == "stride is (1, 5), promised (4, 1)"
