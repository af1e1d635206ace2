"""The attempts of fault tests: real ones, which stop where they are told to, and light ones.

    python -m tests.faults.attempts real|light FOLDER WORKSPACE     what the worker starts
    python -m tests.faults.attempts rank FOLDER WORKSPACE           a real one's ranks, under torchrun

A light attempt reads, uploads and publishes with the exporter's own code, and goes through the stages between
without doing anything in them: it needs no compiler, and half a second.
"""

import os
import sys
from functools import partial
from pathlib import Path

from exporter.errors import ExportError
from exporter.manifest import FileRef, Manifest, TowerEntry
from exporter.outcome import ExportOutcome, Failure, TowerOutcome
from exporter.publish import complete, send_tower
from exporter.published import file_ref, read_manifest
from exporter.spec import TowerName
from exporter.stages import Progress, Stage, StageClock, StageEvent
from exporter.storage.store import StoredFile, join_uri, open_store, split_uri
from processes.settings import inherited_environment
from tests.faults.holding import HoldFolder
from tests.jobs.factories import make_entry, make_manifest
from worker.lease_proof import await_proof
from worker.workspace import AttemptFile

_COLD_STAGES = (Stage.TRACE, Stage.COMPILE)  # which an attempt that finds its code does not come to
_TOWERS = (TowerName.USER, TowerName.ITEM)


def start_real(folder: Path, workspace: Path) -> None:
    """Become torchrun, as the worker's own launcher would start it."""
    order = AttemptFile.model_validate_json((workspace / "attempt.json").read_text())
    ranks = order.spec.ranks or len(order.spec.towers or _TOWERS)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "--tee", "3"]
    rank = ["-m", "tests.faults.attempts", "rank", str(folder), str(workspace)]
    wanted = HoldFolder(folder).wanted()
    cold = wanted is not None and order.attempt in wanted.attempts and wanted.stage in _COLD_STAGES
    environment = inherited_environment({"SLIPWAY_CODE_CACHE": "off"} if cold else {})
    os.execve(sys.executable, [sys.executable, *torchrun, *rank], environment)


def run_rank(folder: Path, workspace: Path) -> None:
    """One rank of worker.attempt, which stops where it is told to."""
    order = AttemptFile.model_validate_json((workspace / "attempt.json").read_text())
    from worker import attempt  # with torch

    sys.argv = ["worker.attempt", str(workspace)]
    attempt.main(HoldFolder(folder).watching(order.attempt))


def run_light(folder: Path, workspace: Path) -> None:
    """Do what rank 0 does, but for the export itself."""
    order = AttemptFile.model_validate_json((workspace / "attempt.json").read_text())
    with (workspace / "events-0.jsonl").open("a", buffering=1) as events:

        def write(event: StageEvent) -> None:
            events.write(event.model_dump_json() + "\n")

        report = HoldFolder(folder).watching(order.attempt)(write)
        try:
            outcome = _light_export(order, workspace, [StageClock(name, report) for name in _wanted(order)])
        except ExportError as error:
            outcome = ExportOutcome(failure=Failure.of(error))
    partial = workspace / "outcome.partial"
    partial.write_text(outcome.model_dump_json())
    partial.rename(workspace / "outcome.json")


def _light_export(order: AttemptFile, workspace: Path, clocks: list[StageClock]) -> ExportOutcome:
    root = join_uri(order.spec.output_uri, order.folder)
    if order.replace_unfinished and (earlier := _published_earlier(root)):
        return _outcome(earlier, root)
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
            await_proof(workspace)
            sent += send_tower(
                entry,
                own,
                root,
                replace_unfinished=order.replace_unfinished,
                on_sent=partial(_tell, progress),
            )
    complete(
        make_manifest(order.job_id, *entries),
        sent,
        root,
        replace_unfinished=order.replace_unfinished,
        before_manifest=lambda: await_proof(workspace),
    )
    return _outcome(read_manifest(root), root)


def _tell(progress: Progress, sent: int, total: int) -> None:
    progress(sent / total, "")


def _wanted(order: AttemptFile) -> tuple[TowerName, ...]:
    return order.spec.towers or _TOWERS


def _read(uri: str) -> None:
    store, name = split_uri(uri)
    open_store(store).read(name)


def _package(tower: str, workspace: Path) -> Path:
    path = workspace / f"{tower}.pt2"
    path.write_bytes(os.urandom(1 << 16))
    return path


def _entry(tower: TowerName, files: dict[str, Path]) -> TowerEntry:
    path = f"{tower}/aoti/aoti_model.pt2"
    package: FileRef = file_ref(path, files[path])
    return make_entry(tower).model_copy(update={"package": package})


def _published_earlier(root: str) -> Manifest | None:
    try:
        return read_manifest(root)
    except ExportError:
        return None


def _outcome(manifest: Manifest, root: str) -> ExportOutcome:
    towers = tuple(
        TowerOutcome(tower=entry.name, entry=entry, package_uri=join_uri(root, entry.package.path))
        for entry in manifest.towers
    )
    return ExportOutcome(towers=towers, manifest_uri=join_uri(root, "manifest.json"))


if __name__ == "__main__":
    kind, hold_folder, workspace_path = sys.argv[1:]
    start = {"real": start_real, "rank": run_rank, "light": run_light}[kind]
    start(Path(hold_folder), Path(workspace_path))
