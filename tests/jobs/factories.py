"""Jobs, events and outcomes with readable defaults."""

from datetime import UTC, datetime, timedelta

from exporter.manifest import (
    CaseKind,
    CaseReport,
    FileRef,
    Manifest,
    TowerEntry,
    VerificationReport,
    Versions,
)
from exporter.outcome import ExportOutcome, Failure, TowerOutcome
from exporter.spec import Device, ExportSpec, Mode, TowerName
from exporter.stages import Stage, StageEvent
from jobs.ids import JobId, new_job_id
from jobs.model import Job, JobState, Lease, TowerProgress
from jobs.spec import JobSpec

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
CONFIG_TEXT = "features {}"


def make_spec(**changes: object) -> ExportSpec:
    spec = ExportSpec(config=CONFIG_TEXT, checkpoint_uri="/ckpt", output_uri="/out")
    return spec.model_copy(update=changes)


def make_job(state: JobState = JobState.QUEUED, *, job_id: JobId | None = None, attempt: int = 0) -> Job:
    lease = Lease(worker="w1", until=NOW + MINUTE) if state is JobState.RUNNING else None
    return Job(
        id=job_id or new_job_id(),
        spec=JobSpec.of(make_spec()),
        state=state,
        towers=(TowerProgress(name=TowerName.USER), TowerProgress(name=TowerName.ITEM)),
        attempt=attempt,
        lease=lease,
        created_at=NOW,
        updated_at=NOW,
    )


def make_event(tower: str = "user", stage: Stage = Stage.TRACE, **changes: object) -> StageEvent:
    return StageEvent(tower=tower, stage=stage, kind="started", at=1.0).model_copy(update=changes)


def make_entry(tower: TowerName = TowerName.USER) -> TowerEntry:
    case = CaseReport(name="batch 2", kind=CaseKind.AGREES, sizes={"batch": 2}, passed=True)
    return TowerEntry(
        name=tower,
        view="training",
        package=FileRef(path=f"{tower}/aoti/aoti_model.pt2", size=1234, sha256="ab" * 32),
        files=(),
        inputs=(),
        outputs=(),
        dims=(),
        verified=VerificationReport(tolerance=1e-5, largest_difference=2e-7, cases=(case,)),
        stage_seconds={},
    )


def make_manifest(job_id: str, *towers: TowerEntry) -> Manifest:
    return Manifest(
        job_id=job_id,
        created_at="2026-01-02T03:04:05+00:00",
        family="hstu_match",
        mode=Mode.UNIFIED,
        device=Device.CPU,
        architecture="x86_64 avx512",
        max_batch_size=512,
        versions=Versions(
            slipway="0.1.0", python="3", torch="2", torchrec="1", fbgemm="1", triton="3", cuda=None
        ),
        op_libraries=("fbgemm_gpu",),
        sources=(),
        towers=towers,
    )


def make_outcome(*, failed: dict[TowerName, Failure] | None = None, root: str = "/out") -> ExportOutcome:
    """An outcome of both towers, published below `root` except for those in `failed`."""
    failures = failed or {}
    towers = tuple(
        TowerOutcome(tower=name, failure=failures[name])
        if name in failures
        else TowerOutcome(tower=name, entry=make_entry(name), package_uri=f"{root}/{name}")
        for name in (TowerName.USER, TowerName.ITEM)
    )
    published = len(failures) < len(towers)
    return ExportOutcome(towers=towers, manifest_uri=f"{root}/manifest.json" if published else None)


def make_failure(*, retryable: bool = False) -> Failure:
    return Failure(
        code="trace_failed", message="a size was specialised", hint="report it", retryable=retryable
    )
