"""One export on two hosts, two ranks each, is the export of one; whatever ends on one ends on both."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from cli.main import main
from exporter.artifact.read import read_manifest
from exporter.manifest import TowerEntry
from tests.e2e.conftest import FIXTURES, export_command
from tests.e2e.two_hosts import Command, TwoHosts, two_hosts
from tests.faults.programs import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

SHARDED = ("--mode", "two_stage", "--tables", "sharded", "--ranks", "4", "--max-batch-size", "16")
ROWS = {"item": FIXTURES / "data" / "items.parquet", "user": FIXTURES / "data" / "train.parquet"}


@pytest.fixture
def hosts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TwoHosts]:
    logs = tmp_path / "logs"
    logs.mkdir()
    with two_hosts(logs, loopback=request.config.getoption("--loopback")) as given:
        yield given


def command(output: Path) -> list[str]:
    return [*export_command("hstu_match", output), *SHARDED]


def artifact_in(output: Path) -> str:
    [folder] = output.iterdir()
    return str(folder)


def files_of(artifact: str) -> dict[str, list[str]]:
    """The digests of what each tower's ranks wrote."""

    def shards(tower: TowerEntry) -> list[str]:
        assert tower.tables is not None
        return [shard.sha256 for shard in tower.tables.shards]

    return {tower.name: shards(tower) for tower in read_manifest(artifact).towers}


def predict(artifact: str, tower: str, output: Path) -> dict[str, list[object]]:
    options = ["--tower", tower, "--input", str(ROWS[tower]), "--output", str(output)]
    assert main(["predict", "--outputs-only", "--artifact", artifact, *options]) == 0
    columns: dict[str, list[object]] = pq.read_table(output).to_pydict()
    return columns


def test_two_hosts_make_what_one_makes(hosts: TwoHosts, tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    assert main(command(alone)) == 0
    both = [
        hosts.start(host, [*command(together), *(meeting)])
        for meeting in [hosts.meeting()]
        for host in (0, 1)
    ]
    assert [each.status(300) for each in both] == [0, 0], [each.text() for each in both]
    one, two = artifact_in(alone), artifact_in(together)
    assert all(f"{two}/manifest.json" in each.text() for each in both)
    assert files_of(one) == files_of(two)
    for tower in ROWS:
        apart = tmp_path / f"{tower}-1.parquet", tmp_path / f"{tower}-2.parquet"
        assert predict(one, tower, apart[0]) == predict(two, tower, apart[1])


def rank_of(host: Command) -> psutil.Process | None:
    """A rank on a host, once there is one."""
    family = psutil.Process(host.process.pid).children(recursive=True)
    return next((each for each in family if each.name().startswith("rank ")), None)


def test_a_killed_rank_ends_the_export_on_both_hosts(hosts: TwoHosts, tmp_path: Path) -> None:
    output, meeting = tmp_path / "out", hosts.meeting()
    both = [hosts.start(host, [*command(output), *meeting, "--code-cache", "off"]) for host in (0, 1)]
    wait_until("ranks are at work on the second host", lambda: rank_of(both[1]), 120)
    killed = rank_of(both[1])
    assert killed is not None
    name = killed.name()
    os.kill(killed.pid, signal.SIGKILL)
    assert [each.status(60) for each in both] == [1, 1]
    for each in both:
        assert f"{name} was killed by SIGKILL" in each.text().replace("\n", " ")
    assert not output.exists() or not list(output.rglob("*.*"))


def test_a_host_that_is_told_to_end_ends_the_other(hosts: TwoHosts, tmp_path: Path) -> None:
    meeting = hosts.meeting()
    both = [
        hosts.start(host, [*command(tmp_path / "out"), *meeting, "--code-cache", "off"]) for host in (0, 1)
    ]
    wait_until("ranks are at work on the first host", lambda: rank_of(both[0]), 120)
    both[0].process.terminate()
    assert both[1].status(60) == 1
    assert "received a signal to stop" in both[1].text()


def test_a_host_that_never_comes_is_an_error_after_the_limit(hosts: TwoHosts, tmp_path: Path) -> None:
    waits = hosts.start(0, [*command(tmp_path / "out"), *hosts.meeting(), "--rdzv-timeout", "2"])
    assert waits.status(120) == 1
    assert "host_missing" in waits.text() and "not all of 2 hosts came to" in waits.text()


def test_hosts_that_were_asked_for_different_exports_say_so(hosts: TwoHosts, tmp_path: Path) -> None:
    meeting = hosts.meeting()
    first = hosts.start(0, [*command(tmp_path / "out"), *meeting])
    other = hosts.start(1, [*command(tmp_path / "out"), *meeting, "--tower", "item"])
    assert [first.status(120), other.status(120)] == [1, 1]
    assert "was asked for another export" in first.text() and "was asked for another export" in other.text()


def test_a_place_that_nobody_has_is_an_error_at_once(hosts: TwoHosts, tmp_path: Path) -> None:
    nowhere = ("--nodes", "2", "--rdzv", "nobody.invalid:29400")
    lost = hosts.start(0, [*command(tmp_path / "out"), *nowhere])
    assert lost.status(120) == 1
    assert "host_missing" in lost.text() and "nobody.invalid:29400 cannot be reached" in lost.text()
