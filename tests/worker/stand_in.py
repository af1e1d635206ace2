"""A stand-in for the ranks of an attempt: `python -m tests.worker.stand_in BEHAVIOUR PIDS WORKSPACE`.

It speaks the protocol of worker.attempt without exporting anything. The file PIDS gets the numbers of
its processes.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from exporter.outcome import ExportOutcome
from exporter.spec import TowerName
from exporter.stages import Stage
from tests.jobs.factories import make_event, make_failure, make_outcome
from worker.logs import mark
from worker.workspace import AttemptFile

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def report(workspace: Path) -> None:
    with (workspace / "events-0.jsonl").open("a", buffering=1) as events:
        for tower in ("user", "item"):
            for stage in (Stage.TRACE, Stage.COMPILE):
                started = make_event(tower, stage, at=time.time(), detail="begun")
                finished = make_event(tower, stage, kind="finished", at=time.time(), seconds=0.5)
                events.write(f"{started.model_dump_json()}\n{finished.model_dump_json()}\n")
                sys.stderr.write(f"{mark(tower, stage)}\nat work on {stage} of {tower}\n")


def end(workspace: Path, outcome: ExportOutcome) -> None:
    time.sleep(0.5)
    (workspace / "partial").write_text(outcome.model_dump_json())
    (workspace / "partial").rename(workspace / "outcome.json")


def hang(pids: Path) -> None:
    """Wait for ever, with a grandchild in a session of its own, as torchrun's ranks are."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=True)
    pids.write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)


def main() -> None:
    behaviour, pids, workspace = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    attempt = AttemptFile.model_validate_json((workspace / "attempt.json").read_text())
    report(workspace)
    if behaviour == "hang" or (behaviour == "hang-once" and attempt.attempt == 1):
        hang(pids)
    if behaviour == "crash":
        sys.exit("boom: no memory left")
    if behaviour == "garble":
        (workspace / "outcome.json").write_text("{")
    elif behaviour == "fail-item" and attempt.spec.towers is None:
        end(workspace, make_outcome(failed={TowerName.ITEM: make_failure()}))
    elif behaviour != "silent":
        end(workspace, make_outcome())


if __name__ == "__main__":
    main()
