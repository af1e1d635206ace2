"""Build the bundle of a failure: a small zip with what a person needs to find the cause, without weights."""

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from exporter.attempt.attempt import DIAGNOSTICS
from exporter.dims.entries import dim_entries, tensor_entries
from exporter.errors import ExportError
from exporter.outcome import Failure
from exporter.redaction import redact
from exporter.spec import ExportSpec, TowerName
from exporter.towers.plan import plan_towers
from jobs.diagnostics.bundles import MAX_BYTES
from jobs.diagnostics.logs import LogPart
from jobs.model import Job
from worker.attempt.workspace import Workspace
from worker.machine.versions import all_versions

_LONGEST = 4 << 20  # characters kept of one file
_DIRECTORY = 16 << 10  # bytes reserved for the zip's own directory


def build_bundle(
    job: Job,
    config: str,
    tower: TowerName | None,
    failure: Failure,
    workspace: Workspace,
    logs: tuple[LogPart, ...],
    secrets: Sequence[str] = (),
) -> bytes:
    """Return the zip for one tower's failure, or, without a tower, for an attempt that failed as a whole.

    `config` is the text of the job's config. All `secrets` are removed from every file.
    """
    return _write_zip(_list_files(job, config, tower, failure, workspace, logs), secrets)


def _list_files(
    job: Job,
    config: str,
    tower: TowerName | None,
    failure: Failure,
    workspace: Workspace,
    logs: tuple[LogPart, ...],
) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each file, the most important first."""
    attempt = {"job": job.id, "attempt": job.attempt, "tower": tower, "failure": failure.model_dump()}
    yield "failure.json", _json(attempt)
    spec = job.spec.with_config(config)
    yield "spec.json", spec.model_dump_json(indent=2, exclude={"config"})
    yield "pipeline.config", config
    yield "versions.json", _json(all_versions())
    yield "plan.json", _describe_plan(spec)
    yield "log.txt", _format_log(logs)
    for folder in [workspace.path / tower] if tower else sorted(workspace.path.glob("*")):
        for file in sorted((folder / DIAGNOSTICS).glob("*"), key=_by_size):
            yield file.name if tower else f"{folder.name}/{file.name}", _read_beginning(file)


def _by_size(file: Path) -> tuple[int, str]:
    return file.stat().st_size, file.name


def _read_beginning(file: Path) -> str:
    with file.open(errors="replace") as text:
        return text.read(_LONGEST)


def _format_log(parts: tuple[LogPart, ...]) -> str:
    lines = [
        line
        for part in parts
        for line in (f"== {part.tower or 'all'} {part.stage or ''}".rstrip(), *part.lines)
    ]
    return "".join(f"{line}\n" for line in lines)


def _describe_plan(spec: ExportSpec) -> str:
    """Return the inputs of every tower and their dynamic dims as JSON, or the error of planning them."""
    try:
        planned = plan_towers(spec, spec.config or "")
    except ExportError as error:
        return _json(Failure.of(error).model_dump())
    return _json(
        {
            tower.config.name: {
                "inputs": [entry.model_dump() for entry in tensor_entries(tower.plan)],
                "dims": [entry.model_dump() for entry in dim_entries(tower.plan)],
            }
            for tower in planned
        }
    )


def _json(value: object) -> str:
    return json.dumps(value, indent=2)


def _compressed_size(text: str) -> int:
    return len(zlib.compress(text.encode()))


def _write_zip(files: Iterator[tuple[str, str]], secrets: Sequence[str]) -> bytes:
    """Return a zip of the files; a file that does not fit is cut to its first eighth, or else left out."""
    buffer, left_out = io.BytesIO(), []
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, text in files:
            clean = redact(text[-_LONGEST:] if name == "log.txt" else text[:_LONGEST], secrets)
            for shortened in (clean, clean[: len(clean) // 8]):
                if buffer.tell() + _compressed_size(shortened) <= MAX_BYTES - _DIRECTORY:
                    bundle.writestr(name, shortened)
                    break
            else:
                left_out.append(name)
        if left_out:
            bundle.writestr("left_out.txt", "".join(f"{name}\n" for name in left_out))
    return buffer.getvalue()
