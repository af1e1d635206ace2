"""The application for schemathesis: all is real but the reading of configs, which no random text passes.

`python -m tests.service.fuzzing SECONDS` serves it on Redis, with one key for everything, and prints its URL.
"""

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

from fastapi import FastAPI

from exporter.spec import ExportSpec, TowerName
from jobs.control.control import Plan
from launcher.ports import free_port
from launcher.redis_server import running_redis
from processes.guarded_process import GuardedProcess
from service.app import create_app

SECRET = "one-key-for-everything"


def plan_anything(spec: ExportSpec, *, families: Collection[str] = ()) -> Plan:
    return Plan(spec=spec, towers=spec.towers or (TowerName.USER, TowerName.ITEM))


def fuzzed_app() -> FastAPI:
    # For as long as this process serves.
    patch("service.redis_backend.planner", lambda families: plan_anything).start()
    return create_app()


def write_keys(folder: Path) -> Path:
    path = folder / "keys.json"
    path.write_text(json.dumps({"keys": [{"name": "fuzz", "secret": SECRET, "scopes": ["admin"]}]}))
    return path


def serve(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as name, running_redis(Path(name) / "redis") as server:
        port = free_port()
        environment: Mapping[str, str] = {
            "SLIPWAY_REDIS_URL": server.url,
            "SLIPWAY_API_KEYS_FILE": str(write_keys(Path(name))),
            "SLIPWAY_FILE_ROOTS": "/",
        }
        command = ["uvicorn", "--factory", "tests.service.fuzzing:fuzzed_app", "--port", str(port)]
        log = Path(name) / "api.log"
        api = GuardedProcess.start(
            [sys.executable, "-m", *command], log=log, grace=timedelta(seconds=5), environment=environment
        )
        try:
            sys.stdout.write(f"http://127.0.0.1:{port} key {SECRET} log {log}\n")
            sys.stdout.flush()
            time.sleep(seconds)
        finally:
            api.stop()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        serve(float(sys.argv[1]))
