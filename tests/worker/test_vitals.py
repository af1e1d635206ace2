"""What probes are told of a worker, and what a worker that is to go does first."""

import socket
import time
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import pytest

from exporter.spec import Device
from jobs.ids import new_job_id
from jobs.roster import MemoryRoster, WorkerNotice
from tests.jobs.factories import NOW
from worker.drain import drain
from worker.vitals import Vitals, VitalsFile, illness_in

BEAT = timedelta(seconds=0.02)
LONG = timedelta(minutes=5)


def test_a_worker_that_beats_is_well_whether_or_not_it_has_work(tmp_path: Path) -> None:
    VitalsFile(tmp_path / "alive.json", BEAT).write(hungry=False)
    assert illness_in(tmp_path / "alive.json", time.time(), LONG) is None


@pytest.mark.parametrize(
    ("vitals", "illness"),
    [
        (Vitals(at=-60, beat_s=5), "the latest beat was 60 s ago"),
        (Vitals(at=0, beat_s=5, hungry_s=900), "it has been idle for 900 s beside a queue"),
    ],
)
def test_silence_and_deafness_are_illnesses(vitals: Vitals, illness: str) -> None:
    assert (vitals.illness(0, LONG) or "").startswith(illness)


def test_hunger_ends_with_the_next_job(tmp_path: Path) -> None:
    file = VitalsFile(tmp_path / "alive.json", BEAT)
    file.write(hungry=True)
    time.sleep(0.01)
    file.write(hungry=True)
    assert Vitals.model_validate_json((tmp_path / "alive.json").read_text()).hungry_s > 0
    file.write(hungry=False)
    assert Vitals.model_validate_json((tmp_path / "alive.json").read_text()).hungry_s == 0


def test_no_file_is_an_illness(tmp_path: Path) -> None:
    assert illness_in(tmp_path / "none.json", 0, LONG) == f"it has not written {tmp_path / 'none.json'}"


@pytest.mark.parametrize(("busy", "drained"), [(True, False), (False, True)])
def test_draining_waits_for_the_job_at_hand(busy: bool, drained: bool) -> None:
    roster = MemoryRoster()
    told: list[Collection[str]] = []
    notice = WorkerNotice(
        id="w",
        host=socket.gethostname(),
        pid=1,
        device=Device.CPU,
        targets=("cpu", "avx2"),
        versions={},
        started_at=NOW,
        jobs=(new_job_id(),) if busy else (),
    )
    roster.announce(notice, BEAT)
    ended = drain(roster, notice.host, told.append, beat=BEAT, patience=timedelta(seconds=0.2))
    assert (ended, told) == (drained, [{"slipway.exports", "slipway.exports.avx2"}])
