"""A key of one team that asks for another team's jobs, and lists its own few among a thousand.

A key without prefixes posts the jobs of both teams. Then the bound key makes every call that takes a job's id
for jobs of the other team, and follows its own list to the end. At last four callers with that key list at
once for some seconds.
"""

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
CONFIG = Path(__file__).parents[2] / "tests" / "fixtures" / "torcheasyrec" / "hstu_match" / "pipeline.config"
TOTAL, OWN = 1000, 3
CALLERS, SECONDS = 4, 5.0
BOUND_LIST_S, BOUND_HEALTH_S = 1.0, 0.2
MOST_S = 60.0
SECRETS = {"own": "the-secret-of-a-bound-key", "everyone": "the-secret-of-a-free-key"}
CALLS = [
    *(
        ("GET", f"/exports/{{}}{part}")
        for part in ("", "/log", "/bundle", "/manifest", "/towers/user/artifact")
    ),
    *(("GET", f"/jobs/{{}}{part}") for part in ("", "/plan", "/report", "/log")),
    *(("POST", f"/{pages}/{{}}/{what}") for pages in ("exports", "jobs") for what in ("cancel", "retry")),
    ("GET", "/exports/{}/events"),  # of a job that the calls above have cancelled, if they could: it ends
]
_GRACE = timedelta(seconds=5)


@contextmanager
def running_api(folder: Path, redis_url: str) -> Iterator[int]:
    """Run the API with both keys, and give its port."""
    uris = {"inputs": [f"{folder}/own/in"], "outputs": [f"{folder}/own/out"]}
    keys: list[dict[str, object]] = [
        {"name": "own", "secret": SECRETS["own"], "scopes": ["submit"], "uris": uris},
        {"name": "everyone", "secret": SECRETS["everyone"], "scopes": ["submit"]},
    ]
    (folder / "keys.json").write_text(json.dumps({"keys": keys}))
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "service.app:create_app"]
    command += ["--host", HOST, "--port", str(port), "--timeout-graceful-shutdown", "1"]
    environment = {
        "SLIPWAY_REDIS_URL": redis_url,
        "SLIPWAY_API_KEYS_FILE": str(folder / "keys.json"),
        "SLIPWAY_FILE_ROOTS": str(folder),
    }
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


def ask(port: int, method: str, path: str, key: str = "", body: object = None) -> tuple[int, bytes]:
    """Return the status and the body of an answer; 0 for none."""
    connection = http.client.HTTPConnection(HOST, port, timeout=MOST_S)
    headers = {"Content-Type": "application/json"}
    if key:
        headers["Authorization"] = f"Bearer {SECRETS[key]}"
    try:
        connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


def post_jobs(port: int, folder: Path) -> tuple[set[str], list[str]]:
    """Post all jobs, the own ones spread evenly; return the ids of the own and of the other team's."""
    posted: dict[str, list[str]] = {"own": [], "other": []}
    for number in range(TOTAL):
        team = "own" if number % (TOTAL // OWN) == 1 else "other"
        place = folder / team
        request = {
            "config": CONFIG.read_text(),
            "checkpoint_uri": f"{place}/in/ckpt-{number}",
            "item_input_uri": f"{place}/in/items.parquet",
            "sample_input_uri": f"{place}/in/rows.parquet",
            "output_uri": f"{place}/out",
        }
        status, answer = ask(port, "POST", "/exports", "everyone", request)
        if status != http.client.ACCEPTED:
            raise SystemExit(f"a job was refused: {answer[:500]!r}")
        posted[team].append(json.loads(answer)["id"])
    return set(posted["own"]), posted["other"]


def count_answers(port: int, job: str) -> int:
    """Return how many calls for a job are answered other than for one that does not exist."""
    statuses = [ask(port, method, path.format(job), "own")[0] for method, path in CALLS]
    return sum(status != http.client.NOT_FOUND for status in statuses)


def list_all(port: int) -> list[str]:
    """Return the ids of all jobs that the bound key is shown."""
    found: list[str] = []
    cursor = ""
    while True:
        page = json.loads(ask(port, "GET", f"/exports?limit=100{cursor}", "own")[1])
        found += [job["id"] for job in page["jobs"]]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


def slowest_while_listing(port: int) -> tuple[float, float]:
    """Return the seconds of the slowest list and health check while callers list at once."""
    until = time.monotonic() + SECONDS
    lists: list[float] = []

    def list_again_and_again() -> None:
        while time.monotonic() < until:
            begun = time.monotonic()
            ask(port, "GET", "/exports", "own")
            lists.append(time.monotonic() - begun)

    threads = [threading.Thread(target=list_again_and_again, daemon=True) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    checks = []
    while time.monotonic() < until:
        begun = time.monotonic()
        ask(port, "GET", "/healthz")
        checks.append(time.monotonic() - begun)
        time.sleep(0.05)
    for thread in threads:
        thread.join(MOST_S)
    return max(lists), max(checks)


def main() -> int:
    """Attack the API, print the figures, and return 1 if a bound was missed."""
    interrupt_on_end_signals()
    with tempfile.TemporaryDirectory(prefix="slipway-attack-") as name, running_redis(Path(name)) as redis:
        folder = Path(name)
        with running_api(folder, redis.url) as port:
            own, others = post_jobs(port, folder)
            answered = count_answers(port, others[0])
            listed = list_all(port)
            slowest, health = slowest_while_listing(port)
    if not own <= set(listed):
        raise SystemExit("the key does not see all of its own jobs")
    figures = (
        (f"calls for another team's job that are answered, of {len(CALLS)}", answered, 0.0),
        ("other teams' jobs in the list", len(set(listed) - own), 0.0),
        (f"slowest list of {len(own)} jobs among {TOTAL}, {CALLERS} callers, s", slowest, BOUND_LIST_S),
        ("slowest /healthz meanwhile, s", health, BOUND_HEALTH_S),
    )
    for what, measured, bound in figures:
        sys.stdout.write(f"{what}: {measured:.3g} (bound {bound:g})\n")
    return int(any(measured > bound for _, measured, bound in figures))


if __name__ == "__main__":
    sys.exit(main())
