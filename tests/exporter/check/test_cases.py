"""Findings of `slipway check`: every case is reported, and a failing one does not end the others."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from exporter.check.cases import TITLES, check_plan, find_everything
from exporter.check.report import Finding
from exporter.data.rows import NamedBatch
from exporter.towers.tower import Tower
from exporter.trace.trace_tower import trace_tower
from exporter.verify.cases import Cases
from exporter.verify.reload import Link
from exporter.verify.runnable_tower import RunnableTower
from tests.exporter.verify.conftest import batch, clicks, mean_price_tower

CPU = torch.device("cpu")
SOUND = Cases(
    must_agree=[batch("batch_1", 3), batch("batch_3", 2, 0, 1)],
    must_be_refused=[
        NamedBatch(name="wrong_sum", inputs={**clicks(3, 4), "clicks.lengths": torch.tensor([3, 5])})
    ],
)


@pytest.fixture(scope="module")
def program(tower: Tower) -> ExportedProgram:
    return trace_tower(tower, clicks(3, 0, 4), CPU)


def found(
    tower: Tower, program: ExportedProgram, chain: list[Link], cases: Cases, scratch: Path
) -> list[Finding]:
    runnable = RunnableTower(
        tower=tower, chain=chain, op_libraries=(), scratch=scratch, device=CPU, programs=[program]
    )
    return list(find_everything(runnable, [tower.plan], cases))


def test_a_sound_package_passes_everything(
    tower: Tower, program: ExportedProgram, chain: list[Link], tmp_path: Path
) -> None:
    findings = found(tower, program, chain, SOUND, tmp_path)
    assert all(finding.passed for finding in findings)
    one_package = set(TITLES) - {"handover"}  # the other end of which is a second package
    assert {finding.subject for finding in findings} == one_package
    assert {each.case: each.detail for each in findings if each.subject == "plan"} == {
        "seq_clicks": "0 to 640, as planned",
        "batch": "1 to 64, as planned",
    }


def test_every_failure_is_reported(program: ExportedProgram, chain: list[Link], tmp_path: Path) -> None:
    """Weights of another model: every case differs, and the programs and the refusals stand."""
    findings = found(mean_price_tower(seed=1), program, chain, SOUND, tmp_path)
    failed = [finding for finding in findings if not finding.passed]
    assert [(each.subject, each.case) for each in failed] == [
        ("agrees", "batch_1"),
        ("agrees", "batch_3"),
    ]
    assert failed[0].of_allowed is not None and failed[0].of_allowed > 1
    assert failed[0].sizes == {"seq_clicks": 3, "batch": 1} and "embedding differs by" in failed[0].detail
    assert findings[-1] == Finding(
        subject="refuses", case="wrong_sum", passed=True, detail=findings[-1].detail
    )


def test_a_broken_promise_names_the_node(tower: Tower, chain: list[Link], tmp_path: Path) -> None:
    program = trace_tower(tower, clicks(3, 0, 4), CPU)
    [node] = [node for node in program.graph.nodes if node.name == "mul"]
    node.meta["val"] = node.meta["val"].double()
    findings = found(tower, program, chain, SOUND, tmp_path)
    failed = [finding for finding in findings if not finding.passed]
    assert {each.subject for each in failed} == {"nodes"} and len(failed) == 2
    assert "node mul = aten.mul.Tensor" in failed[0].detail


def test_a_program_that_fixes_a_size_breaks_the_plan(program: ExportedProgram) -> None:
    tower = mean_price_tower()
    wider = tower.plan.__class__(
        inputs=tower.plan.inputs,
        dims=tuple(
            dim.__class__(name=dim.name, low=dim.low, high=(dim.high or 0) + 1, reason=dim.reason)
            for dim in tower.plan.dims
        ),
    )
    [finding] = check_plan(program, wider)
    assert not finding.passed and "planned for 0 to 641, the trace allows 0 to 640" in finding.detail


class RaisesAtThree(nn.Module):
    def __init__(self, sound: nn.Module) -> None:
        super().__init__()
        self.sound = sound

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        if len(inputs["clicks.lengths"]) == 3:
            raise ValueError("three rows are too many")
        outputs: dict[str, Tensor] = self.sound(inputs)
        return outputs


def test_eager_that_raises_at_a_size_ends_no_other_case(
    tower: Tower, program: ExportedProgram, chain: list[Link], tmp_path: Path
) -> None:
    findings = found(replace(tower, module=RaisesAtThree(tower.module)), program, chain, SOUND, tmp_path)
    [failed] = [finding for finding in findings if not finding.passed]
    assert (failed.subject, failed.case) == ("agrees", "batch_3")
    assert failed.detail == "ValueError: three rows are too many"
    assert findings[-1].subject == "refuses"


def test_a_package_that_does_not_load_leaves_what_was_found_before(
    tower: Tower, program: ExportedProgram, tmp_path: Path
) -> None:
    (tmp_path / "none.pt2").write_bytes(b"no package")
    order = tuple(tensor.name for tensor in tower.plan.inputs)
    findings = found(tower, program, [Link(package=tmp_path / "none.pt2", order=order)], SOUND, tmp_path)
    assert all(each.passed for each in findings if each.subject in {"plan", "nodes"})
    [failed] = [each for each in findings if not each.passed]
    assert (failed.subject, failed.case) == ("interface", "batch_1") and failed.detail
