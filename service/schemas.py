"""Bodies of the API's requests and answers."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field, StrictBool

from exporter.config.features.tables import Lookup, lookups
from exporter.config.schema import TowerConfig
from exporter.dims.entries import dim_entries, tensor_entries
from exporter.dims.halves import plan_handover
from exporter.dtypes import Kernel, Precision, TableDtype
from exporter.manifest import DimEntry, TensorEntry
from exporter.options.index_spec import IndexSpec
from exporter.options.release_gate import ReleaseGate
from exporter.options.tables import Tables
from exporter.outcome import Failure
from exporter.spec import (
    Device,
    ExportSpec,
    Frozen,
    IdWeights,
    Mode,
    Pass,
    Target,
    Targets,
    TorchRelease,
    TowerName,
)
from exporter.towers.plan import PlannedTower
from jobs.control.releases import ModelPage
from jobs.diagnostics.logs import LogPart
from jobs.fleet.roster import WorkerNotice, find_unserved
from jobs.ids import JobId
from jobs.model import Job, JobState, ReleaseVerdict, TowerProgress
from jobs.request import PostedBody, Priority
from jobs.spec import JobSpec
from jobs.stores.job_store import JobPage
from telemetry.tracing import trace_id


class SpecView(Frozen):
    """The spec of a job as callers see it: the pipeline config by its source and digest only."""

    config_uri: str | None
    config_sha256: str
    family: str | None
    checkpoint_uri: str
    item_input_uri: str | None
    sample_input_uri: str | None
    assets_uri: str | None = None
    output_uri: str
    towers: tuple[TowerName, ...] | None
    mode: str
    layout: str = "slipway"
    triton_prefix: str | None = None
    device: Device
    target: Targets | None
    torch: TorchRelease | None = None
    id_weights: IdWeights
    allow_inferred_ops: bool = False
    passes: tuple[Pass, ...]
    tables: Tables = Tables()
    precision: Precision | None = None
    tf32: bool = False
    kernel: Kernel | None = None
    fp32_tolerance: float | None = None
    ranks: int | None
    nodes: int | None
    max_batch_size: int
    sample_rows: int = 7
    materialise_items: bool = False
    item_id_column: str | None = None
    item_index: IndexSpec | None = None
    release_gate: ReleaseGate | None = None
    strict_bounds: bool = False

    @classmethod
    def of(cls, spec: JobSpec, config_uri: str | None) -> "SpecView":
        fields = spec.model_dump(exclude={"config_bytes"})
        return cls.model_validate({**fields, "config_uri": config_uri})


class JobView(Frozen):
    """A job as callers see it."""

    id: JobId
    state: JobState
    towers: tuple[TowerProgress, ...]
    failure: Failure | None = Field(description="Why the job failed, or why its last attempt broke off.")
    manifest_uri: str | None = Field(
        description="URI of the manifest; with several targets, of the first that was published."
    )
    manifest_uris: Mapping[Target, str] = Field(
        description="URIs of the manifests by target, for a job with several targets."
    )
    blessed: bool | None = Field(
        default=None,
        description="Whether what was published may be promoted without `force`; null: no release gate "
        "judges it, or not yet.",
    )
    verdicts: tuple[ReleaseVerdict, ...] = Field(
        default=(), description="Verdicts of the release gate, one for each target that was published."
    )
    targets: tuple[Target, ...] = Field(description="Targets to export for, one after the other.")
    unserved: tuple[Target, ...] = Field(
        default=(),
        description="Targets that the job waits for and no worker alive serves, with the torch it names.",
    )
    cancel_requested: bool
    attempt: int = Field(description="Number of attempts that were started.")
    priority: Priority
    model: str | None
    family: str | None = Field(
        default=None,
        description="Kind of model: TorchEasyRec's name of it, or a custom family's; null: the job was "
        "accepted by a version that did not keep it.",
    )
    labels: Mapping[str, str]
    callback_url: str | None
    owner: str = Field(description="Name of the key that the job was posted with.")
    retry_of: JobId | None = Field(description="The job whose failed towers this one exports again.")
    worker: str | None = Field(description="The worker that runs the job now.")
    trace_id: str | None = Field(
        description="Id of the trace that spans the job's request and stages, if there is one."
    )
    spec: SpecView
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = Field(description="Start of the latest attempt.")
    not_before: datetime | None = Field(
        description="Earliest start of the next attempt, for a queued job whose last attempt broke off."
    )
    finished_at: datetime | None
    revision: int = Field(description="A number that grows with every change; the ETag begins with it.")

    @classmethod
    def of(cls, job: Job, alive: Iterable[WorkerNotice] | None = None) -> "JobView":
        """Return the view of a job; `unserved` lists the targets that none of the `alive` workers serves."""
        waits_on = job.pending_routes if job.state is JobState.QUEUED else ()
        return cls(
            id=job.id,
            state=job.state,
            towers=job.towers,
            failure=job.failure,
            manifest_uri=job.manifest_uri,
            manifest_uris=job.manifest_uris,
            blessed=job.blessed,
            verdicts=job.verdicts,
            targets=job.spec.targets,
            unserved=() if alive is None else find_unserved(waits_on, alive),
            cancel_requested=job.cancel_requested,
            attempt=job.attempt,
            priority=job.priority,
            model=job.model,
            family=job.family,
            labels=job.labels,
            callback_url=job.callback_url,
            owner=job.owner,
            retry_of=job.retry_of,
            worker=job.lease.worker if job.lease and job.state is JobState.RUNNING else None,
            trace_id=trace_id(job.traceparent),
            spec=SpecView.of(job.spec, job.config_uri),
            created_at=job.created_at,
            updated_at=job.updated_at,
            started_at=job.started_at,
            not_before=job.not_before,
            finished_at=job.finished_at,
            revision=job.revision,
        )


class JobList(Frozen):
    """A page of jobs, newest first."""

    jobs: tuple[JobView, ...]
    next_cursor: str | None = Field(description="Give it as `cursor` for the page after this one.")

    @classmethod
    def of(cls, page: JobPage, alive: tuple[WorkerNotice, ...]) -> "JobList":
        return cls(jobs=tuple(JobView.of(job, alive) for job in page.jobs), next_cursor=page.next)


class JobLog(Frozen):
    """The latest lines that a job's ranks wrote, by tower and stage."""

    job_id: JobId
    parts: tuple[LogPart, ...]


