import time
from functools import partial
from pathlib import Path

from exporter.attempt.attempt import DIAGNOSTICS, Attempt
from exporter.attempt.stage_timeout import TRACE_LOG, find_stage_timeout
from exporter.distributed.isolation import run_isolated
from exporter.distributed.time_limit import enforce_time_limit, read_overrun
from exporter.spec import ExportSpec


def hang_inside_of(note: Path) -> str:
    with enforce_time_limit(0.3, note, what="trace"):
        while True:
            time.sleep(0.1)


def test_what_hangs_is_ended_and_leaves_its_stack(tmp_path: Path) -> None:
    note = tmp_path / "overrun.txt"
    assert run_isolated(partial(hang_inside_of, note), on_death=str) == "ended with status 1"
    found = read_overrun(note)
    assert found is not None
    assert found[0] == "trace"
    assert "in hang_inside_of" in found[1]


def test_what_ends_in_time_leaves_nothing(tmp_path: Path) -> None:
    note = tmp_path / "overrun.txt"
    with enforce_time_limit(60, note, what="trace"):
        assert read_overrun(note) is None
    assert not note.exists()


def test_a_stage_that_hung_names_its_line_and_the_last_node(tmp_path: Path) -> None:
    spec = ExportSpec(config="", checkpoint_uri="unread", output_uri="unread")
    attempt = Attempt(job_id="job", spec=spec, workspace=tmp_path, stage_limit_s=0.3)
    evidence = tmp_path / "user" / DIAGNOSTICS
    run_isolated(partial(hang_inside_of, evidence / "overrun.txt"), on_death=str)
    (evidence / TRACE_LOG).write_text("0.0100 s  mul_3 = aten.mul.Tensor\n")
    error = find_stage_timeout(attempt, "user")
    assert error is not None
    assert "stage trace took more than 0.3 s" in error.message
    assert "the last graph node was mul_3 = aten.mul.Tensor" in error.message
    assert "test_time_limit.py" in error.where
    assert "hang_inside_of" in error.report
