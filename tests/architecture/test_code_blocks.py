"""Code of the documents: a block is of the language that it names, and a command is run or says why not."""

import argparse
import ast
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from cli.errors import InvalidCommand
from cli.main import build_parser
from exporter.spec import ExportSpec
from tests.architecture.tree import PROGRAMS, ROOT
from tests.documents.markdown import Block, blocks_of, indented_lines, prose_of
from tests.documents.not_run import NOT_RUN, reason_against
from tests.documents.runs import RUN_BY, SHELLS
from tests.documents.shell import commands_of, programs_of

PAGES = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "deploy/helm/slipway/README.md",
    "slipway/README.md",
    "tests/README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "examples").glob("*/README.md")),
]
READ: Mapping[str, Callable[[str], object]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}
LANGUAGES = {*SHELLS, *READ, "cpp", "dockerfile", "python", "text"}
# Programs of the machine, of which the documents are believed.
OTHERS = {".", "cd", "cmake", "docker", "eval", "export", "git", "kubectl", "openssl", "pip", "sed"}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
API = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]
URL = re.compile(r"(?:http://)?(?:\$api|127\.0\.0\.1:8080|localhost:8080)(/[^?#]*)?")


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


BLOCKS = [block for page in PAGES for block in blocks_of(page, text_of(page))]
COMMANDS = [
    (block, command) for block in BLOCKS if block.language in SHELLS for command in commands_of(block)
]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_fenced_and_names_its_language(page: str) -> None:
    assert indented_lines(text_of(page)) == [], "write ```bash, ```python, … around it"
    assert [str(each) for each in BLOCKS if each.page == page and each.language not in LANGUAGES] == []


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.language == "python"], ids=str)
def test_python_compiles_and_finds_what_it_imports(block: Block) -> None:
    tree = ast.parse(block.text)
    assert [name for name in _imported(tree) if not _is_there(*name)] == []


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.language in READ], ids=str)
def test_data_can_be_read(block: Block) -> None:
    assert READ[block.language](block.text)


def test_fields_of_a_request_are_those_of_the_api() -> None:
    """Blocks of docs/calls.md are parts of a request's body."""
    parts = [each for each in BLOCKS if (each.page, each.language) == ("docs/calls.md", "json")]
    read = [json.loads(each.text) for each in parts]
    assert read and {name for body in read for name in body} - ExportSpec.model_fields.keys() == set()


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=map(str, range(len(COMMANDS))))
def test_a_command_is_one_that_there_is(block: Block, command: str) -> None:
    for words in programs_of(command):
        assert (wrong := _what_is_wrong(words)) is None, f"{block}: {command}: {wrong}"


def test_every_command_is_run_or_says_why_not() -> None:
    """A page of RUN_BY has all its commands run that NOT_RUN does not name."""
    neither = {
        f"{block}: {command}"
        for block, command in COMMANDS
        if reason_against(block, command) is None and block.page not in RUN_BY
    }
    assert neither == set(), "name the page in RUN_BY and run it there, or the command in NOT_RUN"


def test_no_page_and_no_reason_is_left_over() -> None:
    run = {block.page for block, command in COMMANDS if reason_against(block, command) is None}
    assert RUN_BY.keys() - run == set()
    assert [page for page, file in RUN_BY.items() if Path(page).name not in text_of(file)] == []
    known = [f"{block.page}: {command}" for block, command in COMMANDS]
    known += [command for _, command in COMMANDS]
    assert [begin for begin in NOT_RUN if not any(each.startswith(begin) for each in known)] == []


def test_the_page_of_commands_has_them_all() -> None:
    listed = re.findall(r"^\| `slipway ([a-z-]+)", text_of("docs/commands.md"), re.MULTILINE)
    assert sorted(listed) == sorted(_slipway_commands())


