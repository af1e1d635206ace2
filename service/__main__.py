"""The API as a program: `python -m service --host 127.0.0.1 --port 8080`."""

import argparse
import resource

import uvicorn

from processes.startup import settings_or_exit
from service.gate.connections import BoundedConnection
from service.settings import ServiceSettings

_OTHER_FILES = 2500  # of connections just accepted, to Redis, to stores, of deliveries and modules


def main() -> None:
    """Serve the API until a signal ends it."""
    settings = settings_or_exit(ServiceSettings)
    parser = argparse.ArgumentParser(prog="python -m service", description="Serve Slipway's API.")
    parser.add_argument("--host", default=settings.host, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (default: %(default)s)")
    parser.add_argument(
        "--grace", type=int, default=25, help="seconds that open requests have to end (default: %(default)s)"
    )
    given = parser.parse_args()
    _allow_open_files(settings.max_connections + _OTHER_FILES)
    uvicorn.run(
        "service.app:create_app",
        factory=True,
        host=given.host,
        port=given.port,
        http=BoundedConnection,
        ws="none",  # no route speaks WebSocket, and such connections are not bounded
        limit_concurrency=settings.max_connections + 1,  # the number at which uvicorn refuses
        timeout_graceful_shutdown=given.grace,
    )


def _allow_open_files(count: int) -> None:
    """Raise the limit on open files, as far as this process may: every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        most = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


if __name__ == "__main__":
    main()
