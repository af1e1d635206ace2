"""Many large bodies at once: from strangers, at the public webhook, dripping, and from a caller with a key.

Each attack opens a hundred connections to an API of its own and keeps them busy for some seconds. One opens
thousands, on which it sends a part of a head. Meanwhile
`/healthz` and a list with a key are asked for on new connections; then the largest memory of the API is read.
"""

import http.client
import json
import multiprocessing
import resource
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.measure.bounds import Bounds
from benchmarks.measure.child_process import read_memory
from benchmarks.measure.process_memory import process_tree
from benchmarks.measure.service_process import HOST, ServiceProcess, running_service
from launcher.redis_server import running_redis
from processes.interrupts import interrupt_on_end_signals

SECRET = "the-key-that-the-api-knows"
KEY = {"name": "own", "secret": SECRET, "scopes": ["submit"]}
CONNECTIONS = 100
BODY = 8_000_000
EVENT = 256 << 10  # the largest that is read without a key
HEAD = 15_000  # bytes of a head that does not end; longer heads are refused
SECONDS = 8.0
BOUND_MB = 300.0
BOUND_S = 0.2
BOUND_CALLERS_S = 1.0  # while bodies of callers are read and parsed
MOST_S = 60.0
_PAUSE_S = 1.0  # before a refused connection is opened again
_PAUSE_SILENT_S = 0.2  # before each further connection
_PIECE = b" " * 65536

Attack = Callable[[int, float], None]


def send_all_but_the_end(port: int, until: float, *, path: str, size: int, pause: float, key: str) -> None:
    """Announce a body and send all of it but the last byte, again and again; hold what is not refused."""
    head = f"POST {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n{key}"
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection((HOST, port), timeout=MOST_S) as connection:
            connection.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode())
            left = size - 1
            while left and time.monotonic() < until:
                connection.sendall(_PIECE[:left])
                left -= min(left, len(_PIECE))
                time.sleep(pause)
            connection.settimeout(max(0.1, until - time.monotonic()))
            connection.recv(4096)
        time.sleep(_PAUSE_S)


def upload(port: int, until: float) -> None:
    send_all_but_the_end(port, until, path="/exports", size=BODY, pause=0, key="")


def drip(port: int, until: float) -> None:
    send_all_but_the_end(port, until, path="/exports", size=BODY, pause=0.05, key="")


def flood_webhook(port: int, until: float) -> None:
    send_all_but_the_end(port, until, path="/webhooks/training", size=EVENT, pause=0.005, key="")


def keep_silent(port: int, until: float) -> None:
    """Begin a head on new connections again and again, and hold those that are not ended."""
    held = []
    while time.monotonic() < until:
        with suppress(OSError):
            held.append(socket.create_connection((HOST, port), timeout=MOST_S))
            held[-1].sendall(b"GET /healthz HTTP/1.1\r\nX-Long: " + _PIECE[:HEAD])
        time.sleep(_PAUSE_SILENT_S)
    for each in held:
        each.close()


def hold_with_key(port: int, until: float) -> None:
    key = f"Authorization: Bearer {SECRET}\r\n"
    send_all_but_the_end(port, until, path="/exports", size=BODY, pause=0, key=key)


def post_with_key(port: int, until: float) -> None:
    """Post whole requests with large configs, and read the answers."""
    body = json.dumps({"config": "a" * (BODY - 2000), "checkpoint_uri": "/c", "output_uri": "/o"}).encode()
    headers = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}
    while time.monotonic() < until:
        connection = http.client.HTTPConnection(HOST, port, timeout=MOST_S)
        with suppress(OSError, http.client.HTTPException):
            connection.request("POST", "/exports", body, headers)
            connection.getresponse().read()
        connection.close()
        time.sleep(_PAUSE_S)


STRANGERS: dict[str, Attack] = {
    "8 MB from strangers": upload,
    "8 MB from strangers, dripping": drip,
    "unsigned events": flood_webhook,
    "silent connections": keep_silent,
}
CALLERS: dict[str, Attack] = {"8 MB with a key, held": hold_with_key, "8 MB with a key, whole": post_with_key}


def attack_from_many_threads(attack: Attack, port: int) -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each connection is a file
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=attack, args=(port, until), daemon=True) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 10)


def measure(attack: Attack, api: ServiceProcess) -> tuple[float, float, float]:
    """Return the API's largest memory in MB, and the seconds of the slowest health check and list."""
    api.ask("/exports", key=SECRET)  # the first request loads modules
    attacker = multiprocessing.get_context("fork").Process(
        target=attack_from_many_threads, args=(attack, api.port), daemon=True
    )
    attacker.start()
    slowest = {"/healthz": 0.0, "/exports": 0.0}
    begun = time.monotonic()
    while time.monotonic() - begun < SECONDS:
        for path in slowest:
            answer = api.ask(path, key=SECRET if path == "/exports" else "")
            slowest[path] = max(slowest[path], answer.seconds if answer.is_ok else MOST_S)
        time.sleep(0.05)
    memory = max(read_memory(pid, "VmHWM") for pid in process_tree(api.process.guard.pid)) / 1e6
    attacker.kill()
    attacker.join()
    return memory, slowest["/healthz"], slowest["/exports"]


def main() -> int:
    """Attack the API, print the figures, and return 1 if a bound was missed."""
    interrupt_on_end_signals()
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="slipway-attack-") as name, running_redis(Path(name)) as redis:
        for what, attack in {**STRANGERS, **CALLERS}.items():
            bound_s = BOUND_S if what in STRANGERS else BOUND_CALLERS_S
            with running_service(Path(name), redis.url, keys=[KEY]) as api:
                memory, health, listing = measure(attack, api)
            bounds.check(f"{what}: largest memory, MB", memory, BOUND_MB)
            bounds.check(f"{what}: slowest /healthz, s", health, bound_s)
            bounds.check(f"{what}: slowest list with a key, s", listing, bound_s)
    return bounds.exit_status


if __name__ == "__main__":
    sys.exit(main())