class ModelList(Frozen):
    """A page of the models that have a release, by name."""

    models: tuple[str, ...]
    next_cursor: str | None = Field(description="Give it as `cursor` for the page after this one.")

    @classmethod
    def of(cls, page: ModelPage) -> "ModelList":
        return cls(models=page.names, next_cursor=page.next)


class Promotion(PostedBody):
    """The release to promote."""

    job_id: str | None = Field(
        pattern="^[0-9a-z]{26}$", description="The job that published the release; null: the latest release."
    )
    force: StrictBool = Field(
        default=False,
        description="Promote it even if the release gate objects; the figures go to the audit log.",
    )


class TablePlan(Frozen):
    """An embedding table that a tower reads: the dtypes of its rows, and its size in bytes."""

    name: str
    rows: int = Field(
        description="0 where the checkpoint says how many: a vocabulary or tokenizer decided in training."
    )
    width: int
    features: tuple[str, ...] = Field(description="Features that look rows up in the table.")
    trained: TableDtype = Field(description="Dtype of its rows in the checkpoint.")
    dtype: TableDtype = Field(description="Dtype that its rows will be stored in.")
    fp32_bytes: int
    bytes: int

    @classmethod
    def of(cls, found: Sequence[Lookup], tables: Tables) -> "TablePlan":
        """Plan one table from all its lookups."""
        table = found[0].table
        dtype = tables.dtype_of(table.name, table.dtype)
        return cls(
            name=table.name,
            rows=table.rows,
            width=table.dim,
            features=tuple(dict.fromkeys(lookup.feature.name for lookup in found)),
            trained=table.dtype,
            dtype=dtype,
            fp32_bytes=table.rows * TableDtype.FP32.row_bytes(table.dim),
            bytes=table.rows * dtype.row_bytes(table.dim),
        )


