"""While packages run on one case, eager runs on later ones that take no longer."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from exporter.errors import PackageCrashed
from exporter.towers.tower import Tower
from exporter.verify.cases import Cases
from exporter.verify.reload import Link
from exporter.verify.runnable_tower import RunnableTower
from exporter.verify.runner import Refused
from exporter.verify.trials import Trials
from tests.exporter.verify.conftest import MeanPrice, batch


class Waking(MeanPrice):
    """Lets a process go on once it is called with as many rows."""

    def __init__(self, rows: int) -> None:
        super().__init__(seed=0)
        self.rows, self.sleeper = rows, 0

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.sleeper and len(inputs["clicks.lengths"]) == self.rows:
            os.kill(self.sleeper, signal.SIGCONT)
        return super().forward(inputs)


@pytest.mark.parametrize(("last", "is_tried"), [(7, True), (9, False)])
def test_eager_runs_on_later_cases_while_packages_run(
    last: int, is_tried: bool, tower: Tower, chain: list[Link], tmp_path: Path
) -> None:
    eager = Waking(rows=last).eval()
    runnable = RunnableTower(
        tower=replace(tower, module=eager),
        chain=chain,
        op_libraries=(),
        scratch=tmp_path,
        device=torch.device("cpu"),
        call_limit_s=60.0 if is_tried else 5.0,
    )
    batches = [batch(f"others_{rows}", *[3] * rows) for rows in (8, 2, last)]
    trials = iter(Trials(runnable, Cases(must_agree=batches, must_be_refused=()), (), lambda *_: ()))
    with runnable.make_runner() as runner:
        first, _ = next(trials)
        first.runner, eager.sleeper = runner, runner.pid
        os.kill(runner.pid, signal.SIGSTOP)  # packages run until eager has run on the last case
        if is_tried:
            assert not isinstance(first.outputs, Refused)
            return
        with pytest.raises(PackageCrashed, match="took more than 5 s"):
            _ = first.outputs
