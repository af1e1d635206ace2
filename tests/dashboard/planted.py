"""Jobs in every state and releases of two models, in the stores of a service that runs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from exporter.spec import Device, TowerName
from exporter.stages import Stage
from jobs.control.releases import Releases
from jobs.diagnostics.logs import LogPart
from jobs.fleet.roster import WorkerNotice
from jobs.model import Job, JobState
from service.dependencies import Backend
from tests.dashboard import sample
from tests.dashboard.releases import MODEL, add_release, auc


def plant_releases(backend: Backend, folder: Path) -> Job:
    """Store releases with figures of which some have been promoted; return the job of the newest."""
    store = backend.jobs.store
    made = [
        add_release(
            store,
            backend.pointers,
            folder,
            minutes=2000 - 300 * at,
            scale=1 + at / 10,
            report=auc(0.74 - at / 100),
        )
        for at in range(6)
    ]
    releases = Releases(store, backend.pointers)
    for at, name in ((0, "ann"), (2, "bob"), (3, "nightly")):
        releases.promote(MODEL, made[at].id, by=name)
    add_release(store, backend.pointers, folder, model="retrieval", labels={"team": "feed", "region": "eu"})
    return made[-1]


def plant_jobs(backend: Backend) -> dict[str, Job]:
    """Store a job of every other kind, and announce a worker."""
    user = sample.at_work(TowerName.USER, Stage.COMPILE, 0.62, "38 of 61 files compiled")
    item = sample.at_work(TowerName.ITEM, Stage.VERIFY, 0.3, "batch_32: package against eager")
    made = {
        "failed": sample.failed("a size was specialised to 37, and the plan lets it vary from 0 to 9216"),
        "partial": sample.partial(),
        "running": sample.job(JobState.RUNNING, user, item, minutes=1.2),
        "queued": sample.job(JobState.QUEUED, checkpoint="dssm_v2/model.ckpt-99000", minutes=0.4),
    }
    jobs = {
        name: job.model_copy(update={"family": "dssm", "model": "retrieval"}) for name, job in made.items()
    }
    for job in jobs.values():
        backend.jobs.store.add(job, sample.CONFIG_TEXT)
    notice = WorkerNotice(
        id="gpu-3-4711",
        host="gpu-3",
        pid=4711,
        device=Device.CUDA,
        versions={"torch": "2.13.0", "torchrec": "1.8.0"},
        started_at=datetime.now(UTC),
        jobs=(jobs["running"].id,),
    )
    backend.roster.announce(notice, timedelta(minutes=30))
    lines = LogPart(tower=TowerName.USER, stage=Stage.TRACE, lines=("tracing user",))
    backend.logs.append(jobs["running"].id, [lines])
    return jobs
