"""Stages of towers on one time axis."""

import pytest

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.model import TowerProgress
from service.dashboard.timeline import WIDTH, BarState, longest_of, timeline
from tests.dashboard import sample


def test_a_stage_begins_where_the_one_before_ended() -> None:
    tower = TowerProgress(name=TowerName.USER, stage_seconds={Stage.CONFIG: 1.0, Stage.CHECKPOINT: 3.0})
    config, checkpoint, *rest = timeline(tower, longest=8.0)
    assert (config.x, config.width, checkpoint.x, checkpoint.width) == (0, 125, 125, 375)
    assert {bar.state for bar in rest} == {BarState.WAITING}


def test_towers_share_one_scale() -> None:
    slow, fast = sample.done(TowerName.USER), sample.done(TowerName.ITEM, slower=0.5)
    longest = longest_of([slow, fast])
    ends = [timeline(tower, longest)[-1] for tower in (slow, fast)]
    assert ends[0].x + ends[0].width == pytest.approx(WIDTH, abs=1)
    assert ends[1].x + ends[1].width == pytest.approx(WIDTH / 2, abs=1)


@pytest.mark.parametrize(
    ("tower", "state"),
    [
        (sample.at_work(TowerName.USER, Stage.TRACE, None, ""), BarState.RUNNING),
        (sample.broken(TowerName.USER), BarState.STOPPED),
    ],
)
def test_a_stage_that_has_not_ended_runs_or_was_stopped(tower: TowerProgress, state: BarState) -> None:
    bars = {bar.stage: bar.state for bar in timeline(tower, longest_of([tower]))}
    assert bars[Stage.TRACE] is state
