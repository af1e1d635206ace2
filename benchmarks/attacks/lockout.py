"""Wrong keys by the dozen behind a proxy: whom they lock out, and whether headers help to guess on.

The API trusts one proxy, 127.0.0.2, as the chart tells it with an ingress; `--no-proxy` leaves that out.
"""

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from launcher.ports import free_port
from launcher.redis_server import running_redis
from processes.guarded_process import GuardedProcess
from processes.interrupts import interrupt_on_end_signals
from service.hooks.signatures import sign

HOST = "127.0.0.1"
PROXY, STRANGER = "127.0.0.2", "127.0.0.3"
GUESSER, OTHERS = "203.0.113.7", "203.0.113.8"
SECRET = "the-key-that-the-api-knows"
SIGNING_SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
LIMIT = 30
GUESSES = 2 * LIMIT
_GRACE = timedelta(seconds=5)
_START_S = 60.0


@contextmanager
def running_api(folder: Path, *, proxy: bool) -> Iterator[int]:
    """Run Redis and the API, which takes the key and signed webhooks, and give its port."""
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "own", "secret": SECRET, "scopes": ["read"]}]}))
    with running_redis(folder / "redis") as server:
        port = free_port()
        command = [sys.executable, "-m", "service", "--host", HOST, "--port", str(port), "--grace", "1"]
        environment = {
            "SLIPWAY_REDIS_URL": server.url,
            "SLIPWAY_API_KEYS_FILE": str(keys),
            "SLIPWAY_WEBHOOK_SECRETS": SIGNING_SECRET,
            "SLIPWAY_GUESS_LIMIT": str(LIMIT),
            "FORWARDED_ALLOW_IPS": f"{PROXY}/32" if proxy else "",
        }
        api = GuardedProcess.start(command, log=folder / "api.log", grace=_GRACE, environment=environment)
        try:
            deadline = time.monotonic() + _START_S
            while ask(port, "/healthz", source=HOST) != http.client.OK:
                if time.monotonic() > deadline or api.exit_status() is not None:
                    raise SystemExit(f"the API did not start; its log ends:\n{api.last_lines(10)}")
                time.sleep(0.1)
            yield port
        finally:
            api.stop()


def ask(
    port: int, path: str, *, source: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> int:
    """Return the status of the answer to a request from the address `source`; 0 for none."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30, source_address=(source, 0))
    try:
        connection.request("GET" if body is None else "POST", path, body, dict(headers or {}))
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def send_key(port: int, key: str, *, source: str, forwarded: str) -> int:
    headers = {"Authorization": f"Bearer {key}", "X-Forwarded-For": forwarded}
    return ask(port, "/exports", source=source, headers=headers)


def send_event(port: int, number: int, *, forwarded: str) -> int:
    """Send a rightly signed event by the proxy."""
    event = {"specversion": "1.0", "id": f"run-{number}", "source": "/t", "type": "completed", "data": {}}
    body = json.dumps(event).encode()
    headers = sign(f"msg_{number}", body, [SIGNING_SECRET], datetime.now(UTC))
    sent = {**headers, "Content-Type": "application/cloudevents+json", "X-Forwarded-For": forwarded}
    return ask(port, "/webhooks/training", source=PROXY, headers=sent, body=body)


def attack(port: int) -> Iterator[tuple[str, int, int]]:
    """Yield each figure with its bound."""
    guesses = [send_key(port, f"guess-{n}", source=PROXY, forwarded=GUESSER) for n in range(GUESSES)]
    yield f"of {GUESSES} wrong keys from one caller, compared", guesses.count(401), LIMIT
    refused = [send_key(port, SECRET, source=PROXY, forwarded=f"{OTHERS}{n}") != 200 for n in range(5)]
    yield "of 5 other callers behind the same proxy, locked out", sum(refused), 0
    refused = [send_event(port, n, forwarded=GUESSER if n else OTHERS) != 202 for n in range(5)]
    yield "of 5 rightly signed events, four from the guesser's address, refused", sum(refused), 0
    invented = [
        send_key(port, f"guess-{n}", source=PROXY, forwarded=f"198.51.100.{n}, 203.0.113.9")
        for n in range(GUESSES)
    ]
    yield (
        f"of {GUESSES} wrong keys with invented entries before the proxy's, compared",
        invented.count(401),
        LIMIT,
    )
    direct = [
        send_key(port, f"guess-{n}", source=STRANGER, forwarded=f"198.51.100.{n}") for n in range(GUESSES)
    ]
    yield f"of {GUESSES} wrong keys with invented headers and no proxy, compared", direct.count(401), LIMIT


def main() -> int:
    """Attack the API, print the figures, and return 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks.lockout", description=__doc__)
    parser.add_argument("--no-proxy", action="store_true", help="do not tell the API of the proxy")
    given = parser.parse_args()
    interrupt_on_end_signals()
    missed = False
    with (
        tempfile.TemporaryDirectory(prefix="slipway-attack-") as folder,
        running_api(Path(folder), proxy=not given.no_proxy) as port,
    ):
        for what, measured, bound in attack(port):
            sys.stdout.write(f"{what}: {measured} (bound {bound})\n")
            missed = missed or measured > bound
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
