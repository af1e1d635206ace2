"""A script that hangs takes no more of a search's time than it must."""

import time
from pathlib import Path

import pytest

from exporter.minify.script_runner import ScriptRunner

pytestmark = pytest.mark.slow

HANGS = "print('step: eager', flush=True)\nimport time\ntime.sleep(60)"
ENDS = "print('step: eager', flush=True)"


def test_once_one_has_hung_the_others_are_given_less_time(tmp_path: Path) -> None:
    with ScriptRunner((), tmp_path, limit_s=10) as runner:
        assert runner.run_script(ENDS) is None
        assert str(runner.run_script(HANGS)) == "hang in step eager"
        begun = time.monotonic()
        assert str(runner.run_script(HANGS)) == "hang in step eager"
        assert time.monotonic() - begun < 8


def test_what_is_cut_off_as_time_is_up_did_not_hang(tmp_path: Path) -> None:
    with ScriptRunner((), tmp_path, limit_s=30, until=time.monotonic() + 12) as runner:
        assert runner.run_script(HANGS) is None
        assert runner.run_script(ENDS) is None and runner.scripts_run == 1
