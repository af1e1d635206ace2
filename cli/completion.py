"""`slipway completion`: a script by which a shell completes commands, options and their values."""

import argparse
from collections.abc import Iterator
from functools import partial

_SHELLS = ("bash", "zsh")
_FUNCTION = """\
_slipway() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command=slipway word words
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$command $word" in
            {commands}) command="$command $word" ;;
        esac
    done
    case "$command $previous" in
{values}
        *) case "$command" in
{words}
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _slipway slipway
"""
_OF_BASH = "autoload -Uz bashcompinit && bashcompinit\n"  # zsh's reading of scripts for bash


def add_command(
    subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]", parser: argparse.ArgumentParser
) -> None:
    """Add `completion`, which describes all commands of `parser`."""
    completion = subparsers.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Print a script by which bash or zsh completes commands, options and their values; where "
        "neither fits, names of files. Put the example into ~/.bashrc or ~/.zshrc.",
        epilog='example: eval "$(slipway completion bash)"',
    )
    completion.add_argument("shell", choices=_SHELLS, help="the shell that reads the script")
    completion.set_defaults(run=partial(run, parser))


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(script_of(parser, arguments.shell), end="")
    return 0


def script_of(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script that completes the commands of a parser."""
    found = dict(_commands("slipway", parser))
    script = _FUNCTION.format(
        commands="|".join(f'"{path}"' for path in found if path != "slipway"),
        values="\n".join(_values(path, each) for path, each in found.items() if _valued(each)),
        words="\n".join(
            f'            "{path}") words="{" ".join(_words(each))}" ;;' for path, each in found.items()
        ),
    )
    return (_OF_BASH if shell == "zsh" else "") + script


def _commands(path: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield every command with the words that name it, as "slipway triggers list"."""
    yield path, parser
    for action in parser._actions:  # noqa: SLF001  argparse has no other way to its options
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  the same
            for name, each in action.choices.items():
                yield from _commands(f"{path} {name}", each)


def _valued(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options that take a value."""
    return [each for each in parser._actions if each.option_strings and each.nargs != 0]  # noqa: SLF001  the same


def _values(path: str, parser: argparse.ArgumentParser) -> str:
    """Return a line for each option: its choices; an option without any takes files."""
    lines = []
    for option in _valued(parser):
        names = "|".join(f'"{path} {name}"' for name in option.option_strings)
        lines.append(f'        {names}) words="{" ".join(map(str, option.choices or ()))}" ;;')
    return "\n".join(lines)


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the commands, options and arguments that a command has names for."""
    for action in parser._actions:  # noqa: SLF001  the same
        yield from action.option_strings or map(str, action.choices or ())
