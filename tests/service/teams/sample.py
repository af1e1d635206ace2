"""What two teams have at one service; every text of a team holds its name."""

from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI
from starlette.testclient import TestClient

from exporter.reports.comparison import DIFF_NAME
from exporter.spec import Device, TowerName
from exporter.stages import Stage
from exporter.storage.uris import NO_RULES, UriRules
from jobs.control.releases import Releases
from jobs.diagnostics.logs import LogPart
from jobs.events import EventType
from jobs.fleet.roster import WorkerNotice
from jobs.hooks.subscriptions import Subscription
from jobs.hooks.triggers import Trigger
from jobs.ids import JobId, new_job_id
from jobs.lease.leases import Holding, claim
from jobs.model import Job
from jobs.spec import JobSpec
from service.dependencies import Backend
from service.hooks.backend import HookBackend
from tests.dashboard import diffs
from tests.jobs.factories import (
    MINUTE,
    NOW,
    make_entry,
    make_failure,
    make_job,
    make_manifest,
    make_outcome,
    make_spec,
)
from tests.jobs.hooks.factories import SECRET
from tests.service.hooks.events import rule
from tests.service.requests import CONFIG

USER = TowerName.USER
CONFIG_TEXT = CONFIG.read_text()
TEAMS = ("adsteam", "feedteam")


@dataclass(frozen=True)
class Backends:
    """All stores of a running service."""

    stores: Backend
    hooks: HookBackend


@dataclass(frozen=True, kw_only=True)
class Planted:
    """One team's jobs, by state, and the hooks that lie in its places."""

    queued: Job
    running: Job
    failed: Job
    done: Job
    model: str
    trigger: str
    delivery: str
    subscription: str

    @property
    def jobs(self) -> tuple[Job, ...]:
        return self.queued, self.running, self.failed, self.done

    def shows_in(self, text: str) -> bool:
        return any(word in text for word in (self.trigger, *(job.id for job in self.jobs), self.delivery))


def backend_of(client: TestClient) -> Backends:
    app = client.app
    assert isinstance(app, FastAPI)
    return Backends(app.state.backend, app.state.hooks)


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer the-secret-of-{name}"}


def job_of(team: str, root: str, **changes: object) -> Job:
    """A job that reads from `<root>/<team>/in` and writes to `<root>/<team>/out`."""
    spec = make_spec(
        config=CONFIG_TEXT,
        checkpoint_uri=f"{root}/{team}/in/ckpt",
        item_input_uri=f"{root}/{team}/in/items.parquet",
        sample_input_uri=f"{root}/{team}/in/a.parquet,{root}/{team}/in/b.parquet",
        output_uri=f"{root}/{team}/out",
    )
    given = {
        "spec": JobSpec.of(spec),
        "config_uri": f"{root}/{team}/in/pipeline.config",
        "owner": team,
        **changes,
    }
    return make_job(job_id=new_job_id()).model_copy(update=given)


def plant(backend: Backends, root: Path, team: str, subscription: str) -> Planted:
    """Store jobs, logs, bundles, an artifact, a release and hooks of a team."""
    stores, hooks = backend.stores, backend.hooks
    failed = _fail(stores, job_of(team, str(root), callback_url=f"http://127.0.0.1:9/{team}"))
    done = job_of(team, str(root), model=f"{team}-model", labels={"team": team})
    running, queued = job_of(team, str(root)), job_of(team, str(root))
    for job in (done, queued):
        stores.jobs.store.add(job, CONFIG_TEXT)
    publish(stores, done.id)
    _start(stores, running)
    stores.logs.append(failed.id, [LogPart(tower=USER, stage=Stage.TRACE, lines=(f"log of {team}",))])
    stores.bundles.put(failed.id, USER, b"bundle")
    stores.bundles.put(failed.id, None, b"bundle")
    Releases(stores.jobs.store, stores.pointers).promote(f"{team}-model", None)
    uris = UriRules(inputs=(f"{root}/{team}/in",), outputs=(f"{root}/{team}/out",))
    put_trigger(backend, team, rule(output_uri=f"{root}/{team}/out"), uris)
    return Planted(
        queued=queued,
        running=running,
        failed=failed,
        done=done,
        model=f"{team}-model",
        trigger=team,
        delivery=_deliver(hooks, failed.id),
        subscription=subscription,
    )


def put_trigger(backend: Backends, name: str, body: dict[str, object], uris: UriRules = NO_RULES) -> None:
    """Store a trigger as a key with these rules puts it."""
    fields = {**body, "name": name, "uris": uris, "created_at": NOW, "updated_at": NOW}
    backend.hooks.triggers.put(name, Trigger.model_validate(fields))


def subscribe(backend: Backends) -> str:
    """Store a subscription, which receives the events of all jobs."""
    made = Subscription(
        id=new_job_id(),
        url="https://feedteam.example/all",
        events=frozenset(EventType),
        secret=SECRET,
        created_at=NOW,
        updated_at=NOW,
    )
    backend.hooks.subscriptions.put(made.id, made)
    return made.id


def _start(stores: Backend, job: Job) -> Holding:
    stores.jobs.store.add(job, CONFIG_TEXT)
    return _run(stores, job)


def _run(stores: Backend, job: Job) -> Holding:
    """Let a worker on a machine that all teams share run the job."""
    worker = f"shared-{new_job_id()}"
    holding = claim(stores.jobs.store, job.id, worker=worker, length=MINUTE)
    assert holding is not None
    notice = WorkerNotice(
        id=worker,
        host="shared-host",
        pid=1,
        device=Device.CPU,
        versions={"slipway": "1"},
        started_at=NOW,
        jobs=(job.id,),
    )
    stores.roster.announce(notice, MINUTE)
    return holding


def finish(stores: Backend, job: Job) -> Job:
    """Let a worker run the job, and say that it is published."""
    return _start(stores, job).finish(make_outcome(root=job.spec.output_uri))


def _fail(stores: Backend, job: Job) -> Job:
    return _start(stores, job).set_back(make_failure())


def publish(stores: Backend, job_id: JobId) -> Job:
    """Let a worker run a job of the store, and publish an artifact."""
    job = stores.jobs.store.get(job_id)
    folder = Path(job.spec.output_uri)
    entries = [make_entry(tower) for tower in TowerName if tower is not TowerName.MODEL]
    for entry in entries:
        package = folder / entry.package.path
        package.parent.mkdir(parents=True)
        package.write_bytes(b"package")
    (folder / "manifest.json").write_text(make_manifest(job.id, *entries).model_dump_json())
    compared = diffs.comparison().model_copy(update={"new": diffs.SIDE.model_copy(update={"job_id": job.id})})
    (folder / DIFF_NAME).write_text(compared.model_dump_json())
    outcome = make_outcome(root=str(folder))
    towers = tuple(
        each.model_copy(update={"package_uri": f"{folder}/{each.entry.package.path}"})
        for each in outcome.towers
        if each.entry
    )
    return _run(stores, job).finish(outcome.model_copy(update={"towers": towers}))


def _deliver(hooks: HookBackend, job: JobId) -> str:
    """Make deliveries of all events so far; return one to the job's own receiver."""
    while (entry := hooks.outbox.next_entry()) is not None:
        hooks.outbox.fan_out(entry, hooks.subscriptions.all())
    page = hooks.outbox.page(limit=100, job=job, state=None, before=None)
    return next(each.id for each in page.deliveries if each.subscription_id is None)
