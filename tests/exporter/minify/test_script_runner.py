"""A script that hangs takes no more of a search's time than it must."""

import time
from pathlib import Path

import pytest

from exporter.minify.script_runner import Prober

pytestmark = pytest.mark.slow

HANGS = "print('step: eager', flush=True)\nimport time\ntime.sleep(60)"
ENDS = "print('step: eager', flush=True)"


def test_once_one_has_hung_the_others_are_given_less_time(tmp_path: Path) -> None:
    with Prober((), tmp_path, limit_s=10) as prober:
        assert prober.try_script(ENDS) is None
        assert str(prober.try_script(HANGS)) == "hang in step eager"
        begun = time.monotonic()
        assert str(prober.try_script(HANGS)) == "hang in step eager"
        assert time.monotonic() - begun < 8


def test_what_is_cut_off_as_time_is_up_did_not_hang(tmp_path: Path) -> None:
    with Prober((), tmp_path, limit_s=30, until=time.monotonic() + 12) as prober:
        assert prober.try_script(HANGS) is None
        assert prober.try_script(ENDS) is None and prober.tried == 1
