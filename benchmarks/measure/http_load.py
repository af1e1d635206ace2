"""HTTP requests over kept connections, timed by a client with as little overhead as possible."""

import http.client
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

_HOST = "127.0.0.1"
_TIMEOUT_S = 30.0


class HttpConnection:
    """A kept connection, as a context manager."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(_HOST, port, timeout=_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def get(self, path: str, headers: Mapping[str, str], *, expect: int) -> tuple[float, str]:
        """Return milliseconds from sending to the answer's last byte, and the answer's entity tag."""
        return self._ask("GET", path, None, headers, expect=expect)

    def post(self, path: str, body: bytes, *, expect: int) -> float:
        """Return milliseconds from sending to the answer's last byte."""
        return self._ask("POST", path, body, {"Content-Type": "application/json"}, expect=expect)[0]

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], *, expect: int
    ) -> tuple[float, str]:
        begun = time.perf_counter()
        self._connection.request(method, path, body, dict(headers))
        answer = self._connection.getresponse()
        text = answer.read()
        milliseconds = (time.perf_counter() - begun) * 1e3
        if answer.status != expect:
            raise SystemExit(f"{method} {path} was answered {answer.status}: {text[:300]!r}")
        return milliseconds, answer.getheader("ETag", "")


def per_second(
    port: int, path: str, body: bytes | None, *, clients: int, requests: int, expect: int
) -> float:
    """Return answered requests per second, from this many clients that each wait for their answers."""
    share = requests // clients
    failed: list[BaseException] = []

    def send() -> None:
        try:
            with HttpConnection(port) as caller:
                for _ in range(share):
                    if body is None:
                        caller.get(path, {}, expect=expect)
                    else:
                        caller.post(path, body, expect=expect)
        except (SystemExit, OSError) as error:
            failed.append(error)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return share * clients / (time.perf_counter() - begun)
