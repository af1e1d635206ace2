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
from pathlib import Path

from benchmarks.measure.bounds import Bounds
from benchmarks.measure.service_process import Answer, ServiceProcess, running_service
from launcher.redis_server import running_redis
from processes.interrupts import interrupt_on_end_signals

BOUND_BYTES = 16_384
BOUND_S = 5.0
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


def post(api: ServiceProcess, body: bytes) -> tuple[Answer, float]:
    """Return the answer to a request, and the seconds of the slowest health check meanwhile."""
    ended, checks = threading.Event(), [0.0]

    def watch() -> None:
        while not ended.wait(0.05):
            checks.append(api.ask("/healthz").seconds)

    watcher = threading.Thread(target=watch)
    watcher.start()
    answer = api.ask("/exports", method="POST", body=body)
    ended.set()
    watcher.join()
    return answer, max(checks)


def main() -> int:
    """Attack the API, print the figures, and return 1 if a bound was missed."""
    argparse.ArgumentParser(prog="python -m benchmarks.attacks.errors", description=__doc__).parse_args()
    interrupt_on_end_signals()
    bounds = Bounds()
    with (
        tempfile.TemporaryDirectory(prefix="slipway-attack-") as name,
        running_redis(Path(name) / "redis") as redis,
        running_service(Path(name), redis.url, environment={"SLIPWAY_FILE_ROOTS": name}) as api,
    ):
        spec = {"config": "", "checkpoint_uri": f"{name}/model", "output_uri": f"{name}/out"}
        for what, content in BODIES.items():
            answer, health = post(api, json.dumps({**spec, **content}).encode())
            if answer.status != http.client.UNPROCESSABLE_ENTITY:
                raise SystemExit(f"{what}: answered {answer.status} instead of 422: {answer.content[:300]!r}")
            bounds.check(f"{what}: bytes of the answer", len(answer.content), BOUND_BYTES)
            bounds.check(f"{what}: s, with /healthz at most {health:.2f} s", answer.seconds, BOUND_S)
    return bounds.exit_status


if __name__ == "__main__":
    sys.exit(main())
