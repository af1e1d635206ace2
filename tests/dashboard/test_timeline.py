"""Stages of towers on one time axis."""

import pytest

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.model import JobState, TowerProgress, TowerState
from service.dashboard.timeline import (
    WIDTH,
    BarState,
    TimedTower,
    longest_of,
    time_towers,
    timeline,
)
from tests.dashboard import sample


def test_a_stage_begins_where_the_one_before_ended() -> None:
    tower = TowerProgress(name=TowerName.USER, stage_seconds={Stage.CONFIG: 1.0, Stage.CHECKPOINT: 3.0})
    config, checkpoint, *rest = timeline(TimedTower.of(tower, None), longest=8.0)
    assert (config.x, config.width, checkpoint.x, checkpoint.width) == (0, 125, 125, 375)
    assert {bar.state for bar in rest} == {BarState.WAITING}


def test_towers_share_one_scale() -> None:
    towers = sample.done(TowerName.USER), sample.done(TowerName.ITEM, slower=0.5)
    slow, fast = (TimedTower.of(tower, None) for tower in towers)
    longest = longest_of([slow, fast])
    ends = [timeline(tower, longest)[-1] for tower in (slow, fast)]
    assert ends[0].x + ends[0].width == pytest.approx(WIDTH, abs=1)
    assert ends[1].x + ends[1].width == pytest.approx(WIDTH / 2, abs=1)


@pytest.mark.parametrize(
    ("tower", "state"),
    [
        (sample.at_work(TowerName.USER, Stage.TRACE, None, ""), BarState.RUNNING),
        (sample.broken(TowerName.USER), BarState.FAILED),
        (sample.broken(TowerName.USER).model_copy(update={"state": TowerState.CANCELLED}), BarState.STOPPED),
    ],
)
def test_a_stage_that_has_not_ended_runs_or_failed_or_was_stopped(
    tower: TowerProgress, state: BarState
) -> None:
    timed = TimedTower.of(tower, None)
    bars = {bar.stage: bar.state for bar in timeline(timed, longest_of([timed]))}
    assert bars[Stage.TRACE] is state


def test_the_start_of_the_attempt_counts() -> None:
    job = sample.job(JobState.SUCCEEDED, sample.done(TowerName.USER))
    (timed,) = time_towers(job)
    start_up, config, *_ = bars = timeline(timed, longest_of([timed]))
    assert start_up.name == "start-up" and start_up.seconds == pytest.approx(3.2)
    assert config.x == start_up.width  # its stages begin after it
    assert timed.seconds == pytest.approx(3.2 + sum(sample.SECONDS.values()))
    assert bars[-1].x + bars[-1].width == pytest.approx(WIDTH, abs=1)


def test_a_start_that_is_not_known_is_not_shown() -> None:
    """Two clocks disagree, or the tower is of an earlier target than the latest attempt's."""
    job = sample.job(JobState.SUCCEEDED, sample.done(TowerName.USER))
    late = job.model_copy(update={"started_at": job.finished_at})
    spec = job.spec.model_copy(update={"target": ("avx2", "avx512")})
    earlier = (job.towers[0].model_copy(update={"target": "avx2"}),)
    of_two = job.model_copy(update={"spec": spec, "target": "avx512", "towers": earlier})
    assert [timed.start_up for each in (late, of_two) for timed in time_towers(each)] == [None, None]
