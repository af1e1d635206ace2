"""A Slipway of real processes, with a proxy before Redis and another before the object store."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import redis
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from exporter.spec import ExportSpec
from jobs.ids import JobId
from jobs.request import ExportRequest
from jobs.stores.redis_store import RedisJobStore, connect
from launcher.ports import free_port
from slipway.client import Client, SlipwayError
from tests.faults.commands import programs_of
from tests.faults.holding import HoldFolder
from tests.faults.observer import Observer, observing
from tests.faults.programs import Program, wait_until
from tests.faults.proxy import Proxy, proxy_to
from tests.faults.receiver import Receiver, running_receiver
from tests.faults.s3 import ORDER, Order

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET = "artifacts"
_NO_CHANGES: Mapping[str, str] = {}


@dataclass(kw_only=True)
class FaultStack:
    """The programs, the proxies before two of them, and everything that watches them."""

    folder: Path
    kind: str  # of its attempts
    client_url: str
    client: Client
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
    def port(self) -> int:
        """The port of the API."""
        return int(self.client_url.rpartition(":")[2])

    @property
    def work_dir(self) -> Path:
        return self.folder / "work"

    @property
    def s3_folder(self) -> Path:
        return self.folder / "s3"

    def s3(self) -> "S3Client":
        """A client that no fault affects."""
        return s3_client(self.s3_url)

    def order(self, order: Order | None) -> None:
        """Let the object store fail, or (None) work again."""
        path = self.s3_folder / ORDER
        if order is None:
            path.unlink(missing_ok=True)
            return
        partial = path.with_suffix(".partial")
        partial.write_text(order.model_dump_json())
        partial.rename(path)

    def clock(self, offset_s: int) -> None:
        """Set Redis's clock, by which all leases are judged, this far ahead of the true time."""
        (self.folder / "clock").write_text(f"{offset_s:+d}s\n")

    def submit(self, spec: ExportSpec) -> JobId:
        """Post an export whose end is reported to the receiver; it is watched from its first state on."""
        request = ExportRequest(**dict(spec), callback_url=self.receiver.url, force=True)
        job_id = JobId(self.client.submit(request).id)
        self.observer.watch(job_id)
        return job_id

    def heal(self) -> None:
        """Undo every fault, and start ended programs again."""
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
                return (self.client.ready().workers or 0) >= len(self.workers)
            except SlipwayError:
                return False

        wait_until("the API has workers", ready, 60, self.folder / "logs" / "api.log")


def s3_client(url: str) -> "S3Client":
    """Return a client that tries once and does not wait."""
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
    folder: Path,
    kind: str,
    *,
    workers: int = 2,
    small_disk: bool = False,
    settings: Mapping[str, str] = _NO_CHANGES,
) -> Iterator[FaultStack]:
    """Start everything, with attempts of a kind (see tests.faults.attempts), and end it with the block."""
    for name in ("logs", "redis", "s3", "hold", "work", "tmp"):
        (folder / name).mkdir(parents=True)
    (folder / "clock").write_text("+0s\n")
    ports = {name: free_port() for name in ("redis", "s3", "api")}
    with ExitStack() as exits:
        proxies = {name: exits.enter_context(proxy_to(ports[name])) for name in ("redis", "s3")}
        receiver = exits.enter_context(running_receiver())
        programs = programs_of(
            folder, kind, ports, proxies, workers=workers, small_disk=small_disk, settings=settings
        )
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
            kind=kind,
            client_url=f"http://127.0.0.1:{ports['api']}",
            client=Client(f"http://127.0.0.1:{ports['api']}"),
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
