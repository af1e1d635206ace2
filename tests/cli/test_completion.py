"""`slipway completion`: what a real bash proposes with the script."""

import subprocess

import pytest

from cli.completion import script_of
from cli.main import build_parser

ASK = """
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_slipway; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def proposed(words: str, shell: str = "bash") -> set[str]:
    script = script_of(build_parser(), shell).removeprefix("autoload -Uz bashcompinit && bashcompinit\n")
    asked = subprocess.run(
        ["bash", "--norc", "-c", script + ASK.format(words=words)], capture_output=True, text=True, check=True
    )
    assert asked.stderr == ""
    return set(asked.stdout.split())


@pytest.mark.parametrize(
    ("words", "proposals"),
    [
        ("slipway ver", {"verify"}),
        ("slipway triggers ''", {"list", "show", "put", "delete", "test", "-h", "--help"}),
        ("slipway list --state can", {"cancelled"}),
        ("slipway verify --fi", {"--files-only"}),
        ("slipway predict --tower us", {"user"}),
        ("slipway triggers list --li", {"--limit"}),
        ("slipway submit --config pipe", set()),  # bash goes on with names of files
        ("slipway completion z", {"zsh"}),
    ],
)
def test_bash_completes(words: str, proposals: set[str]) -> None:
    assert proposed(words) == proposals


def test_every_command_is_proposed() -> None:
    assert {"export", "submit", "verify", "models", "up"} < proposed("slipway ''")


def test_zsh_reads_the_same_script() -> None:
    assert script_of(build_parser(), "zsh").startswith("autoload -Uz bashcompinit && bashcompinit\n")
    assert proposed("slipway ro", "zsh") == {"roll-back"}
