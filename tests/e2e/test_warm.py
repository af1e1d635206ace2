"""An export of an architecture exported before takes its code over, and says so.

Its outputs with new weights are compared with eager by its own gate, at every size.
"""

from pathlib import Path

import pytest

import cli.export
from cli.main import main
from exporter.artifact.read import read_manifest
from exporter.distributed.rendezvous import Rendezvous
from processes.guarded_process import GuardedProcess
from tests.e2e.conftest import Export, export_command, new_weights
from worker.attempt.workspace import Workspace
from worker.launch import RanksLauncher
from worker.resident.client import ForkedGuard

pytestmark = pytest.mark.slow


def test_the_second_export_is_warm_in_manifest_and_on_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--tower", "item", "--code-cache", str(tmp_path / "code")]
    for name in ("first", "second"):
        assert main([*export_command("hstu_match", tmp_path / name), *command]) == 0
    [first], [artifact] = ((tmp_path / name).iterdir() for name in ("first", "second"))
    towers = [*read_manifest(str(first)).towers, *read_manifest(str(artifact)).towers]
    assert [(tower.code, tower.reused) for tower in towers] == [("cold", None), ("warm", "request")]
    assert towers[0].code_note == "the code cache has no code of this request"
    assert main(["inspect", "--full", str(artifact)]) == 0
    assert "item tower: warm, neither traced nor compiled" in capsys.readouterr().out


def test_a_ranking_model_with_new_weights_is_warm(
    artifact_of: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its attempt is a fork of the one process that has imported torch, which is gone at the end."""
    guards: list[int] = []

    class Launcher(RanksLauncher):
        def start(
            self, workspace: Workspace, *, ranks: int, place: Rendezvous | None = None
        ) -> GuardedProcess:
            process = super().start(workspace, ranks=ranks, place=place)
            assert isinstance(process.guard, ForkedGuard) and self._resident is not None
            assert self._resident.pid is not None
            guards.extend((process.guard.pid, self._resident.pid))
            return process

    weights = new_weights("dlrm_hstu", tmp_path)
    [first] = read_manifest(artifact_of("dlrm_hstu")).towers
    monkeypatch.setattr(cli.export, "RanksLauncher", Launcher)
    command = [*export_command("dlrm_hstu", tmp_path / "out"), "--checkpoint", str(weights)]
    assert main(command) == 0
    assert len(guards) == 2 and not any(Path(f"/proc/{pid}").exists() for pid in guards)
    [artifact] = (tmp_path / "out").iterdir()
    [tower] = read_manifest(str(artifact)).towers
    assert (tower.code, tower.reused) == ("warm", "request")
    assert tower.package.sha256 != first.package.sha256
    assert {case.name for case in tower.verified.cases} == {case.name for case in first.verified.cases}


def test_both_packages_of_two_stages_take_new_weights(two_stage_of: Export, tmp_path: Path) -> None:
    """Of both towers, as before: one alone would have more threads, which are part of the code."""
    weights = new_weights("hstu_match", tmp_path)
    before = read_manifest(two_stage_of("hstu_match")).towers
    command = [*export_command("hstu_match", tmp_path / "out"), "--mode", "two_stage"]
    assert main([*command, "--checkpoint", str(weights)]) == 0
    [artifact] = (tmp_path / "out").iterdir()
    for first, tower in zip(before, read_manifest(str(artifact)).towers, strict=True):
        assert (tower.code, tower.reused) == ("warm", "request")
        assert first.sparse is not None and tower.sparse is not None
        assert tower.package.sha256 != first.package.sha256
        assert tower.sparse.package.sha256 != first.sparse.package.sha256
