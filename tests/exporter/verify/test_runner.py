"""A package runs in a process of its own, and dies there."""

import os
import time
from pathlib import Path
from signal import SIGKILL

import pytest
import torch

from exporter.errors import OutOfMemory, PackageCrashed
from exporter.towers.tower import Tower
from exporter.verify import runner_process
from exporter.verify.reload import Chain, Link
from exporter.verify.runner import PackageRunner, Refused
from exporter.verify.runner_process import RunnerProcess
from tests.exporter.verify.conftest import clicks


def test_outputs_come_back_by_name(tower: Tower, chain: list[Link], tmp_path: Path) -> None:
    inputs = clicks(2, 3)
    with PackageRunner(chain, op_libraries=(), scratch=tmp_path) as runner:
        outputs = runner.run(inputs)
    torch.testing.assert_close(outputs, {"embedding": tower.module(inputs)["embedding"].detach()})


def test_what_a_cuda_graph_can_capture_computes_the_same(tower: Tower, chain: list[Link]) -> None:
    inputs = clicks(2, 3)
    outputs = Chain(chain, torch.device("cpu"), single_threaded=True)(inputs)
    torch.testing.assert_close(outputs, {"embedding": tower.module(inputs)["embedding"].detach()})


def test_ids_outside_the_table_are_refused_and_the_next_call_still_works(
    chain: list[Link], tmp_path: Path
) -> None:
    outside = clicks(2)
    outside["clicks.values"] += 1000
    with PackageRunner(chain, op_libraries=(), scratch=tmp_path) as runner:
        with pytest.raises(Refused, match="out of bounds"):
            runner.run(outside)
        assert runner.run(clicks(2))["embedding"].shape == (1, 8)


def test_a_file_that_is_no_package_is_a_crash_with_its_last_words(tmp_path: Path) -> None:
    broken = tmp_path / "aoti_model.pt2"
    broken.write_bytes(b"not a zip")
    runner = PackageRunner([Link(package=broken, order=())], op_libraries=(), scratch=tmp_path)
    with pytest.raises(PackageCrashed, match="ended with status 1"):
        runner.__enter__()


def test_a_crash_on_a_full_disk_tells_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "aoti_model.pt2"
    broken.write_bytes(b"not a zip")
    for least, told in ((1, False), (1 << 60, True)):  # no disk has as much
        monkeypatch.setattr(runner_process, "_NEARLY_FULL", least)
        with pytest.raises(PackageCrashed) as crashed:
            PackageRunner([Link(package=broken, order=())], op_libraries=(), scratch=tmp_path).__enter__()
        assert ("bytes are free at" in crashed.value.hint) == told


@pytest.mark.parametrize(
    ("does", "limit_s", "said"),
    [
        ("import time; time.sleep(60)", 5, "took more than 5 s and was ended"),
        ("print('warming up')", 60, "gave no answer but 'warming up'"),
    ],
    ids=["hangs", "prints"],
)
def test_a_process_that_hangs_or_talks_is_ended_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, limit_s: float, said: str
) -> None:
    (tmp_path / "ops_of_no_use.py").write_text(does)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    runner = PackageRunner(
        [], op_libraries=("ops_of_no_use",), scratch=tmp_path, limit_s=5 if "sleep" in does else 60
    )
    begun = time.monotonic()
    with pytest.raises(PackageCrashed, match=said):
        runner.__enter__()
    assert time.monotonic() - begun < 30


def call_a_dead_process(scratch: Path) -> None:
    with PackageRunner([], op_libraries=(), scratch=scratch) as runner:
        os.kill(runner.pid, SIGKILL)
        os.waitid(os.P_PID, runner.pid, os.WEXITED | os.WNOWAIT)
        runner.run({})


def test_a_process_that_dies_between_two_calls_is_a_crash(tmp_path: Path) -> None:
    with pytest.raises(PackageCrashed, match="ended with status -9"):
        call_a_dead_process(tmp_path)


def test_memory_that_ran_out_where_a_package_was_loaded_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ops_of_no_use.py").write_text("raise SystemExit('Error: CUDA error: out of memory')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    runner = PackageRunner([], op_libraries=("ops_of_no_use",), scratch=tmp_path)
    with pytest.raises(OutOfMemory, match="loading: Error: CUDA error: out of memory"):
        runner.__enter__()


def test_nothing_is_left_behind(chain: list[Link], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch, temporary = tmp_path / "scratch", tmp_path / "temporary"
    scratch.mkdir()
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with PackageRunner(chain, op_libraries=(), scratch=scratch) as runner:
        runner.run(clicks(2))
    assert [*scratch.iterdir(), *temporary.iterdir()] == []


def test_a_process_started_ahead_runs_one_package_and_no_second(chain: list[Link], tmp_path: Path) -> None:
    with RunnerProcess(tmp_path) as ahead:
        with PackageRunner(chain, op_libraries=(), scratch=tmp_path, ahead=ahead) as runner:
            assert runner.pid == ahead.process.pid and runner.run(clicks(2))
        assert ahead.process.wait(timeout=10) == -SIGKILL
        with PackageRunner(chain, op_libraries=(), scratch=tmp_path, ahead=ahead) as runner:
            assert runner.pid != ahead.process.pid and runner.run(clicks(2))
    assert list(tmp_path.glob("run-*")) == []


def test_a_package_has_no_credentials(
    chain: list[Link], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "planted")
    with PackageRunner(chain, op_libraries=(), scratch=tmp_path) as runner:
        seen = Path(f"/proc/{runner.pid}/environ").read_bytes()
    assert b"AOTI_RUNTIME_CHECK_INPUTS=1" in seen and b"planted" not in seen
