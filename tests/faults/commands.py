"""The commands and settings of a stack's programs."""

import base64
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import libfaketime

from launcher.redis_server import redis_executable
from tests.faults.programs import Program, python
from tests.faults.proxy import Proxy

_SECRET = f"whsec_{base64.b64encode(bytes(32)).decode()}"
FORKED = "forked"  # the kind of attempts that are forks of the worker's resident process
NAMING = "AWS_SDK_UA_APP_ID"  # what boto3 adds to the name under which it asks
LEASE_S = 6.0
DISK_MB = 96  # of the folder that a worker on a small disk works in
_SMALL_PARTS = {"S3_UPLOAD_PART_MIN_SIZE": "1024"}
_FAKETIME = Path(libfaketime.__file__).parent / "vendor/libfaketime/src/libfaketime.so.1"


def programs_of(
    folder: Path,
    kind: str,
    ports: Mapping[str, int],
    proxies: Mapping[str, Proxy],
    *,
    workers: int,
    small_disk: bool,
    settings: Mapping[str, str],
) -> dict[str, Program]:
    """Return all programs, not started; `settings` replace those of the API and the workers."""
    logs, work = folder / "logs", folder / "work"
    settings = {**_settings(folder, kind, proxies), **settings}
    redis_options = ["--port", str(ports["redis"]), "--bind", "127.0.0.1", "--dir", str(folder / "redis")]
    redis_options += ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
    faked = {
        "LD_PRELOAD": str(_FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    api = ["service", "--host", "127.0.0.1", "--port", str(ports["api"]), "--grace", "3"]
    places = [str(ports["s3"]), str(folder / "s3"), str(ports["redis"])]
    programs = {
        "redis": Program("redis", [redis_executable(), *redis_options], logs / "redis.log", faked),
        "s3": Program("s3", python("tests.faults.s3", *places), logs / "s3.log", _SMALL_PARTS),
        "api": Program("api", python(*api), logs / "api.log", settings),
    }
    for number in range(workers):
        name = f"worker{number}"
        command = python("celery", "-A", "worker.app", "worker", "--without-gossip", "--without-mingle")
        command += ["-n", f"{name}@%h"]
        own = {**settings, "SLIPWAY_ALIVE_FILE": str(folder / f"{name}.alive")}
        programs[name] = Program(
            name, _on_a_small_disk(command, work) if small_disk else command, logs / f"{name}.log", own
        )
    return programs


def _settings(folder: Path, kind: str, proxies: Mapping[str, Proxy]) -> dict[str, str]:
    command = json.dumps(python("tests.faults.attempts", kind, str(folder / "hold")))
    # Forks of the resident process, which no command of ours starts: all of them write as the first attempt.
    own = {NAMING: "attempt-1"} if kind == FORKED else {"SLIPWAY_ATTEMPT_COMMAND": command}
    return {
        **own,
        "SLIPWAY_REDIS_URL": f"redis://127.0.0.1:{proxies['redis'].port}/0",
        "SLIPWAY_WORK_DIR": str(folder / "work"),
        "SLIPWAY_LEASE": str(LEASE_S),
        "SLIPWAY_RETRY_PAUSE": "1",
        "SLIPWAY_SWEEP_INTERVAL": "1",
        "SLIPWAY_HEARTBEAT_INTERVAL": "0.5",
        "SLIPWAY_LONGEST_HUNGER": "3",
        "SLIPWAY_CALLBACK_SECRETS": _SECRET,
        "SLIPWAY_CALLBACK_NETWORKS": "127.0.0.0/8",
        "SLIPWAY_CALLBACK_PAUSES": ",".join(["1"] * 60),
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxies['s3'].port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "TMPDIR": str(folder / "tmp"),
    }


def _on_a_small_disk(command: list[str], work: Path) -> list[str]:
    """Return the command in its own mount namespace, where `work` is a file system of a few megabytes."""
    mount = f'mount -t tmpfs -o size={DISK_MB}m tmpfs "$0" && exec "$@"'
    return [
        "unshare",
        "--mount",
        *([] if os.geteuid() == 0 else ["--map-root-user"]),
        "sh",
        "-c",
        mount,
        str(work),
        *command,
    ]


def has_mounts() -> bool:
    """True if a worker can be given a small disk here."""
    probe = [*_on_a_small_disk(["true"], Path("/tmp"))]
    return subprocess.run(probe, check=False, stderr=subprocess.DEVNULL).returncode == 0
