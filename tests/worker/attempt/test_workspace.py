"""An attempt's directories."""

import subprocess
import sys
from pathlib import Path

from exporter.storage.uris import UriRules
from jobs.model import JobState
from tests.jobs.factories import CONFIG_TEXT, make_job, make_spec
from worker.attempt.workspace import AttemptFile, open_workspace, own_worker_dir, remove_leftovers


def test_the_ranks_are_told_what_to_do(tmp_path: Path) -> None:
    rules = UriRules(outputs=("/out",))
    job = make_job(JobState.RUNNING, attempt=2).model_copy(update={"uris": rules})
    with open_workspace(job, CONFIG_TEXT, tmp_path) as workspace:
        told = AttemptFile.model_validate_json((workspace.path / "attempt.json").read_text())
    assert (told.job_id, told.attempt, told.spec, told.replace_unfinished) == (job.id, 2, make_spec(), True)
    assert told.uris == rules
    assert not workspace.path.exists()


def test_what_a_dead_worker_left_is_removed(tmp_path: Path) -> None:
    living = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    own, other = own_worker_dir(tmp_path, living.pid), tmp_path / "abcd-1-abcdefgh"
    for path in (own, other):
        path.mkdir()
    remove_leftovers(tmp_path)
    assert own.exists() and other.exists()
    living.communicate(b"\n")
    remove_leftovers(tmp_path)
    assert not own.exists() and other.exists()


def test_a_process_number_used_again_is_another_worker(tmp_path: Path) -> None:
    own = own_worker_dir(tmp_path, 1)
    left = own.with_name(own.name.rpartition("-")[0] + "-00000000")
    left.mkdir()
    remove_leftovers(tmp_path)
    assert not left.exists()
