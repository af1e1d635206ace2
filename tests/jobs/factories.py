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
from exporter.options.release_gate import ReleaseGate
from exporter.outcome import ExportOutcome, Failure, TowerOutcome
from exporter.reports.release_report import Finding, ReleaseReport, Verdict
from exporter.spec import Device, ExportSpec, Mode, TowerName
from exporter.stages import Stage, StageEvent
from jobs.ids import JobId, new_job_id
from jobs.model import Job, JobState, Lease, TowerProgress
from jobs.progress import finish
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


def make_report(*findings: Finding, failure: str = "") -> ReleaseReport:
    """The report on a release; one without findings that failed is blessed."""
    failed = failure or any(finding.verdict is Verdict.FAILED for finding in findings)
    return ReleaseReport(
        job_id="1",
        baseline="0",
        blessed=not failed,
        findings=findings,
        failure=failure,
        rows=900,
        seconds=1.0,
    )


WORSE = Finding(
    measure="auc", subject="ctr", value=0.61, baseline=0.7, allowed=0.69, rows=900, verdict=Verdict.FAILED
)
AS_GOOD = Finding(measure="ne", subject="ctr", value=0.8, baseline=0.81, rows=900, verdict=Verdict.PASSED)


GATED = JobSpec.of(make_spec(release_gate=ReleaseGate()))


def make_gated_job(report: ReleaseReport | None = None, *, outcome: ExportOutcome | None = None) -> Job:
    """A job with a release gate that has just ended with this report on its release."""
    job = make_job().begin_attempt(Lease(worker="w1", until=NOW + MINUTE), "cpu", NOW)
    job = job.model_copy(update={"spec": GATED, "model": "ranker"})
    outcome = outcome or make_outcome()
    judged = outcome.model_copy(update={"release": report, "release_sha256": report and "ab" * 32})
    return finish(job, judged, NOW)


def make_failure(*, retryable: bool = False) -> Failure:
    return Failure(
        code="trace_failed", message="a size was specialised", hint="report it", retryable=retryable
    )
