"""Lists and sweeps over 60 jobs whose configs have nearly 4 MB each.

The jobs are posted through the API, each with a config of its own. Then an API that has just started answers
one list, and another four at once. The worker's sweep runs in a process of its own: queued jobs are looked
for in the queue, and ended ones forgotten. The figures are the memory that each takes beyond what it has
before, at its peak.
"""

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from benchmarks.measure.bounds import Bounds
from benchmarks.measure.child_process import forget_peak, read_memory
from benchmarks.measure.process_memory import process_tree
from benchmarks.measure.service_process import ServiceProcess, running_service
from jobs.control.control import enqueue_lost
from jobs.control.redis_releases import RedisPointers
from jobs.control.retention import forget_old_jobs
from jobs.queue import MemoryQueue
from jobs.stores.redis_store import RedisJobStore, connect
from launcher.redis_server import running_redis
from processes.interrupts import interrupt_on_end_signals

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "torcheasyrec"
JOBS, AT_ONCE = 60, 4
CONFIG_BYTES = 3_900_000
BOUND_MB = 20.0
MOST_S = 120.0
_STORED = 2  # arguments of this program, with the URL of the store


def post_jobs(api: ServiceProcess) -> list[str]:
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
        answer = api.ask("/exports", method="POST", body=json.dumps(request).encode())
        if answer.status != http.client.ACCEPTED:
            raise SystemExit(f"a job was refused: {answer.content[:500]!r}")
        ids.append(json.loads(answer.content)["id"])
    return ids


def growth_of_lists(url: str, folder: Path, count: int) -> tuple[float, float]:
    """Return the memory that lists at the same moment take, and the megabytes of one answer."""
    answers: list[bytes] = []
    with running_service(folder, url) as api:
        api.ask("/exports?limit=1")  # the first request loads modules
        pid = max(process_tree(api.process.guard.pid), key=lambda each: read_memory(each, "VmRSS"))
        before = read_memory(pid, "VmRSS")
        forget_peak(pid)
        threads = [
            threading.Thread(target=lambda: answers.append(api.ask("/exports?limit=100").content))
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        grown = (read_memory(pid, "VmHWM") - before) / 1e6
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
        before = read_memory(os.getpid(), "VmRSS")
        forget_peak(os.getpid())
        part()
        sys.stdout.write(f"{(read_memory(os.getpid(), 'VmHWM') - before) / 1e6}\n")


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
        with running_service(folder, server.url) as api:
            ids = post_jobs(api)
        one, size = growth_of_lists(server.url, folder, 1)
        several, _ = growth_of_lists(server.url, folder, AT_ONCE)
        with running_service(folder, server.url) as api:
            for job_id in ids[::2]:
                api.ask(f"/exports/{job_id}/cancel", method="POST")
        command = [sys.executable, "-m", "benchmarks.attacks.lists", server.url]
        swept = subprocess.run(command, capture_output=True, text=True, check=True, timeout=MOST_S)
    queued, ended = map(float, swept.stdout.split())
    bounds = Bounds()
    bounds.check(f"memory of one list of {JOBS} jobs ({size:.2f} MB of answer), MB", one, BOUND_MB)
    bounds.check(f"memory of {AT_ONCE} such lists at once, MB", several, BOUND_MB)
    bounds.check(f"memory of a sweep over {len(ids) // 2} queued jobs, MB", queued, BOUND_MB)
    bounds.check(f"memory of forgetting {len(ids) // 2} ended jobs, MB", ended, BOUND_MB)
    return bounds.exit_status


if __name__ == "__main__":
    sys.exit(main())
