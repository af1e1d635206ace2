"""Export of a module of your own, from Python: `slipway.plan` shows how, `slipway.export` publishes it.

The export itself is `slipway export`, in a process of its own: the same stages, gate and artifact.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from exporter.errors import ExportError
from exporter.families.handover.errors import ModuleUnusable
from exporter.families.handover.folder import request_fields, write_family
from exporter.families.handover.module_plan import ModulePlan, plan_module
from exporter.families.handover.proposal import GivenCorrection
from exporter.families.own_module import GUARD, file_being_run
from exporter.outcome import Failure
from service.schemas import JobView
from slipway.errors import ExportFailed

__all__ = ["ModulePlan", "Published", "export", "plan"]

Progress = Callable[[str], None]  # takes a line


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published artifact."""

    uri: str  # of its folder; with several targets, of the first that was published
    job_id: str
    packages: Mapping[str, str]  # URI of each package: by its tower, of several targets as "user (avx2)"


def plan(
    module: object,
    example_inputs: object,
    *,
    tower: str = "model",
    dims: Mapping[str, GivenCorrection] | None = None,
    table_rows: Mapping[str, int] | None = None,
    lengths: Mapping[str, str] | None = None,
) -> ModulePlan:
    """Propose how a module is exported, from example inputs.

    Args:
        module: a module, or modules by the names of towers; each runs once on its example.
        example_inputs: what forward takes, or that of each tower by its name: a KeyedJaggedTensor, a tensor,
            a dict of these, or a tuple of arguments.
        tower: the name of a single module's tower: user, item, model or embedding.
        dims: corrections by the name of a dim: a pair (smallest, largest) of sizes in a call, with None for
            no bound; or the names of inputs that have the dim in common; or a dict with `low`, `high` or
            `high_per_row`, and `inputs`. That of `batch` is the pair (1, largest).
        table_rows: for inputs of ids that the module looks up in no table that is found: how many ids.
        lengths: for inputs whose elements others count, and whose names do not say so: the other's name.

    Raises:
        ModuleUnusable: the module or the example cannot be exported.
        InvalidDeclaration: a correction names what is not there, or contradicts itself or the example.
    """
    with _hints_shown():
        return plan_module(
            module, example_inputs, tower=tower, dims=dims, table_rows=table_rows, lengths=lengths
        )


def export(  # noqa: PLR0913  all but two are keyword arguments
    module: object,
    example_inputs: object,
    *,
    output: str | Path,
    checkpoint: str | Path | None = None,
    tower: str = "model",
    dims: Mapping[str, GivenCorrection] | None = None,
    table_rows: Mapping[str, int] | None = None,
    lengths: Mapping[str, str] | None = None,
    sample_input: str | Path | None = None,
    item_input: str | Path | None = None,
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Published:
    """Export a module and publish it, once the packages compute what it computes.

    Args:
        module: a trained module, or modules by the names of towers: {"user": ..., "item": ...}.
        example_inputs: what forward takes, or that of each tower by its name: see `plan`.
        output: folder or URI to publish to; the artifact goes to <output>/<job id>.
        checkpoint: the weights: a .safetensors or .pt file, or a folder of a distributed checkpoint. Default:
            the module's own.
        tower: the name of a single module's tower.
        dims: corrections of dims, see `plan`.
        table_rows: numbers of ids, see `plan`.
        lengths: inputs that count others' elements, see `plan`.
        sample_input: parquet with real rows to trace and verify with, a column per input. Default: the
            example.
        item_input: the same for item and embedding towers.
        options: further fields of a request, as those of a file for `slipway export --spec`.
        progress: receives every line of progress. Default: they go to standard error.

    Raises:
        ExportError: nothing was published, or not every tower; its `code` is one of docs/errors.md.
    """
    with _hints_shown():
        if running := file_being_run():
            raise ModuleUnusable(
                f"{running} calls slipway.export while it is imported to be exported",
                hint=GUARD,
                where="module",
            )
        planned = plan_module(
            module, example_inputs, tower=tower, dims=dims, table_rows=table_rows, lengths=lengths
        )
        rows = {"sample_input_uri": sample_input, "item_input_uri": item_input}
        fields = {name: _uri(given) for name, given in rows.items() if given is not None}
        weights = None if checkpoint is None else _uri(checkpoint)
        request = {**fields, "output_uri": _uri(output), **(options or {})}
        return _export(planned, weights, request, progress or _print_line)


@contextmanager
def _hints_shown() -> Iterator[None]:
    """Add the hint of an error to it as a note: it is shown below the message, where nobody catches it."""
    try:
        yield
    except ExportError as error:
        if error.hint:
            error.add_note(error.hint)
        raise


def _export(
    planned: ModulePlan, checkpoint: str | None, fields: Mapping[str, object], progress: Progress
) -> Published:
    """Write what is exported into a folder, and export it from there."""
    with tempfile.TemporaryDirectory(prefix="slipway-module-") as scratch:
        folder = Path(scratch)
        write_family(planned, folder, with_answers=checkpoint is None)
        request = {**request_fields(planned, folder, checkpoint=checkpoint, given=fields.keys()), **fields}
        (folder / "request.json").write_text(json.dumps(request))
        return _read_published(_run(folder, progress))


def _uri(given: str | Path) -> str:
    """Return a URI, or an absolute path: the export runs in a process of its own."""
    return str(given) if "://" in str(given) else str(Path(given).absolute())


def _run(folder: Path, progress: Progress) -> JobView:
    """Run the export, show its progress, and return the job; raise the ExportError of one that was none."""
    command = [sys.executable, "-P", "-m", "cli.main", "export", "--json"]
    command += ["--spec", str(folder / "request.json"), "--family", str(folder)]
    with (
        (folder / "job.json").open("w") as printed,
        subprocess.Popen(command, stdout=printed, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stderr is not None
            error = _relay(process.stderr, progress)
        except BaseException:
            process.terminate()  # like an interrupt: it ends its own processes, and removes what they wrote
            raise
    job = (folder / "job.json").read_text()
    if not job:
        raise error or ExportFailed(f"the export ended with status {process.returncode} and without a word")
    return JobView.model_validate_json(job)


def _relay(lines: IO[str], progress: Progress) -> ExportError | None:
    """Pass lines on; return the error that one of them is, if there is one."""
    error: ExportError | None = None
    for line in lines:
        if line.startswith('{"error":'):
            error = ExportFailed.of(Failure.model_validate(json.loads(line)["error"]))
        else:
            progress(line.rstrip("\n"))
    return error


def _print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _read_published(job: JobView) -> Published:
    """Return what a job published; raise the ExportError of a tower, or job, that failed."""
    failed = (
        [(job.failure, "")]
        if job.failure
        else [(each.failure, f"{each.label} tower: ") for each in job.towers]
    )
    for failure, where in failed:
        if failure is not None:
            raise ExportFailed.of(failure, where)
    if job.manifest_uri is None:
        raise ExportFailed(f"job {job.id} ended {job.state}, without an artifact")
    return Published(
        uri=job.manifest_uri.rpartition("/")[0],
        job_id=job.id,
        packages={
            each.label if len(job.targets) > 1 else str(each.name): each.package_uri
            for each in job.towers
            if each.package_uri
        },
    )