class TowerPlan(Frozen):
    """One tower's inputs: which sizes vary, within which bounds, and which vary together."""

    name: TowerName
    view: Literal["training", "scalar", "declared"]
    inputs: tuple[TensorEntry, ...] = Field(
        description="Inputs in call order; an axis is a size or the name of a dim."
    )
    dims: tuple[DimEntry, ...]
    group_tensors: tuple[TensorEntry, ...] = Field(
        default=(), description="Only in mode two_stage: the tensors from the sparse to the dense package."
    )
    group_dims: tuple[DimEntry, ...] = ()
    tables: tuple[TablePlan, ...] = ()
    kernel: Kernel = Field(default=Kernel.PYTORCH, description="Implementation of the HSTU layers on CUDA.")

    @classmethod
    def of(cls, planned: PlannedTower, spec: ExportSpec) -> "TowerPlan":
        groups = None
        if spec.mode is Mode.TWO_STAGE:
            groups = plan_handover(planned.config, spec.layout, max_batch_size=spec.max_batch_size)
        return cls(
            name=planned.config.name,
            view=planned.config.view,
            inputs=tensor_entries(planned.plan),
            dims=dim_entries(planned.plan),
            group_tensors=tensor_entries(groups) if groups else (),
            group_dims=dim_entries(groups) if groups else (),
            tables=_tables(planned.config),
            kernel=planned.config.options.kernel,
        )


def _tables(tower: TowerConfig) -> tuple[TablePlan, ...]:
    """Plan the tables that a tower reads, in the order of their first lookups."""
    features = {feature.name: feature for feature in tower.pipeline.features}
    by_path: dict[tuple[str, ...], list[Lookup]] = {}
    for lookup in lookups(tower.pipeline.embedded_groups, features):
        by_path.setdefault(lookup.path, []).append(lookup)
    return tuple(TablePlan.of(found, tower.options.tables) for found in by_path.values())


class PlanView(Frozen):
    """The plan of an export: its towers, with the dims that the manifest will hold."""

    family: str
    mode: Mode
    precision: Precision = Field(default=Precision.FP32, description="Precision in which towers compute.")
    max_batch_size: int
    strict_bounds: bool = Field(
        default=False, description="Whether packages will refuse more than the export tries."
    )
    towers: tuple[TowerPlan, ...]


class FieldProblem(Frozen):
    """One mistake in one field of a request."""

    where: str
    detail: str


class Problem(Frozen):
    """An error as application/problem+json (RFC 9457)."""

    type: str = Field(description="urn:slipway:problem:<code>")
    title: str
    status: int
    detail: str = Field(description="What happened, in a sentence.")
    code: str = Field(description="Stable code of the error, for programs.")
    hint: str = Field(default="", description="What to do about the error.")
    where: str = Field(default="", description="The field; in a pipeline config file:line:column.")
    errors: tuple[FieldProblem, ...] = Field(
        default=(),
        description="The first 20 mistakes in the request's fields; a last entry counts the others.",
    )


class Health(Frozen):
    """The answer of a process that is alive."""

    status: str = "ok"


class Readiness(Frozen):
    """The answer of a service that can accept jobs; callers with a key also see the workers alive."""

    status: str = "ready"
    workers: int | None = Field(default=None, description="Number of workers alive; null without a key.")
    alive: tuple[WorkerNotice, ...] | None = Field(default=None, description="They; null without a key.")
    by_device: Mapping[Device, int] | None = Field(default=None, description="Null without a key.")

    @classmethod
    def of(cls, alive: tuple[WorkerNotice, ...]) -> "Readiness":
        devices = [worker.device for worker in alive]
        counts = {device: devices.count(device) for device in set(devices)}
        return cls(workers=len(alive), alive=alive, by_device=counts)
