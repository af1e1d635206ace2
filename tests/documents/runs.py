"""Which test runs the commands of which page, and how it runs them."""

import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.architecture.tree import ROOT
from tests.documents.markdown import blocks_of
from tests.documents.not_run import reason_against
from tests.documents.shell import commands_of

SHELLS = ("bash", "console")

# Page -> the test that runs all of its commands but those of not_run.py.
RUN_BY: Mapping[str, str] = {
    "README.md": "tests/documents/test_followed_pages.py",
    "deploy/helm/slipway/README.md": "tests/documents/test_deploy_pages.py",
    "docs/calls.md": "tests/documents/test_service_pages.py",
    "docs/comparing-releases.md": "tests/documents/test_followed_pages.py",
    "docs/loader.md": "tests/documents/test_followed_pages.py",
    "docs/own-module.md": "tests/e2e/test_own_module.py",
    "docs/quickstart.md": "tests/documents/test_deploy_pages.py",
    "docs/serving.md": "tests/documents/test_followed_pages.py",
    "docs/webhooks.md": "tests/documents/test_service_pages.py",
    "docs/when-an-export-fails.md": "tests/e2e/test_failing_example.py",
    "examples/own_family/README.md": "tests/e2e/test_own_family.py",
}

_PYTHON = shlex.quote(sys.executable)
# Programs of this environment, which need not be on the PATH. curl ends with an error if the service refuses.
_PROGRAMS = f"""
export PYTHONPATH={shlex.quote(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}
slipway() {{ {_PYTHON} -m cli.main "$@"; }}
python() {{ {_PYTHON} "$@"; }}
python3() {{ {_PYTHON} "$@"; }}
helm() {{ {shlex.quote(str(Path(sys.executable).parent / "helm"))} "$@"; }}
curl() {{ command curl --fail-with-body --show-error "$@"; }}
"""


@dataclass(frozen=True)
class Ran:
    """A command as the page has it, its exit code (-1: it was not reached), and what it wrote."""

    command: str
    code: int
    output: str

    def __str__(self) -> str:
        return f"{self.command}\n  ended with {self.code}: {self.output}"


def commands_to_run(page: str) -> list[str]:
    """Return the commands of a page in their order, without those that no test runs."""
    return [
        command
        for block in blocks_of(page, (ROOT / page).read_text())
        if block.language in SHELLS
        for command in commands_of(block)
        if reason_against(block, command) is None
    ]


def follow(
    commands: Sequence[str],
    folder: Path,
    *,
    places: Mapping[str, str] | None = None,
    before: Mapping[str, str] | None = None,
    first: str = "",
    seconds: float = 300,
) -> list[Ran]:
    """Run commands in one shell, in `folder`, and return how each ended.

    `places` replaces what a page cannot know, such as the URL of a service; `first` is run before all
    commands, and lines of `before` come before the command with this beginning.
    """
    lines = [_PROGRAMS, first]
    files = [(folder / f"output-{number}.txt", folder / f".code-{number}") for number in range(len(commands))]
    for command, (output, code) in zip(commands, files, strict=True):
        lines += [hook for begin, hook in (before or {}).items() if command.startswith(begin)]
        typed = output.with_suffix(".sh")
        typed.write_text(f"{_replace(command, places or {})}\n")
        lines.append(f". {_quoted(typed)} >{_quoted(output)} 2>&1 </dev/null; echo $? >{_quoted(code)}")
    subprocess.run(["bash", "-c", "\n".join(lines)], cwd=folder, check=False, timeout=seconds)
    return [
        Ran(command, int(code.read_text()), output.read_text()) if code.exists() else Ran(command, -1, "")
        for command, (output, code) in zip(commands, files, strict=True)
    ]


def _replace(text: str, places: Mapping[str, str]) -> str:
    for there, here in places.items():
        text = text.replace(there, here)
    return text


def _quoted(file: Path) -> str:
    return shlex.quote(str(file))
