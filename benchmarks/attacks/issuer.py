"""Invented tokens while the issuer's server accepts connections and never answers.

The API knows a key of its own and an issuer whose keys it has not fetched yet. Sixty tokens with invented key
ids arrive at once; meanwhile `/healthz` and a list with the own key are asked for on new connections.
"""

import base64
import json
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.measure.bounds import Bounds
from benchmarks.measure.service_process import HOST, Answer, ServiceProcess, running_service
from launcher.redis_server import running_redis
from processes.interrupts import interrupt_on_end_signals

SECRET = "the-key-that-the-api-knows"
KEY = {"name": "own", "secret": SECRET, "scopes": ["read"]}
TOKENS = 60
BOUND_S = 0.2  # for an answer that does not need the issuer
BOUND_TOKENS_S = 10.0  # until the last token is answered
MOST_S = 60.0  # for the whole attack, and for one request


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


def invented_token(number: int) -> str:
    """Return a token in the right form that no issuer has signed."""
    parts = ({"alg": "RS256", "kid": f"invented-{number}"}, {"iss": "https://id.example"})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*texts, "c2lnbmVk"])


def attack(api: ServiceProcess) -> tuple[list[float], list[float], list[Answer]]:
    """Return the seconds of each `/healthz` and each list, and the answers to the tokens."""
    told: list[Answer] = []
    threads = [
        threading.Thread(
            target=lambda n=n: told.append(api.ask("/exports", key=invented_token(n))), daemon=True
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
            answer = api.ask(path, key=secret)
            seconds.append(answer.seconds if answer.is_ok else MOST_S)
        time.sleep(0.05)
    return health, lists, told


def main() -> int:
    """Attack the API, print the figures, and return 1 if a bound was missed."""
    interrupt_on_end_signals()
    issuer = SilentIssuer()
    environment = {
        "SLIPWAY_OIDC_ISSUER": "https://id.example",
        "SLIPWAY_OIDC_AUDIENCE": "slipway",
        "SLIPWAY_OIDC_JWKS_URL": issuer.url,
    }
    with (
        tempfile.TemporaryDirectory(prefix="slipway-attack-") as name,
        running_redis(Path(name) / "redis") as redis,
        running_service(Path(name), redis.url, keys=[KEY], environment=environment) as api,
    ):
        api.ask("/exports", key=SECRET)  # the first request loads modules
        health, lists, told = attack(api)
    codes = sorted({answer.status for answer in told})
    bounds = Bounds()
    bounds.check("slowest /healthz, s", max(health, default=0.0), BOUND_S)
    bounds.check("slowest list with an own key, s", max(lists, default=0.0), BOUND_S)
    last = max(answer.seconds for answer in told)
    bounds.check(f"last of {TOKENS} tokens answered {codes}, s", last, BOUND_TOKENS_S)
    bounds.check("connections to the issuer", len(issuer.connections), 1)
    return bounds.exit_status


if __name__ == "__main__":
    sys.exit(main())
