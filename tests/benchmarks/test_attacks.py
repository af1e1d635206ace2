"""The attacks' command: it runs what lies in the folder, and each attack is described."""

import re
from pathlib import Path

import pytest

import benchmarks
from benchmarks.attacks.__main__ import attack_names, main

_README = Path(benchmarks.__path__[0]) / "README.md"


def test_every_attack_has_its_line_among_the_benchmarks() -> None:
    _, _, section = _README.read_text().partition("\n## Attacks\n")
    described = re.findall(r"^\| `(\w+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert sorted(described) == attack_names()


def test_an_attack_that_nobody_knows_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["attacks", "flod"])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "there is no attack flod" in capsys.readouterr().err
