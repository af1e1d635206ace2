"""Invented tokens while the issuer's server accepts connections and never answers.

The API knows a key of its own and an issuer whose keys it has not fetched yet. Sixty tokens with invented key
ids arrive at once; meanwhile `/healthz` and a list with the own key are asked for on new connections.
"""

import base64
import http.client
import json
import socket
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
SECRET = "the-key-that-the-api-knows"
TOKENS = 60
BOUND_S = 0.2  # for an answer that does not need the issuer
BOUND_TOKENS_S = 10.0  # until the last token is answered
MOST_S = 60.0  # for the whole attack, and for one request
_GRACE = timedelta(seconds=5)


class SilentIssuer:
    """A server that accepts every connection and never answers."""

    def __init__(self) -> None:
        self.connections: list[socket.socket] = []
        self._listener = socket.create_server((HOST, 0), backlog=200)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self._listener.getsockname()[1]}/keys"

    def _accept(self) -> None:
        while True:
            self.connections.append(self._listener.accept()[0])


@contextmanager
def running_api(folder: Path, issuer: str) -> Iterator[int]:
    """Run Redis and the API, which takes the own key and tokens, and give its port."""
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "own", "secret": SECRET, "scopes": ["read"]}]}))
    with running_redis(folder / "redis") as server:
        port = free_port()
        command = [sys.executable, "-m", "service", "--host", HOST, "--port", str(port), "--grace", "1"]
        environment = {
            "SLIPWAY_REDIS_URL": server.url,
            "SLIPWAY_API_KEYS_FILE": str(keys),
            "SLIPWAY_OIDC_ISSUER": "https://id.example",
            "SLIPWAY_OIDC_AUDIENCE": "slipway",
            "SLIPWAY_OIDC_JWKS_URL": issuer,
        }
        api = GuardedProcess.start(command, log=folder / "api.log", grace=_GRACE, environment=environment)
        try:
            deadline = time.monotonic() + MOST_S
            while ask(port, "/healthz")[0] != http.client.OK:
                if time.monotonic() > deadline or api.exit_status() is not None:
                    raise SystemExit(f"the API did not start; its log ends:\n{api.last_lines(10)}")
                time.sleep(0.1)
            yield port
        finally:
            api.stop()


def ask(port: int, path: str, secret: str = "") -> tuple[int, float]:
    """Return the status of an answer, 0 for none, and the seconds that it took on a connection of its own."""
    begun = time.monotonic()
    connection = http.client.HTTPConnection(HOST, port, timeout=MOST_S)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {secret}"} if secret else {})
        answer = connection.getresponse()
        answer.read()
        return answer.status, time.monotonic() - begun
    except OSError:
        return 0, time.monotonic() - begun
    finally:
        connection.close()


def invented_token(number: int) -> str:
    """Return a token in the right form that no issuer has signed."""
    parts = ({"alg": "RS256", "kid": f"invented-{number}"}, {"iss": "https://id.example"})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*texts, "c2lnbmVk"])


def attack(port: int) -> tuple[list[float], list[float], list[tuple[int, float]]]:
    """Return the seconds of each `/healthz` and each list, and the answers to the tokens."""
    told: list[tuple[int, float]] = []
    threads = [
        threading.Thread(
            target=lambda n=n: told.append(ask(port, "/exports", invented_token(n))), daemon=True
        )
        for n in range(TOKENS)
    ]
    for thread in threads:
        thread.start()
    health: list[float] = []
    lists: list[float] = []
    begun = time.monotonic()
    while any(thread.is_alive() for thread in threads) and time.monotonic() - begun < MOST_S:
        for path, seconds, secret in (("/healthz", health, ""), ("/exports", lists, SECRET)):
            status, took = ask(port, path, secret)
            seconds.append(took if status == http.client.OK else MOST_S)
        time.sleep(0.05)
    return health, lists, told


def main() -> int:
    """Attack the API, print the figures, and return 1 if a bound was missed."""
    interrupt_on_end_signals()
    issuer = SilentIssuer()
    with (
        tempfile.TemporaryDirectory(prefix="slipway-attack-") as folder,
        running_api(Path(folder), issuer.url) as port,
    ):
        ask(port, "/exports", SECRET)  # the first request loads modules
        health, lists, told = attack(port)
    codes = sorted({status for status, _ in told})
    figures = (
        ("slowest /healthz, s", max(health, default=0.0), BOUND_S),
        ("slowest list with an own key, s", max(lists, default=0.0), BOUND_S),
        (f"last of {TOKENS} tokens answered {codes}, s", max(took for _, took in told), BOUND_TOKENS_S),
        ("connections to the issuer", float(len(issuer.connections)), 1.0),
    )
    for what, measured, bound in figures:
        sys.stdout.write(f"{what}: {measured:g} (bound {bound:g})\n")
    return int(any(measured > bound for _, measured, bound in figures))


if __name__ == "__main__":
    sys.exit(main())
