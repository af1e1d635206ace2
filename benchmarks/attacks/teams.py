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
from pathlib import Path

from benchmarks.measure.bounds import Bounds
from benchmarks.measure.service_process import ServiceProcess, running_service
from launcher.redis_server import running_redis
from processes.interrupts import interrupt_on_end_signals

CONFIG = Path(__file__).parents[2] / "tests" / "fixtures" / "torcheasyrec" / "hstu_match" / "pipeline.config"
TOTAL, OWN_JOBS = 1000, 3
CALLERS, SECONDS = 4, 5.0
BOUND_LIST_S, BOUND_HEALTH_S = 1.0, 0.2
MOST_S = 60.0
OWN, EVERYONE = "the-secret-of-a-bound-key", "the-secret-of-a-free-key"
CALLS = [
    *(
        ("GET", f"/exports/{{}}{part}")
        for part in ("", "/log", "/bundle", "/manifest", "/towers/user/artifact")
    ),
    *(("GET", f"/jobs/{{}}{part}") for part in ("", "/plan", "/report", "/log")),
    *(("POST", f"/{pages}/{{}}/{what}") for pages in ("exports", "jobs") for what in ("cancel", "retry")),
    ("GET", "/exports/{}/events"),  # of a job that the calls above have cancelled, if they could: it ends
]


def post_jobs(api: ServiceProcess, folder: Path) -> tuple[set[str], list[str]]:
    """Post all jobs, the own ones spread evenly; return the ids of the own and of the other team's."""
    posted: dict[str, list[str]] = {"own": [], "other": []}
    for number in range(TOTAL):
        team = "own" if number % (TOTAL // OWN_JOBS) == 1 else "other"
        place = folder / team
        request = {
            "config": CONFIG.read_text(),
            "checkpoint_uri": f"{place}/in/ckpt-{number}",
            "item_input_uri": f"{place}/in/items.parquet",
            "sample_input_uri": f"{place}/in/rows.parquet",
            "output_uri": f"{place}/out",
        }
        answer = api.ask("/exports", method="POST", key=EVERYONE, body=json.dumps(request).encode())
        if answer.status != http.client.ACCEPTED:
            raise SystemExit(f"a job was refused: {answer.content[:500]!r}")
        posted[team].append(json.loads(answer.content)["id"])
    return set(posted["own"]), posted["other"]


def count_answers(api: ServiceProcess, job: str) -> int:
    """Return how many calls for a job are answered other than for one that does not exist."""
    statuses = [api.ask(path.format(job), method=method, key=OWN).status for method, path in CALLS]
    return sum(status != http.client.NOT_FOUND for status in statuses)


def list_all(api: ServiceProcess) -> list[str]:
    """Return the ids of all jobs that the bound key is shown."""
    found: list[str] = []
    cursor = ""
    while True:
        page = json.loads(api.ask(f"/exports?limit=100{cursor}", key=OWN).content)
        found += [job["id"] for job in page["jobs"]]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


def slowest_while_listing(api: ServiceProcess) -> tuple[float, float]:
    """Return the seconds of the slowest list and health check while callers list at once."""
    until = time.monotonic() + SECONDS
    lists: list[float] = []

    def list_again_and_again() -> None:
        while time.monotonic() < until:
            lists.append(api.ask("/exports", key=OWN).seconds)

    threads = [threading.Thread(target=list_again_and_again, daemon=True) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    checks = []
    while time.monotonic() < until:
        checks.append(api.ask("/healthz").seconds)
        time.sleep(0.05)
    for thread in threads:
        thread.join(MOST_S)
    return max(lists), max(checks)


def main() -> int:
    """Attack the API, print the figures, and return 1 if a bound was missed."""
    interrupt_on_end_signals()
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="slipway-attack-") as name, running_redis(Path(name)) as redis:
        folder = Path(name)
        uris = {"inputs": [f"{name}/own/in"], "outputs": [f"{name}/own/out"]}
        keys: list[dict[str, object]] = [
            {"name": "own", "secret": OWN, "scopes": ["submit"], "uris": uris},
            {"name": "everyone", "secret": EVERYONE, "scopes": ["submit"]},
        ]
        with running_service(folder, redis.url, keys=keys, environment={"SLIPWAY_FILE_ROOTS": name}) as api:
            own, others = post_jobs(api, folder)
            answered = count_answers(api, others[0])
            listed = list_all(api)
            slowest, health = slowest_while_listing(api)
    if not own <= set(listed):
        raise SystemExit("the key does not see all of its own jobs")
    bounds.check(f"calls for another team's job that are answered, of {len(CALLS)}", answered, 0)
    bounds.check("other teams' jobs in the list", len(set(listed) - own), 0)
    listing = f"slowest list of {len(own)} jobs among {TOTAL}, {CALLERS} callers, s"
    bounds.check(listing, slowest, BOUND_LIST_S)
    bounds.check("slowest /healthz meanwhile, s", health, BOUND_HEALTH_S)
    return bounds.exit_status


if __name__ == "__main__":
    sys.exit(main())
