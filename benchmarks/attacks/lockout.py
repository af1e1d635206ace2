"""Wrong keys by the dozen behind a proxy: whom they lock out, and whether headers help to guess on.

The API trusts one proxy, 127.0.0.2, as the chart tells it with an ingress; `--no-proxy` leaves that out.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measure.bounds import Bounds
from benchmarks.measure.service_process import ServiceProcess, running_service
from launcher.redis_server import running_redis
from processes.interrupts import interrupt_on_end_signals
from service.hooks.signatures import sign

PROXY, STRANGER = "127.0.0.2", "127.0.0.3"
GUESSER, OTHERS = "203.0.113.7", "203.0.113.8"
SECRET = "the-key-that-the-api-knows"
KEY = {"name": "own", "secret": SECRET, "scopes": ["read"]}
SIGNING_SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
LIMIT = 30
GUESSES = 2 * LIMIT


def send_key(api: ServiceProcess, key: str, *, source: str, forwarded: str) -> int:
    return api.ask("/exports", key=key, source=source, headers={"X-Forwarded-For": forwarded}).status


def send_event(api: ServiceProcess, number: int, *, forwarded: str) -> int:
    """Send a rightly signed event by the proxy."""
    event = {"specversion": "1.0", "id": f"run-{number}", "source": "/t", "type": "completed", "data": {}}
    body = json.dumps(event).encode()
    headers = sign(f"msg_{number}", body, [SIGNING_SECRET], datetime.now(UTC))
    sent = {**headers, "Content-Type": "application/cloudevents+json", "X-Forwarded-For": forwarded}
    return api.ask("/webhooks/training", method="POST", source=PROXY, headers=sent, body=body).status


def attack(api: ServiceProcess) -> Iterator[tuple[str, int, int]]:
    """Yield each figure with its bound."""
    guesses = [send_key(api, f"guess-{n}", source=PROXY, forwarded=GUESSER) for n in range(GUESSES)]
    yield f"of {GUESSES} wrong keys from one caller, compared", guesses.count(401), LIMIT
    refused = [send_key(api, SECRET, source=PROXY, forwarded=f"{OTHERS}{n}") != 200 for n in range(5)]
    yield "of 5 other callers behind the same proxy, locked out", sum(refused), 0
    refused = [send_event(api, n, forwarded=GUESSER if n else OTHERS) != 202 for n in range(5)]
    yield "of 5 rightly signed events, four from the guesser's address, refused", sum(refused), 0
    invented = [
        send_key(api, f"guess-{n}", source=PROXY, forwarded=f"198.51.100.{n}, 203.0.113.9")
        for n in range(GUESSES)
    ]
    yield (
        f"of {GUESSES} wrong keys with invented entries before the proxy's, compared",
        invented.count(401),
        LIMIT,
    )
    direct = [
        send_key(api, f"guess-{n}", source=STRANGER, forwarded=f"198.51.100.{n}") for n in range(GUESSES)
    ]
    yield f"of {GUESSES} wrong keys with invented headers and no proxy, compared", direct.count(401), LIMIT


def main() -> int:
    """Attack the API, print the figures, and return 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks.lockout", description=__doc__)
    parser.add_argument("--no-proxy", action="store_true", help="do not tell the API of the proxy")
    given = parser.parse_args()
    interrupt_on_end_signals()
    environment = {
        "SLIPWAY_WEBHOOK_SECRETS": SIGNING_SECRET,
        "SLIPWAY_GUESS_LIMIT": str(LIMIT),
        "FORWARDED_ALLOW_IPS": "" if given.no_proxy else f"{PROXY}/32",
    }
    bounds = Bounds()
    with (
        tempfile.TemporaryDirectory(prefix="slipway-attack-") as name,
        running_redis(Path(name) / "redis") as redis,
        running_service(Path(name), redis.url, keys=[KEY], environment=environment) as api,
    ):
        for what, measured, bound in attack(api):
            bounds.check(what, measured, bound)
    return bounds.exit_status


if __name__ == "__main__":
    sys.exit(main())
