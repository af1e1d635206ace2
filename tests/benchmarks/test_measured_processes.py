"""What attacks and benchmarks measure with: bounds, processes that report, and the API as a process."""

import os
from pathlib import Path

import pytest

from benchmarks.measure.bounds import Bounds
from benchmarks.measure.child_process import run_in_child
from benchmarks.measure.service_process import running_service
from launcher.redis_server import running_redis

SECRET = "the-key-that-the-api-knows"


def test_a_figure_above_its_bound_is_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    bounds = Bounds()
    bounds.check("kept", 1, 1)
    assert bounds.exit_status == 0
    bounds.check("missed", 1.2345, 1)
    bounds.check("kept, too", 0, 1)
    assert bounds.exit_status == 1
    assert capsys.readouterr().out.splitlines()[1] == "missed: 1.23 (bound 1)"


def test_a_process_reports_its_text_and_the_memory_that_it_took() -> None:
    ended = run_in_child(lambda: str(len(bytearray(b"x" * (50 << 20)))))
    assert ended.text == str(50 << 20)
    assert 45 << 20 < ended.grown < 150 << 20


def test_a_process_that_dies_gives_no_answer() -> None:
    assert not run_in_child(lambda: os._exit(3)).is_answer


def test_the_api_answers_its_own_key_and_ends_with_the_block(tmp_path: Path) -> None:
    key = {"name": "own", "secret": SECRET, "scopes": ["read"]}
    with (
        running_redis(tmp_path / "redis") as redis,
        running_service(tmp_path, redis.url, keys=[key]) as service,
    ):
        assert service.ask("/exports", key=SECRET).is_ok
        assert service.ask("/exports").status == 401
    assert service.ask("/healthz").status == 0
