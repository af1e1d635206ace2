"""Ask for known vulnerabilities of all that is pinned: `python -m deploy.audit PIP-AUDIT [OPTION ...]`.

pip-audit asks PyPI, or the service that its options name. It is content with a service that knows none of the
packages; here every pin must have been looked up. What requirements/ignored-vulnerabilities.toml names, each
with a reason, is no failure. The exit code is 1 if something was found, and 2 if nothing can be said.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

ROOT = Path(__file__).parents[1]
IGNORED = ROOT / "requirements" / "ignored-vulnerabilities.toml"
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==([\w.]+)", re.MULTILINE)  # without the suffix of a local build
_OTHER_SERVICE = "choose another service with ARGS='--vulnerability-service osv --osv-url URL'"
_SHOWN = 10  # names in one line of an error


class Vulnerability(BaseModel):
    """A known vulnerability, as pip-audit writes it."""

    id: str
    aliases: list[str]
    fix_versions: list[str]
    description: str

    @property
    def names(self) -> set[str]:
        """All ids by which it is known."""
        return {self.id, *self.aliases}


class Dependency(BaseModel):
    """A pin that was looked up, or a reason why it was not."""

    name: str
    version: str = ""
    vulns: list[Vulnerability] = []
    skip_reason: str = ""


class Audit(BaseModel):
    """The answer of pip-audit."""

    dependencies: list[Dependency]


class AuditFailed(Exception):
    """Nothing can be said about the pins."""


def pinned() -> list[str]:
    """Return every `name==version` of requirements/ and of what the images install, once."""
    files = [*(ROOT / "requirements").glob("*.txt"), *(ROOT / "docker" / "pins").glob("*.txt")]
    found = {match.groups() for file in files for match in _PIN.finditer(file.read_text())}
    return sorted(f"{re.sub('[-_.]+', '-', name).lower()}=={version}" for name, version in found)


def run_audit(command: Sequence[str], pins: Sequence[str]) -> Audit:
    """Look the pins up by `command`.

    Raises:
        AuditFailed: the service could not be reached, or some pins were not looked up.
    """
    with tempfile.TemporaryDirectory() as folder:
        wanted, answer = Path(folder, "pins.txt"), Path(folder, "answer.json")
        wanted.write_text("".join(f"{pin}\n" for pin in pins))
        options = ["--requirement", str(wanted), "--no-deps", "--disable-pip"]
        options += ["--format", "json", "--output", str(answer), "--progress-spinner", "off"]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        try:
            audit = Audit.model_validate_json(answer.read_bytes())
        except (OSError, ValidationError) as error:
            lines = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
            raise AuditFailed(f"pip-audit had no answer: {lines[-1]}; {_OTHER_SERVICE}") from error
    known = {each.name for each in audit.dependencies if not each.skip_reason}
    if unknown := sorted({pin.partition("==")[0] for pin in pins} - known):
        more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
        raise AuditFailed(
            f"the service did not look up {len(unknown)} of {len(pins)} pins "
            f"({', '.join(unknown[:_SHOWN])}{more}); {_OTHER_SERVICE}"
        )
    return audit


def judge(audit: Audit, ignored: Mapping[str, str]) -> list[str]:
    """Return a line for each vulnerability that is not ignored, and for each that is ignored in vain."""
    found = [(each, vulnerability) for each in audit.dependencies for vulnerability in each.vulns]
    lines = [_describe(each, flaw) for each, flaw in found if not flaw.names & ignored.keys()]
    names = {name for _, flaw in found for name in flaw.names}
    return lines + [f"{each} is ignored, but no pin has it: remove it" for each in ignored.keys() - names]


def _describe(dependency: Dependency, flaw: Vulnerability) -> str:
    ids = ", ".join([flaw.id, *flaw.aliases])
    fixed = f"fixed in {', '.join(flaw.fix_versions)}" if flaw.fix_versions else "not fixed yet"
    return (
        f"{dependency.name} {dependency.version}: {ids}, {fixed}: {' '.join(flaw.description.split())[:200]}"
    )


def read_ignored(file: Path = IGNORED) -> Mapping[str, str]:
    """Return the ids of vulnerabilities that are no failure, each with its reason."""
    ignored: Mapping[str, str] = tomllib.loads(file.read_text())
    return ignored


def main(command: Sequence[str]) -> int:
    """Print what is known against the pins, and return the exit code."""
    pins = pinned()
    try:
        lines = judge(run_audit(command, pins), read_ignored())
    except AuditFailed as error:
        sys.stderr.write(f"nothing can be said about the pins: {error}\n")
        return 2
    for line in [*lines, f"{len(pins)} pins were looked up; findings: {len(lines)}"]:
        sys.stdout.write(f"{line}\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
