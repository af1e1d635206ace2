"""No kind of hostile input runs code, hangs, or takes the memory; each is refused in our own words."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.hostile.kinds import GROWTH, SECONDS, Outcome, load, table

KINDS = load()
AT_LEAST = 25


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    command = [sys.executable, "-m", "tests.hostile.kinds", "--run", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=400)
    assert run.returncode == 0, run.stderr[-2000:]
    return {name: Outcome(**outcome) for name, outcome in json.loads(run.stdout).items()}


@pytest.mark.parametrize("name", KINDS)
def test_it_does_no_harm(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert not outcome.ran, "its code was run"
    assert outcome.ended == KINDS[name].ends, outcome.said
    assert outcome.seconds < SECONDS and outcome.grown < GROWTH
    assert "\x1b" not in outcome.said and "\u202e" not in outcome.said


def test_there_are_enough_kinds_and_the_document_lists_them() -> None:
    assert len(KINDS) >= AT_LEAST
    assert table() in (ROOT / "docs" / "hostile-input.md").read_text(), "run python -m tests.hostile.kinds"


def test_a_canary_would_be_seen(tmp_path: Path) -> None:
    """The command of these attacks is a real one."""
    import pickle

    from tests.hostile.checkpoints import Runs
    from tests.hostile.kinds import CANARY

    pickle.loads(pickle.dumps(Runs(tmp_path)))
    assert (tmp_path / CANARY).exists()
