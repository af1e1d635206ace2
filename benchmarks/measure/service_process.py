"""The API as a process of its own, and requests to it, each on a new connection."""

import http.client
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from launcher.ports import free_port
from processes.guarded_process import GuardedProcess

HOST = "127.0.0.1"
TIMEOUT_S = 120.0  # for one answer
_GRACE = timedelta(seconds=5)
_START_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer of the API, and the seconds from connecting to its last byte."""

    status: int  # 0: there was no answer
    content: bytes
    seconds: float

    @property
    def is_ok(self) -> bool:
        return self.status == http.client.OK


@dataclass(frozen=True, kw_only=True)
class ServiceProcess:
    """A running API."""

    port: int
    process: GuardedProcess

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        key: str = "",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        source: str = HOST,
    ) -> Answer:
        """Send a request from the address `source`, with `key` as its bearer token unless it is empty.

        A body counts as JSON unless `headers` say otherwise.
        """
        sent = {"Content-Type": "application/json"} if body is not None else {}
        sent |= {"Authorization": f"Bearer {key}"} if key else {}
        begun = time.monotonic()
        connection = http.client.HTTPConnection(
            HOST, self.port, timeout=TIMEOUT_S, source_address=(source, 0)
        )
        try:
            connection.request(method, path, body, sent | dict(headers or {}))
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except OSError:
            status, content = 0, b""
        finally:
            connection.close()
        return Answer(status=status, content=content, seconds=time.monotonic() - begun)


@contextmanager
def running_service(
    folder: Path,
    redis_url: str,
    *,
    keys: Sequence[Mapping[str, object]] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[ServiceProcess]:
    """Run the API with these API keys and variables, and end it with the block.

    Its log and its keys lie in `folder`. Without keys it answers everybody.

    Raises:
        SystemExit: it does not answer within a minute.
    """
    settings = {"SLIPWAY_REDIS_URL": redis_url, "SLIPWAY_HOST": HOST, **(environment or {})}
    if keys:
        settings["SLIPWAY_API_KEYS_FILE"] = str(folder / "keys.json")
        (folder / "keys.json").write_text(json.dumps({"keys": keys}))
    port = free_port()
    command = [sys.executable, "-m", "service", "--host", HOST, "--port", str(port), "--grace", "1"]
    process = GuardedProcess.start(command, log=folder / "api.log", grace=_GRACE, environment=settings)
    service = ServiceProcess(port=port, process=process)
    try:
        deadline = time.monotonic() + _START_S
        while not service.ask("/healthz").is_ok:
            if time.monotonic() > deadline or process.exit_status() is not None:
                raise SystemExit(f"the API did not start; its log ends:\n{process.last_lines(10)}")
            time.sleep(0.05)
        yield service
    finally:
        process.stop()