def test_options_that_are_named_in_passing_exist() -> None:
    """Such as `slipway export --nodes`."""
    commands = _slipway_commands()
    unknown = {
        f"{page}: {span}"
        for page in PAGES
        for span in re.findall(r"`(slipway [a-z][^`\n]*)`", prose_of(text_of(page)))
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)
        if option not in _options(commands.get(span.split()[1]))
    }
    assert unknown == set()


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        ("slipway watch JOB --urll x", "unrecognized"),
        ("slipway wach JOB", "invalid choice"),
        ("make no-such-target", "no target"),
        ("python -m benchmarks.no_such", "no module"),
        ("curl -s $api/no-such", "no call"),
        ("curl -s -X PATCH $api/exports", "no call"),
        ('cmake -DX="$(python -m no.such)"', "no module"),
        ("docker/no-such.sh", "no file"),
    ],
)
def test_a_wrong_command_is_told(command: str, wrong: str) -> None:
    assert any(wrong in (_what_is_wrong(words) or "") for words in programs_of(command))


def _what_is_wrong(words: list[str]) -> str | None:
    program, rest = words[0], words[1:]
    if judge := JUDGES.get(program):
        return judge(rest)
    if program in OTHERS or program.startswith("build/") or (ROOT / program).is_file():
        return None
    return f"no file {program}" if "/" in program else f"no program {program}"


def _python_error(words: list[str]) -> str | None:
    if words[0] != "-m":
        return None
    try:
        return None if find_spec(words[1]) else f"no module {words[1]}"
    except ModuleNotFoundError:  # of a package that it names
        return f"no module {words[1]}"


def _make_error(words: list[str]) -> str | None:
    target = next((word for word in words if "=" not in word and not word.startswith("-")), "help")
    return None if target in TARGETS else f"no target {target}"


def _helm_error(words: list[str]) -> str | None:
    return None if "deploy/helm/slipway" in words else "no chart of ours"


def _parse_error(words: list[str]) -> str | None:
    try:
        build_parser().parse_args(words)
    except InvalidCommand as error:
        return str(error)
    return None


def _call_error(words: list[str]) -> str | None:
    found = [match[1] or "/" for word in words if (match := URL.fullmatch(word.partition("?")[0]))]
    if not found:
        return None  # of another server
    has_body = any(word in ("-d", "--data", "--data-binary") for word in words)
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if has_body else "GET"
    steps = found[0].split("/")
    fitting = (path for path in API if _fits(path.split("/"), steps) and method.lower() in API[path])
    return None if any(fitting) else f"no call {method} {found[0]}"


def _fits(path: list[str], steps: list[str]) -> bool:
    """Whether steps are those of a path of the API, of which `{path}` may hold slashes."""
    if path[-1] == "{path}":
        steps = [*steps[: len(path) - 1], "rest"]
    return len(path) == len(steps) and all(
        there.startswith("{") or there == here for there, here in zip(path, steps, strict=True)
    )


JUDGES = {
    "slipway": _parse_error,
    "python": _python_error,
    "python3": _python_error,
    "make": _make_error,
    "curl": _call_error,
    "helm": _helm_error,
}


@cache
def _slipway_commands() -> dict[str, argparse.ArgumentParser]:
    actions = build_parser()._actions
    [found] = [each.choices for each in actions if isinstance(each, argparse._SubParsersAction)]
    return dict(found)


def _options(parser: argparse.ArgumentParser | None) -> set[str]:
    return set() if parser is None else set(parser._option_string_actions)


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


def _is_there(module: str, name: str) -> bool:
    """Whether a module exists and, if it is ours, defines the name; nothing is imported but parents."""
    root = module.partition(".")[0]
    if root not in PROGRAMS:
        return root == "own_family" or find_spec(root) is not None
    file = ROOT / module.replace(".", "/")
    source = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    return source.is_file() and (not name or name in _defined(source))


def _defined(source: Path) -> set[str]:
    found: set[str] = set()
    body = ast.parse(source.read_text()).body
    only_for_types = (node for each in body if isinstance(each, ast.If) for node in each.body)
    for node in (*body, *only_for_types):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return found
