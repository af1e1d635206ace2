"""A server of one tower over HTTP: `python -m examples.python_server PREPARED item`.

    curl -s localhost:8090/predict -d '{"video_id.values": [3, 4], "video_id.lengths": [1, 1], …}'
    curl -s localhost:8090/swap -d '{"artifact": "/srv/models/feed-2"}'      # answers from a newer artifact

PREPARED is a folder that `slipway prepare` wrote. The server proves its tower by the artifact's sample
requests before it listens. It has no keys and reads any folder that /swap names: keep it on loopback.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

from slipway.loader import InputRefused, LoadedTower, LoaderError, load, prove

_MOST_BYTES = 16 << 20  # of a request


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted; the exit code is 1 where the tower cannot be loaded or proved."""
    parser = argparse.ArgumentParser(description="Serve one tower of a prepared artifact on loopback.")
    parser.add_argument("folder", metavar="PREPARED")
    parser.add_argument("tower", metavar="TOWER")
    parser.add_argument("--port", type=int, default=8090, help="default: %(default)s; 0 takes a free one")
    parsed = parser.parse_args(arguments)
    try:
        tower = load(parsed.folder, parsed.tower)
        proved = prove(tower, parsed.folder)
    except LoaderError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return 1
    with tower, TowerServer(parsed.port, tower) as server:
        print(f"proved by {', '.join(proved)}; listening on port {server.server_port}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


class TowerServer(ThreadingHTTPServer):
    """Calls of one tower, each connection in a thread of its own."""

    def __init__(self, port: int, tower: LoadedTower) -> None:
        """Listen on loopback."""
        super().__init__(("127.0.0.1", port), Handler)
        self.tower = tower

    def predict(self, request: dict[str, object]) -> dict[str, object]:
        """Return the outputs for inputs that are nested lists; their dtypes are the manifest's."""
        dtypes = {entry.name: getattr(torch, entry.dtype) for entry in self.tower.inputs}
        try:
            inputs = {name: torch.tensor(value, dtype=dtypes.get(name)) for name, value in request.items()}
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputRefused(f"a value is no tensor: {error}") from error
        return {name: output.tolist() for name, output in self.tower(inputs).items()}

    def swap(self, request: dict[str, object]) -> dict[str, object]:
        """Answer from the artifact that is named from now on."""
        self.tower.swap(str(request.get("artifact", "")))
        return {"job_id": self.tower.job_id}


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    server: TowerServer
    timeout = 30  # seconds that a caller may keep silent

    def do_GET(self) -> None:
        if self.path == "/ready":
            self._answer(HTTPStatus.OK, {"tower": self.server.tower.name, "job_id": self.server.tower.job_id})
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"there is no {self.path}"})

    def do_POST(self) -> None:
        actions = {"/predict": self.server.predict, "/swap": self.server.swap}
        action = actions.get(self.path)
        if action is None:
            self._answer(HTTPStatus.NOT_FOUND, {"error": f"there is no {self.path}"})
            return
        try:
            self._answer(HTTPStatus.OK, action(self._body()))
        except LoaderError as error:
            self._answer(HTTPStatus.UNPROCESSABLE_ENTITY, {"error": str(error), "code": error.code})
        except ValueError as error:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})

    def _body(self) -> dict[str, object]:
        """Return the request's JSON object; ValueError for anything else."""
        length = int(self.headers.get("Content-Length", "0"))
        if not 0 <= length <= _MOST_BYTES:
            raise ValueError(f"a request may have {_MOST_BYTES} bytes")
        body = json.loads(self.rfile.read(length))
        if not isinstance(body, dict):
            raise ValueError("a request is a JSON object")  # noqa: TRY004 (the caller's value, not a type)
        return body

    def _answer(self, status: HTTPStatus, content: dict[str, object]) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    sys.exit(main())
