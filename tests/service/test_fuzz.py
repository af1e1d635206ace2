"""Random requests, many of them wrong, get no 5xx and no answer that OpenAPI does not describe."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.fuzzing import SECRET

CONFIG = Path(__file__).with_name("schemathesis.toml")
AT_LEAST = 5000  # cases
ENDLESS = "/exports/{job_id}/events"  # a stream, which lasts as long as its job


@pytest.fixture
def served() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.service.fuzzing", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0]
        server.send_signal(signal.SIGINT)


@pytest.mark.fuzz
def test_no_request_breaks_the_api(served: str, tmp_path: Path) -> None:
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(CONFIG)),
        *("run", f"{served}/openapi.json", "--header", f"Authorization: Bearer {SECRET}"),
        *("--checks", "all", "--exclude-path", ENDLESS, "--max-examples", "200", "--seed", "1"),
        *("--no-shrink", "--no-color", "--wait-for-schema", "30"),
    ]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900)
    assert found.returncode == 0, found.stdout[-9000:]
    generated = re.search(r"(\d+) generated", found.stdout)
    assert generated is not None and int(generated[1]) >= AT_LEAST, found.stdout[-1500:]
