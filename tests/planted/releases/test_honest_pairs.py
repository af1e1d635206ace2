"""Honest releases, each trained on for a day and judged on the next day's rows: none is refused."""

from pathlib import Path

import pytest

from tests.planted.releases.conftest import Trade
from tests.planted.releases.variants import judge, publish

pytestmark = pytest.mark.planted

PAIRS = 25  # of each model


@pytest.mark.parametrize("model", ["ranking", "retrieval"])
def test_honest_releases_are_blessed(model: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    trade: Trade = request.getfixturevalue(model)
    state, baseline = trade.exported.state, trade.baseline()
    refused = []
    for day in range(1, PAIRS + 1):
        state = trade.train_on(state, day)
        candidate = publish(trade.exported, tmp_path / f"day-{day}", state)
        report = judge(candidate, baseline, trade.held_out(day), trade.exported, tmp_path)
        if not report.blessed:
            refused.append(report)
        baseline = candidate
    assert refused == []
