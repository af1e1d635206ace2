"""Releases of a model with figures that differ: records, manifests on disk, and verdicts of a gate."""

from pathlib import Path

from exporter.manifest import TowerEntry
from exporter.options.release_gate import ReleaseGate
from exporter.reports.release_report import Finding, ReleaseReport, Verdict
from exporter.spec import TowerName
from jobs.control.releases import MemoryPointers, ReleasePointers
from jobs.ids import JobId, first_id_at
from jobs.model import Job, JobState, Lease, TowerProgress
from jobs.stores.job_store import JobRecords
from jobs.verdicts import ReleaseVerdict
from tests.dashboard import sample
from tests.jobs.factories import make_manifest, make_report

MODEL = "ranker"


def auc(value: float) -> ReleaseReport:
    """A report whose release is refused below 0.7."""
    verdict = Verdict.PASSED if value >= 0.7 else Verdict.FAILED
    quality = Finding(measure="auc", subject="ctr", value=value, baseline=0.71, allowed=0.7, verdict=verdict)
    return make_report(
        quality, Finding(measure="ndcg@10", subject="ctr", value=value / 2, verdict=Verdict.PASSED)
    )


def add_release(
    store: JobRecords,
    pointers: ReleasePointers,
    folder: Path,
    *,
    model: str = MODEL,
    minutes: float = 20,
    scale: float = 1.0,
    report: ReleaseReport | None = None,
    labels: dict[str, str] | None = None,
) -> Job:
    """Let a job succeed whose packages are `scale` times as large, and take `scale` times as long."""
    towers = [_scaled(sample.done(name), scale) for name in (TowerName.USER, TowerName.ITEM)]
    made = sample.job(JobState.SUCCEEDED, *towers, minutes=minutes)
    job_id = JobId(
        first_id_at(made.created_at)[:10] + made.id[10:]
    )  # the newest is the one that was made last
    made = made.model_copy(update={"id": job_id})
    artifact = folder / made.id
    artifact.mkdir(parents=True)
    entries = [_timed(sample.entry(name, scale)) for name in (TowerName.USER, TowerName.ITEM)]
    manifest = artifact / "manifest.json"
    manifest.write_text(make_manifest(made.id, *entries).model_dump_json())
    changes = {"output_uri": str(folder), "release_gate": ReleaseGate() if report else None}
    ended = made.model_copy(
        update={
            "model": model,
            "family": "hstu_match",
            "labels": labels or {"team": "ads"},
            "owner": "nightly",
            "spec": made.spec.model_copy(update=changes),
            "verdicts": (ReleaseVerdict.of(report, None, None),) if report else (),
            "manifest_uri": str(manifest),
            "revision": 2,
        }
    )
    begun = {"state": JobState.RUNNING, "finished_at": None, "revision": 1}
    running = ended.model_copy(update={**begun, "lease": Lease(worker="w1", until=made.updated_at)})
    store.add(running, sample.CONFIG_TEXT)
    assert store.replace(running, ended)
    if isinstance(pointers, MemoryPointers):  # the Redis store does so by itself
        pointers.released.setdefault(model, []).append(ended.id)
    return ended


def _scaled(tower: TowerProgress, scale: float) -> TowerProgress:
    assert tower.package_size is not None
    return tower.model_copy(update={"package_size": round(tower.package_size * scale)})


def _timed(entry: TowerEntry) -> TowerEntry:
    """Keep the times of the largest batch only."""
    verified = entry.verified
    return entry.model_copy(
        update={"verified": verified.model_copy(update={"latency": verified.latency[-1:]})}
    )
