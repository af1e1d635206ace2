"""Requests with very many mistakes, or with one of megabytes: the size of the API's answer, and its seconds.

Meanwhile `/healthz` is asked for on new connections, as a body with many mistakes is read in the API's only
process.
"""

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from launcher.ports import free_port
from launcher.redis_server import running_redis
from processes.guarded_process import GuardedProcess
from processes.interrupts import interrupt_on_end_signals

HOST = "127.0.0.1"
BOUND_BYTES = 16_384
BOUND_S = 5.0
MOST_S = 120.0  # for one request
_GRACE = timedelta(seconds=5)
BODIES: dict[str, dict[str, object]] = {
    "10,000 unknown fields": {f"f{number}": 1 for number in range(10_000)},
    "400,000 unknown fields": {f"f{number}": 1 for number in range(400_000)},
    "a field's name of 4 MB": {"x" * 4_000_000: 1},
    "100,000 wrong labels": {"labels": {f" {number}": number for number in range(100_000)}},
    "4,000 wrong towers": {"towers": ["x" * 500] * 4000},
    "20,000 incomplete features": {
        "config": "model_config { dssm {} }" + "feature_configs { id_feature {} }" * 20_000,
    },
}


@contextmanager
def running_api(folder: Path) -> Iterator[int]:
    """Run Redis and the API without keys, and give its port."""
    with running_redis(folder / "redis") as server:
        port = free_port()
        command = [sys.executable, "-m", "uvicorn", "--factory", "service.app:create_app"]
        command += ["--host", HOST, "--port", str(port), "--timeout-graceful-shutdown", "1"]
        environment = {"SLIPWAY_REDIS_URL": server.url, "SLIPWAY_FILE_ROOTS": str(folder)}
        api = GuardedProcess.start(command, log=folder / "api.log", grace=_GRACE, environment=environment)
        try:
            deadline = time.monotonic() + MOST_S
            while ask(port, "GET", "/healthz")[0] != http.client.OK:
                if time.monotonic() > deadline or api.exit_status() is not None:
                    raise SystemExit(f"the API did not start; its log ends:\n{api.last_lines(10)}")
                time.sleep(0.1)
            yield port
        finally:
            api.stop()


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, int, float]:
    """Return the status of an answer, 0 for none, its bytes, and the seconds on a connection of its own."""
    begun = time.monotonic()
    connection = http.client.HTTPConnection(HOST, port, timeout=MOST_S)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        answer = connection.getresponse()
        return answer.status, len(answer.read()), time.monotonic() - begun
    except OSError:
        return 0, 0, time.monotonic() - begun
    finally:
        connection.close()


def main() -> int:
    argparse.ArgumentParser(prog="python -m benchmarks.attacks.errors", description=__doc__).parse_args()
    interrupt_on_end_signals()
    missed = False
    with tempfile.TemporaryDirectory(prefix="slipway-attack-") as folder, running_api(Path(folder)) as port:
        for name, content in BODIES.items():
            spec = {"config": "", "checkpoint_uri": f"{folder}/model", "output_uri": f"{folder}/out"}
            body, ended, health = json.dumps({**spec, **content}).encode(), threading.Event(), [0.0]

            def watch(ended: threading.Event, health: list[float]) -> None:
                while not ended.wait(0.05):
                    health.append(ask(port, "GET", "/healthz")[2])

            watcher = threading.Thread(target=watch, args=(ended, health))
            watcher.start()
            status, size, seconds = ask(port, "POST", "/exports", body)
            ended.set()
            watcher.join()
            missed |= status != http.client.UNPROCESSABLE_ENTITY or size > BOUND_BYTES or seconds > BOUND_S
            figures = f"{size:,} bytes (bound {BOUND_BYTES:,}), {seconds:.1f} s (bound {BOUND_S:.0f} s)"
            sys.stdout.write(f"{name}, answered {status}: {figures}, /healthz at most {max(health):.2f} s\n")
            sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
