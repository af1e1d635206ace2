"""Fake ranks of an attempt: `python -m tests.worker.fake_ranks BEHAVIOUR PIDS WORKSPACE`.

The program speaks the protocol of worker.attempt.rank without exporting anything. The file PIDS gets the
numbers of its processes. `as-asked` takes the behaviour from the end of the output's URI, job by job.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from exporter.outcome import ExportOutcome, Failure
from exporter.spec import TowerName
from exporter.stages import Stage
from tests.jobs.factories import make_entry, make_event, make_failure, make_manifest, make_outcome
from worker.attempt.logs import format_stage_mark
from worker.attempt.workspace import AttemptFile, write_failure

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def report(workspace: Path, *, seconds: float = 0.0) -> None:
    """Report the stages as ranks do, each with its time."""
    with (workspace / "events-0.jsonl").open("a", buffering=1) as events:
        for tower in ("user", "item"):
            for stage in (Stage.TRACE, Stage.COMPILE):
                started = make_event(tower, stage, at=time.time(), detail="begun")
                events.write(f"{started.model_dump_json()}\n")
                sys.stderr.write(f"{format_stage_mark(tower, stage)}\nat work on {stage} of {tower}\n")
                time.sleep(seconds)
                finished = make_event(tower, stage, kind="finished", at=time.time(), seconds=seconds or 0.5)
                events.write(f"{finished.model_dump_json()}\n")


def end(workspace: Path, outcome: ExportOutcome) -> None:
    time.sleep(0.5)
    (workspace / "partial").write_text(outcome.model_dump_json())
    (workspace / "partial").rename(workspace / "outcome.json")


def publish(attempt: AttemptFile) -> ExportOutcome:
    """Write files that can be fetched in the place of an artifact."""
    root = Path(attempt.spec.output_uri, attempt.job_id)
    root.mkdir(parents=True)
    for tower in (TowerName.USER, TowerName.ITEM):
        (root / tower).write_text(f"the package of {tower}")
    manifest = make_manifest(attempt.job_id, make_entry(TowerName.USER), make_entry(TowerName.ITEM))
    text = manifest.model_dump_json()
    (root / "manifest.json").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return make_outcome(root=str(root)).model_copy(update={"manifest_sha256": digest})


def leave_evidence(tower: Path) -> None:
    (tower / "evidence").mkdir(parents=True)
    (tower / "evidence" / "traceback.txt").write_text("in _produce")


def hang(pids: Path) -> None:
    """Wait for ever, with a grandchild in its own session, as torchrun's ranks have."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=True)
    pids.write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)


PUBLISHING: dict[str, Callable[[Path], None]] = {  # what follows the publication
    "publish": lambda pids: None,
    "publish-at-once": lambda pids: None,
    "publish-and-hang": hang,  # as ranks that judge their release
}


def main() -> None:
    behaviour, pids, workspace = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    attempt = AttemptFile.model_validate_json((workspace / "attempt.json").read_text())
    if behaviour == "as-asked":
        behaviour = attempt.spec.output_uri.rpartition("/")[2]
    report(workspace, seconds=1.2 if behaviour == "publish" else 0.0)
    if behaviour == "hang" or (behaviour == "hang-once" and attempt.attempt == 1):
        hang(pids)
    if behaviour == "crash":
        sys.exit("boom: no memory left")
    if behaviour == "rank-fails":
        write_failure(Failure(code="uri_not_allowed", message="rank 1 may not read it"), 1, workspace)
        sys.exit(1)
    if behaviour == "garble":
        (workspace / "outcome.json").write_text("{")
    elif behaviour == "fail-item" and attempt.spec.towers is None:
        leave_evidence(workspace / TowerName.ITEM)
        end(workspace, make_outcome(failed={TowerName.ITEM: make_failure()}))
    elif behaviour in PUBLISHING:
        end(workspace, publish(attempt))
        PUBLISHING[behaviour](pids)
    elif behaviour == "publish-swapped":
        outcome = publish(attempt)
        manifest = Path(attempt.spec.output_uri, attempt.job_id, "manifest.json")
        manifest.write_text(f"{manifest.read_text()} ")
        end(workspace, outcome)
    elif behaviour != "silent":
        end(workspace, make_outcome())


if __name__ == "__main__":
    main()
