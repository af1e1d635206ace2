"""The attempts of fault tests: real and light ones, which stop at chosen points."""

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

from exporter.artifact.read import file_ref, recover_published_outcome
from exporter.artifact.upload import publish_manifest, upload_tower
from exporter.errors import ExportError
from exporter.manifest import FileRef, TowerEntry
from exporter.outcome import ExportOutcome, Failure
from exporter.spec import TowerName
from exporter.stages import Progress, Stage, StageClock, StageEvent
from exporter.storage import cloud_store
from exporter.storage.open import open_store, split_uri
from exporter.storage.store import StoredFile, join_uri
from processes.settings import inherited_environment
from tests.faults.commands import NAMING
from tests.faults.holding import HoldFolder
from tests.jobs.factories import make_entry, make_manifest
from worker.attempt.workspace import AttemptFile
from worker.lease.lease_proof import await_proof

_COLD_STAGES = (Stage.TRACE, Stage.COMPILE)  # which an attempt that finds its code does not come to
_TOWERS = (TowerName.USER, TowerName.ITEM)
_PART = 1 << 16  # bytes; of a light package there are four

Permission = Callable[[Path], timedelta | None]


def start_real(folder: Path, workspace: Path) -> None:
    """Become the ranks' program, as the worker's own launcher would start it, with a folder to hold in."""
    order = AttemptFile.model_validate_json((workspace / "attempt.json").read_text())
    ranks = order.spec.ranks or len(order.spec.towers or _TOWERS)
    program = ["-m", "tests.faults.attempts", "ranks", str(folder), str(workspace), str(ranks)]
    wanted = HoldFolder(folder).wanted()
    cold = wanted is not None and order.attempt in wanted.attempts and wanted.stage in _COLD_STAGES
    environment = inherited_environment({"SLIPWAY_CODE_CACHE": "off"} if cold else {})
    environment[NAMING] = f"attempt-{order.attempt}"
    os.execve(sys.executable, [sys.executable, *program], environment)


def run_ranks(folder: Path, workspace: Path, count: str) -> None:
    """Run the ranks of worker.attempt.ranks, which stop at chosen points."""
    order = AttemptFile.model_validate_json((workspace / "attempt.json").read_text())
    from worker.attempt import ranks  # with torch

    sys.argv = ["worker.attempt.ranks", str(workspace), count]
    cloud_store.PART_SIZE = _PART
    ranks.main(HoldFolder(folder).watching(order.attempt))


def run_light(folder: Path, workspace: Path, permission: Permission = await_proof) -> None:
    """Do everything that rank 0 does except for the export itself."""
    order = AttemptFile.model_validate_json((workspace / "attempt.json").read_text())
    os.environ[NAMING] = f"attempt-{order.attempt}"  # noqa: TID251 (boto3 reads it there)
    cloud_store.PART_SIZE = _PART
    with (workspace / "events-0.jsonl").open("a", buffering=1) as events:

        def write(event: StageEvent) -> None:
            events.write(event.model_dump_json() + "\n")

        report = HoldFolder(folder).watching(order.attempt)(write)
        try:
            clocks = [StageClock(name, report) for name in _wanted(order)]
            outcome = _light_export(order, workspace, clocks, partial(permission, workspace))
        except ExportError as error:
            outcome = ExportOutcome(failure=Failure.of(error))
    unfinished = workspace / "outcome.partial"
    unfinished.write_text(outcome.model_dump_json())
    unfinished.rename(workspace / "outcome.json")


def run_reckless(folder: Path, workspace: Path) -> None:
    run_light(folder, workspace, lambda _: None)


def _light_export(
    order: AttemptFile,
    workspace: Path,
    clocks: list[StageClock],
    permission: Callable[[], timedelta | None],
) -> ExportOutcome:
    root = join_uri(order.spec.output_uri, order.folder)
    if order.replace_unfinished and (
        earlier := recover_published_outcome(root, order.job_id, _wanted(order))
    ):
        return earlier
    for clock in clocks:
        for stage in (Stage.CONFIG, Stage.CHECKPOINT, Stage.ROWS, Stage.TRACE, Stage.COMPILE, Stage.VERIFY):
            with clock.stage(stage):
                if stage is Stage.CHECKPOINT:
                    _read(order.spec.checkpoint_uri)
    files = {f"{clock.tower}/aoti/aoti_model.pt2": _package(clock.tower, workspace) for clock in clocks}
    entries = [_entry(TowerName(clock.tower), files) for clock in clocks]
    sent: list[StoredFile] = []
    for clock, entry in zip(clocks, entries, strict=True):
        own = {ref.path: files[ref.path] for ref in entry.all_files}
        with clock.stage(Stage.PUBLISH) as progress:
            permission()
            sent += upload_tower(
                entry,
                own,
                root,
                replace_unfinished=order.replace_unfinished,
                on_progress=partial(_tell, progress),
                may_upload=permission,
            )
    publish_manifest(
        make_manifest(order.job_id, *entries),
        sent,
        root,
        replace_unfinished=order.replace_unfinished,
        before_manifest=permission,
    )
    outcome = recover_published_outcome(root, order.job_id, _wanted(order))
    assert outcome is not None
    return outcome


def _tell(progress: Progress, sent: int, total: int) -> None:
    progress(sent / total, "")


def _wanted(order: AttemptFile) -> tuple[TowerName, ...]:
    return order.spec.towers or _TOWERS


def _read(uri: str) -> None:
    store, name = split_uri(uri)
    open_store(store).read(name)


def _package(tower: str, workspace: Path) -> Path:
    path = workspace / f"{tower}.pt2"
    path.write_bytes(os.urandom(4 * _PART))
    return path


def _entry(tower: TowerName, files: dict[str, Path]) -> TowerEntry:
    path = f"{tower}/aoti/aoti_model.pt2"
    package: FileRef = file_ref(path, files[path])
    return make_entry(tower).model_copy(update={"package": package})


if __name__ == "__main__":
    kind, hold_folder, workspace_path, *count = sys.argv[1:]
    if kind == "ranks":
        run_ranks(Path(hold_folder), Path(workspace_path), *count)
    else:
        start = {"real": start_real, "light": run_light, "reckless": run_reckless}[kind]
        start(Path(hold_folder), Path(workspace_path))
