"""A receiver of traces in a process of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

WAIT_S = 30.0

Span = dict[str, str]


@dataclass(frozen=True)
class Collector:
    """The address for spans, and the spans that have arrived."""

    endpoint: str
    file: Path

    def spans(self) -> list[Span]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for(self, name: str, enough: Callable[[Span], bool] = lambda span: True) -> Span:
        """Return the span of that name once it has arrived."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for span in self.spans():
                if span["name"] == name and enough(span):
                    return span
            time.sleep(0.05)
        raise AssertionError(f"no span {name} among {[span['name'] for span in self.spans()]}")


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    file = tmp_path / "spans.jsonl"
    command = [sys.executable, "-m", "tests.telemetry.otlp_receiver", str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        port = int(receiver.stdout.readline())
        yield Collector(f"http://127.0.0.1:{port}", file)
        receiver.communicate("")
