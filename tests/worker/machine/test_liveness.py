"""The liveness probe of a worker, and draining it before it stops."""

import socket
import threading
import time
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest

from exporter.spec import Device
from jobs.errors import StoreUnavailable
from jobs.fleet.roster import MemoryRoster, WorkerNotice
from jobs.ids import JobId, new_job_id
from tests.jobs.factories import NOW
from worker.drain import drain
from worker.machine.liveness import Beat, LivenessFile, find_problem

BEAT = timedelta(seconds=0.02)
LONG = timedelta(minutes=5)


def test_a_worker_that_beats_is_well_whether_or_not_it_has_work(tmp_path: Path) -> None:
    LivenessFile(tmp_path / "alive.json", BEAT).write(hungry=False)
    assert find_problem(tmp_path / "alive.json", time.time(), LONG) is None


@pytest.mark.parametrize(
    ("beat", "problem"),
    [
        (Beat(at=-60, beat_s=5), "the latest beat was 60 s ago"),
        (Beat(at=0, beat_s=5, hungry_s=900), "it has been idle for 900 s beside a queue"),
    ],
)
def test_silence_and_deafness_are_illnesses(beat: Beat, problem: str) -> None:
    assert (beat.problem(0, LONG) or "").startswith(problem)


def test_hunger_ends_with_the_next_job(tmp_path: Path) -> None:
    file = LivenessFile(tmp_path / "alive.json", BEAT)
    file.write(hungry=True)
    time.sleep(0.01)
    file.write(hungry=True)
    assert Beat.model_validate_json((tmp_path / "alive.json").read_text()).hungry_s > 0
    file.write(hungry=False)
    assert Beat.model_validate_json((tmp_path / "alive.json").read_text()).hungry_s == 0


def test_no_file_is_an_illness(tmp_path: Path) -> None:
    assert find_problem(tmp_path / "none.json", 0, LONG) == f"it has not written {tmp_path / 'none.json'}"


def notice(*jobs: JobId) -> WorkerNotice:
    host = socket.gethostname()
    return WorkerNotice(
        id="w",
        host=host,
        pid=1,
        device=Device.CPU,
        targets=("cpu", "avx2"),
        versions={},
        started_at=NOW,
        jobs=jobs,
    )


class Listener:
    """The result of asking a worker: an answer, no answer, or no broker."""

    def __init__(self, *answers: Literal["answer", "none", "away"]) -> None:
        self.answers = list(answers)
        self.told: list[Collection[str]] = []

    def stop(self, queues: Collection[str]) -> bool:
        self.told.append(queues)
        answer = self.answers.pop(0)
        if answer == "away":
            raise StoreUnavailable(ConnectionError())
        return answer == "answer"


def drained(roster: MemoryRoster, listener: Listener, seconds: float = 0.2) -> bool:
    patience = timedelta(seconds=seconds)
    return drain(roster, socket.gethostname(), listener.stop, beat=BEAT, patience=patience)


@pytest.mark.parametrize("busy", [True, False])
def test_draining_waits_for_the_job_at_hand(busy: bool) -> None:
    roster, listener = MemoryRoster(), Listener("answer")
    roster.announce(notice(*[new_job_id()] * busy), BEAT)
    assert drained(roster, listener) is not busy
    assert listener.told == [{"slipway.exports", "slipway.exports.avx2"}]


def test_a_worker_that_did_not_answer_or_could_not_be_asked_is_told_again() -> None:
    roster, listener = MemoryRoster(), Listener("none", "away", "answer")
    roster.announce(notice(), BEAT)
    assert drained(roster, listener)
    assert len(listener.told) == 3


def test_a_worker_that_is_not_to_be_seen_yet_is_waited_for() -> None:
    """After an outage of the store, a worker is unknown until its next beat."""
    roster, listener = MemoryRoster(), Listener("answer")
    threading.Timer(BEAT.total_seconds() * 2, roster.announce, (notice(new_job_id()), BEAT)).start()
    assert not drained(roster, listener)


def test_nobody_is_waited_for_where_there_is_no_worker() -> None:
    assert drained(MemoryRoster(), Listener())
