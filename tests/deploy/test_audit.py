"""The audit of the pins: what is found, ignored or not looked up decides how it ends."""

import json
from pathlib import Path

import pytest

from deploy.audit import Audit, AuditFailed, judge, main, pinned, read_ignored, run_audit
from tests.architecture.tree import ROOT

FLAW = {
    "id": "GHSA-aaaa-bbbb-cccc",
    "aliases": ["CVE-2099-1"],
    "fix_versions": ["3.1.7"],
    "description": "a flaw\nof templates",
}
PINS = ["jinja2==3.1.6", "redis==7.0.0"]
WHOLE: list[dict[str, object]] = [
    {"name": "jinja2", "version": "3.1.6", "vulns": [FLAW]},
    {"name": "redis", "version": "7.0.0", "vulns": []},
]


def answering(folder: Path, dependencies: list[dict[str, object]]) -> list[str]:
    """A command that answers as pip-audit does: into the file that follows `--output`."""
    answer, program = folder / "answer.json", folder / "pip-audit"
    answer.write_text(json.dumps({"dependencies": dependencies, "fixes": []}))
    program.write_text(f'while [ "$1" != --output ]; do shift; done; cp {answer} "$2"; exit 1\n')
    return ["sh", str(program)]


def test_a_finding_is_told_with_its_names_and_its_fix(tmp_path: Path) -> None:
    assert judge(run_audit(answering(tmp_path, WHOLE), PINS), {}) == [
        "jinja2 3.1.6: GHSA-aaaa-bbbb-cccc, CVE-2099-1, fixed in 3.1.7: a flaw of templates"
    ]


@pytest.mark.parametrize("name", ["GHSA-aaaa-bbbb-cccc", "CVE-2099-1"])
def test_what_is_ignored_by_any_of_its_names_is_no_finding(name: str) -> None:
    assert judge(Audit.model_validate({"dependencies": WHOLE}), {name: "not reached"}) == []


def test_what_is_ignored_in_vain_is_told() -> None:
    lines = judge(Audit.model_validate({"dependencies": WHOLE[1:]}), {"CVE-2099-1": "not reached"})
    assert lines == ["CVE-2099-1 is ignored, but no pin has it: remove it"]


def test_a_service_that_knows_none_of_the_pins_is_no_pass(tmp_path: Path) -> None:
    skipped: list[dict[str, object]] = [
        {"name": "jinja2", "skip_reason": "Dependency not found on PyPI and could not be audited: jinja2"}
    ]
    with pytest.raises(AuditFailed, match=r"did not look up 2 of 2 pins \(jinja2, redis\)"):
        run_audit(answering(tmp_path, skipped), PINS)


def test_a_service_that_cannot_be_reached_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sh", "-c", "echo ConnectionError: api.osv.dev >&2; exit 1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "nothing can be said about the pins: pip-audit had no answer: ConnectionError: api"
    )


def test_every_list_of_pins_is_looked_up() -> None:
    names = {pin.partition("==")[0] for pin in pinned()}
    assert {"fastapi", "torch", "torchrec", "fbgemm-gpu-cpu", "fbgemm-gpu", "grpcio-tools", "mypy"} <= names
    assert any(name.startswith("nvidia-") for name in names)


def test_every_vulnerability_that_is_ignored_has_a_reason() -> None:
    ignored = read_ignored(ROOT / "requirements" / "ignored-vulnerabilities.toml")
    assert all(len(reason) > 20 for reason in ignored.values())
