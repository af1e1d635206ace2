"""Lists and sweeps over 60 jobs whose configs have nearly 4 MB each.

The jobs are posted through the API, each with a config of its own. Then an API that has just started answers
one list, and another four at once. The worker's sweep runs in a process of its own: queued jobs are looked
for in the queue, and ended ones forgotten. The figures are the memory that each takes beyond what it has
before, at its peak.
"""

import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from jobs.control.control import enqueue_lost
from jobs.control.redis_releases import RedisPointers
from jobs.control.retention import forget_old_jobs
from jobs.queue import MemoryQueue
from jobs.stores.redis_store import RedisJobStore, connect
from launcher.ports import free_port
from launcher.redis_server import running_redis
from processes.interrupts import interrupt_on_end_signals
from processes.settings import inherited_environment

HOST = "127.0.0.1"
FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "torcheasyrec"
JOBS, AT_ONCE = 60, 4
CONFIG_BYTES = 3_900_000
BOUND_MB = 20.0
MOST_S = 120.0
_STORED = 2  # arguments of this program, with the URL of the store


@contextmanager
def running_api(url: str, folder: Path) -> Iterator[tuple[int, int]]:
    """Run the API; give its port and the number of its process."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "service.app:create_app"]
    command += ["--host", HOST, "--port", str(port), "--timeout-graceful-shutdown", "1"]
    settings = {"SLIPWAY_REDIS_URL": url, "SLIPWAY_HOST": HOST}
    with (folder / "api.log").open("ab") as log:
        api = subprocess.Popen(command, stdout=log, stderr=log, env=inherited_environment(settings))
    try:
        deadline = time.monotonic() + MOST_S
        while ask(port, "GET", "/healthz")[0] != http.client.OK:
            if time.monotonic() > deadline or api.poll() is not None:
                raise SystemExit(f"the API did not start:\n{(folder / 'api.log').read_text()[-2000:]}")
            time.sleep(0.1)
        ask(port, "GET", "/exports?limit=1")  # the first request loads modules
        yield port, api.pid
    finally:
        api.terminate()
        api.wait(MOST_S)


def ask(port: int, method: str, path: str, body: str = "") -> tuple[int, bytes]:
    """Return the status and the body of an answer; 0 for none."""
    connection = http.client.HTTPConnection(HOST, port, timeout=MOST_S)
    try:
        connection.request(method, path, body or None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


def memory_mb(pid: int | str, kind: str) -> float:
    """Return the memory of a process: VmRSS, now, or VmHWM, the most it had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{kind}:"))


def forget_peak(pid: int | str) -> None:
    """Let VmHWM begin again at VmRSS."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def post_jobs(port: int) -> list[str]:
    """Post all jobs and return their ids."""
    config = (FIXTURES / "hstu_match" / "pipeline.config").read_text()
    ids = []
    for number in range(JOBS):
        padding = f"# {number:03} " + "x" * 100 + "\n"
        text = config + padding * ((CONFIG_BYTES - len(config)) // len(padding))
        request = {
            "config": text,
            "checkpoint_uri": str(FIXTURES / "hstu_match" / "model.ckpt-11"),
            "item_input_uri": str(FIXTURES / "data" / "items.parquet"),
            "sample_input_uri": str(FIXTURES / "data" / "train.parquet"),
            "output_uri": "/out",
            "force": True,
        }
        status, answer = ask(port, "POST", "/exports", json.dumps(request))
        if status != http.client.ACCEPTED:
            raise SystemExit(f"a job was refused: {answer[:500]!r}")
        ids.append(json.loads(answer)["id"])
    return ids


def growth_of_lists(url: str, folder: Path, count: int) -> tuple[float, float]:
    """Return the memory that lists at the same moment take, and the megabytes of one answer."""
    answers: list[bytes] = []
    with running_api(url, folder) as (port, pid):
        before = memory_mb(pid, "VmRSS")
        forget_peak(pid)
        threads = [
            threading.Thread(target=lambda: answers.append(ask(port, "GET", "/exports?limit=100")[1]))
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        grown = memory_mb(pid, "VmHWM") - before
    listed = [len(json.loads(answer)["jobs"]) for answer in answers]
    if listed != [JOBS] * count:
        raise SystemExit(f"a list did not hold all jobs: {listed}")
    return grown, len(answers[0]) / 1e6


def sweep(url: str) -> None:
    """Do in this process what a worker's sweep does, and print the memory that each part takes."""
    client = connect(url)
    store, pointers = RedisJobStore(client), RedisPointers(client)
    parts: tuple[Callable[[], object], ...] = (
        lambda: enqueue_lost(store, MemoryQueue()),
        lambda: forget_old_jobs(store, pointers, timedelta()),
    )
    for part in parts:
        before = memory_mb("self", "VmRSS")
        forget_peak("self")
        part()
        sys.stdout.write(f"{memory_mb('self', 'VmHWM') - before}\n")


def main() -> int:
    """Attack the API and a sweep, print the figures, and return 1 if a bound was missed."""
    if len(sys.argv) == _STORED:
        sweep(sys.argv[1])
        return 0
    interrupt_on_end_signals()
    with (
        tempfile.TemporaryDirectory(prefix="slipway-attack-") as name,
        running_redis(Path(name) / "redis") as server,
    ):
        folder = Path(name)
        with running_api(server.url, folder) as (port, _):
            ids = post_jobs(port)
        one, size = growth_of_lists(server.url, folder, 1)
        several, _ = growth_of_lists(server.url, folder, AT_ONCE)
        with running_api(server.url, folder) as (port, _):
            for job_id in ids[::2]:
                ask(port, "POST", f"/exports/{job_id}/cancel")
        command = [sys.executable, "-m", "benchmarks.attacks.lists", server.url]
        swept = subprocess.run(command, capture_output=True, text=True, check=True, timeout=MOST_S)
    queued, ended = map(float, swept.stdout.split())
    figures = (
        (f"memory of one list of {JOBS} jobs ({size:.2f} MB of answer), MB", one),
        (f"memory of {AT_ONCE} such lists at once, MB", several),
        (f"memory of a sweep over {len(ids) // 2} queued jobs, MB", queued),
        (f"memory of forgetting {len(ids) // 2} ended jobs, MB", ended),
    )
    for what, measured in figures:
        sys.stdout.write(f"{what}: {measured:.1f} (bound {BOUND_MB:g})\n")
    return int(any(measured > BOUND_MB for _, measured in figures))


if __name__ == "__main__":
    sys.exit(main())
