"""Run `slipway export` as a user would; measure it from outside and from its job record."""

import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from benchmarks.measure.process_memory import MemoryWatch, Peak
from exporter.spec import ExportSpec
from exporter.stages import Stage
from jobs.model import JobState
from processes.guarded_process import GuardedProcess
from service.schemas import JobView

_GRACE = timedelta(seconds=10)
_FAILED = "the export failed; its log ends:\n"


class ExportRun(BaseModel):
    """One export that succeeded."""

    command_s: float  # from the command's start to its end
    attempt_s: float  # from claiming the job to its end: the time that a worker spends
    stages_s: Mapping[str, Mapping[Stage, float]]  # by tower
    code: Mapping[str, str]  # by tower: cold, or warm and what was reused
    peak: Peak  # all zero if memory was not watched

    def seconds(self, *stages: Stage) -> float:
        """Return the seconds in these stages, summed over all towers."""
        return sum(tower.get(stage, 0.0) for tower in self.stages_s.values() for stage in stages)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Folders of an export: its working folder, the compiler's own files, and the code cache if any."""

    folder: Path
    compiler: Path
    code_cache: Path | None = None
    path: str | None = None  # where programs are looked for, if not where this one looks
    users_code: bool = False  # the user's code cache may be used, because the export itself is not measured


def export(spec: ExportSpec, place: Place, *, keep: Path | None = None, watched: bool = False) -> ExportRun:
    """Export once, and move the artifact to `keep` or remove it.

    Watching its memory takes a sixth of a core, so leave `watched` off where seconds count.
    """
    tmp, request, log = place.folder / "tmp", place.folder / "spec.json", place.folder / "export.log"
    tmp.mkdir(exist_ok=True)
    request.write_text(spec.model_dump_json(exclude_unset=True, exclude_none=True))
    log.unlink(missing_ok=True)
    command = [sys.executable, "-m", "cli.main", "export", "--spec", str(request), "--json"]
    if not place.users_code:
        command += ["--code-cache", str(place.code_cache) if place.code_cache else "off"]
    environment = {"TMPDIR": str(tmp), "TORCHINDUCTOR_CACHE_DIR": str(place.compiler)}
    if place.path is not None:
        environment["PATH"] = place.path
    begun = time.monotonic()
    process = GuardedProcess.start(command, log=log, grace=_GRACE, environment=environment)
    try:
        with MemoryWatch(process.guard.pid) if watched else nullcontext() as watch:
            status = process.wait()
    finally:
        process.stop()
    seconds = time.monotonic() - begun
    if status != 0:
        raise SystemExit(_FAILED + process.last_lines(15))
    job = JobView.model_validate_json(process.last_lines(1))
    assert job.state is JobState.SUCCEEDED and job.started_at and job.finished_at
    artifact = Path(spec.output_uri) / job.id
    if keep is not None:
        shutil.move(artifact, keep)
    shutil.rmtree(spec.output_uri, ignore_errors=True)
    return ExportRun(
        command_s=round(seconds, 3),
        attempt_s=(job.finished_at - job.started_at).total_seconds(),
        stages_s={tower.name: tower.stage_seconds for tower in job.towers},
        code={tower.name: " ".join(filter(None, [tower.code, tower.reused])) for tower in job.towers},
        peak=watch.peak if watch else Peak(),
    )


def fresh_compiler(known: Path, folder: Path) -> Path:
    """Copy the compiler's own files as an installation has them, without code of any model.

    `known` is a compiler folder that another model was compiled in before.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(known, folder)
    return folder
