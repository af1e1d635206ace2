"""The ranks of an attempt are forks of one process: each with its own lines, none left when one dies."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

_START = """
import os, signal, sys, time
from exporter.distributed.fork_ranks import run_ranks

def run(ranks):
    {body}

sys.exit(run_ranks(run, 3, rendezvous="file://" + sys.argv[1]))
"""


def _run(body: str, tmp_path: Path) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", _START.format(body=body), str(tmp_path / "meeting")]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    return done.returncode, sorted(done.stderr.splitlines())


def test_ranks_meet_and_every_line_names_its_rank(tmp_path: Path) -> None:
    body = "os.write(2, f'{ranks.rank} gathers {ranks.gather(ranks.rank * 10)}'.encode() + b'\\n')"
    status, lines = _run(body, tmp_path)
    assert status == 0
    assert not (tmp_path / "meeting").exists()  # they are all here
    assert lines == ["[rank0]: 0 gathers [0, 10, 20]", "[rank1]: 1 gathers None", "[rank2]: 2 gathers None"]


def test_what_ranks_gather_may_be_large(tmp_path: Path) -> None:
    body = "os.write(2, str([len(each) for each in ranks.gather('x' * (9 << 20)) or ()]).encode())"
    assert _run(body, tmp_path) == (0, ["[rank0]: [9437184, 9437184, 9437184]", "[rank1]: []", "[rank2]: []"])


def test_one_that_fails_says_why_and_takes_the_others_along(tmp_path: Path) -> None:
    status, lines = _run("1 / 0 if ranks.rank == 2 else time.sleep(600)", tmp_path)
    assert status == 1
    assert "[rank2]: ZeroDivisionError: division by zero" in lines
    assert "rank 2 ended with status 1; the other ranks are ended" in lines


def test_once_the_first_is_done_the_others_wait_for_nobody(tmp_path: Path) -> None:
    assert _run("ranks.rank == 0 or time.sleep(600)", tmp_path) == (0, [])


def test_ranks_meet_in_a_folder_of_any_name_and_end_where_no_line_can_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    script = _START.format(body="os.write(2, b'x' * (1 << 20) + b'\\n'); ranks.gather(1)")
    command = [sys.executable, "-c", script, quote(str(folder / "meeting"))]
    with Path("/dev/full").open("w") as full:
        assert subprocess.run(command, check=False, stderr=full, timeout=120).returncode == 0


def test_where_one_is_killed_even_those_end_that_will_not(tmp_path: Path) -> None:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    status, lines = _run(f"ranks.rank == 1 and os.kill(os.getpid(), 9); {deaf}", tmp_path)
    assert (status, lines) == (1, ["rank 1 was killed by SIGKILL; the other ranks are ended"])
