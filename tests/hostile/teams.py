"""Calls of a key that is bound to its team's places, for jobs that lie elsewhere."""

import json
from pathlib import Path

from starlette.testclient import TestClient

from exporter.storage.uris import UriRules
from jobs.control.control import JobControl
from jobs.errors import JobNotFound
from jobs.fleet.roster import MemoryRoster
from jobs.model import Job
from jobs.queue import MemoryQueue
from jobs.spec import JobSpec
from jobs.stores.memory_store import MemoryJobStore
from jobs.stores.visible_jobs import VisibleJobs
from service.app import create_app
from service.dependencies import Backend
from service.planning import plan
from service.settings import ServiceSettings
from tests.hostile.kinds import Attack, hostile
from tests.jobs.factories import CONFIG_TEXT, make_job, make_spec

KEY = "key of a team"
SECRET = "the-secret-of-one-team"
OWN = {"inputs": ("s3://training/own",), "outputs": ("s3://models/own",)}


def make_foreign_job(**changes: object) -> Job:
    """A job within the places of the key, apart from the changes."""
    spec = make_spec(checkpoint_uri="s3://training/own/ckpt", output_uri="s3://models/own/v1")
    config_uri = changes.pop("config_uri", None)
    fields = {"spec": JobSpec.of(spec.model_copy(update=changes)), "config_uri": config_uri}
    return make_job().model_copy(update=fields)


def calling(method: str, path: str) -> Attack:
    def attack(folder: Path) -> object:
        key = {"name": "own", "secret": SECRET, "scopes": ["submit"], "uris": OWN}
        (folder / "keys.json").write_text(json.dumps({"keys": [key]}))
        store = MemoryJobStore()
        job = make_foreign_job(output_uri="s3://models/other/v1")
        store.add(job, CONFIG_TEXT)
        backend = Backend(JobControl(store, MemoryQueue(), plan), MemoryRoster(), store)
        app = create_app(ServiceSettings(api_keys_file=folder / "keys.json"), backend)
        with TestClient(app, headers={"Authorization": f"Bearer {SECRET}"}) as client:
            answer = client.request(method, path.format(job=job.id))
        if answer.status_code == 404 and JobNotFound(job.id).message.split(job.id)[0] in answer.text:
            raise JobNotFound(job.id)
        return answer.text

    return attack


for method, path in (
    ("GET", "/exports/{job}"),
    ("GET", "/exports/{job}/events"),
    ("GET", "/exports/{job}/log"),
    ("GET", "/exports/{job}/bundle"),
    ("GET", "/exports/{job}/manifest"),
    ("GET", "/exports/{job}/towers/user/artifact"),
    ("POST", "/exports/{job}/cancel"),
    ("POST", "/exports/{job}/retry"),
    ("GET", "/jobs/{job}"),
    ("POST", "/jobs/{job}/cancel"),
):
    hostile(f"{method} {path.format(job='<a job of another team>')}", reader=KEY)(calling(method, path))


def looking_at(**changes: object) -> Attack:
    def attack(folder: Path) -> object:
        (folder / "own").mkdir()
        (folder / "own" / "link").symlink_to("/etc")
        rules = UriRules(inputs=OWN["inputs"], outputs=(*OWN["outputs"], str(folder / "own")))
        given = {
            name: value.replace("<folder>", str(folder)) if isinstance(value, str) else value
            for name, value in changes.items()
        }
        job = make_foreign_job(**given)
        store = MemoryJobStore()
        store.add(job, CONFIG_TEXT)
        return VisibleJobs(store, rules).get(job.id)

    return attack


hostile("a job whose config alone lies elsewhere", reader=KEY)(
    looking_at(config_uri="s3://training/other/pipeline.config")
)
hostile("a job one of whose files of rows lies elsewhere", reader=KEY)(
    looking_at(sample_input_uri="s3://training/own/a.parquet,s3://training/other/b.parquet")
)
hostile("a job in a folder whose name begins as the key's", reader=KEY)(
    looking_at(output_uri="s3://models/own-2/v1")
)
hostile("a job whose output climbs out of the key's prefix", reader=KEY)(
    looking_at(output_uri="s3://models/own/%2e%2e/other")
)
hostile("a job whose output leads elsewhere by a link", reader=KEY)(
    looking_at(output_uri="<folder>/own/link/v1")
)
