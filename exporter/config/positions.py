"""Lines of a pipeline config's text that errors about its content name.

protobuf keeps no positions, so the text is scanned again once there is an error to place.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from google.protobuf.text_format import ParseError, Tokenizer

from exporter.errors import InvalidPipelineConfig

_STEP = re.compile(r"(\w+)(?:\[(\d+)\])?")
_CUT = re.compile(r"[.,]|$")
# Fields whose text names the message that they stand in.
_NAMES = frozenset(
    ("feature_name", "group_name", "input", "name", "sequence_name", "task_name", "tower_name")
)
_BRACKETS = {"{": "}", "<": ">"}


@contextmanager
def errors_with_lines(text: str, where: str) -> Iterator[None]:
    """Add the line to an InvalidPipelineConfig about the content of `text`, where it has none yet.

    Args:
        text: the config; it parses.
        where: name of the text in errors.
    """
    try:
        yield
    except InvalidPipelineConfig as error:
        has_line = re.match(re.escape(where) + r":\d", error.where)
        line = (
            None
            if has_line
            else line_of(text, error.where.removeprefix(f"{where}: "), error.message, error.hint)
        )
        if line is not None:
            error.place(f"{where}:{line}", instead_of=where)
        raise


def line_of(text: str, place: str, problem: str = "", advice: str = "") -> int | None:
    """Return the line, counted from 1, of a place as errors write it; None if nothing of it is found.

    Args:
        text: the config; it parses.
        place: a path ("model_config.dssm.user_tower"), a path with the name of an entry
            ("feature_configs: user_id"), or these with a further path in that entry (", features[0]"). Of a
            path that is there only in part, as that of a missing field, the last part that is there counts.
        problem: the error's message; its line is that of a field inside the place that the message names.
        advice: the error's hint, which may name the field instead.
    """
    try:
        root = _Node.scanned(text)
    except ParseError:  # the text was not checked before
        return None
    found = _find(root, place)
    return None if found is root else _named_in(found, problem, advice).line


@dataclass(eq=False)
class _Node:
    """A field as the text has it: its line, its text if it is a scalar, and its fields if it is a message."""

    name: str
    line: int
    text: str = ""
    fields: "list[_Node]" = field(default_factory=list)

    @classmethod
    def scanned(cls, text: str) -> Self:
        tokens = Tokenizer(text.split("\n"))
        root = cls(name="", line=0)
        root.fields.extend(_scan_fields(tokens, end=""))
        return root

    def named(self, name: str) -> "list[_Node]":
        return [each for each in self.fields if each.name == name]

    def is_called(self, label: str) -> bool:
        return any(each.name in _NAMES and each.text == label for each in self.fields)


def _scan_fields(tokens: Tokenizer, end: str) -> Iterator[_Node]:
    """Yield the fields up to the end of their message."""
    while not (tokens.AtEnd() or (end and tokens.TryConsume(end))):
        line = _line(tokens)
        name = tokens.token
        tokens.NextToken()
        if name == "[":  # the name of an extension
            while not tokens.TryConsume("]"):
                tokens.NextToken()
        tokens.TryConsume(":")
        if tokens.TryConsume("["):
            while not tokens.TryConsume("]"):
                yield _scan_value(tokens, name, _line(tokens))
                tokens.TryConsume(",")
        else:
            yield _scan_value(tokens, name, line)
        tokens.TryConsume(",") or tokens.TryConsume(";")


def _line(tokens: Tokenizer) -> int:
    """Return the line of the next token."""
    line = tokens.ParseError("").GetLine()  # type: ignore[arg-type]  # the stub has another parameter
    assert line is not None
    return line


def _scan_value(tokens: Tokenizer, name: str, line: int) -> _Node:
    for opening, closing in _BRACKETS.items():
        if tokens.TryConsume(opening):
            return _Node(name=name, line=line, fields=list(_scan_fields(tokens, closing)))
    if tokens.token[:1] in {'"', "'"}:
        return _Node(name=name, line=line, text=tokens.ConsumeString())
    tokens.TryConsume("-")
    tokens.NextToken()
    return _Node(name=name, line=line)


def _find(node: _Node, place: str) -> _Node:
    """Return the field that a place names inside a message, or the last one of its path that is there."""
    step = _STEP.match(place)
    if step is None:
        return node
    name, index, rest = step[1], int(step[2] or 0), place[step.end() :]
    same = node.named(name) or _shallowest(node.fields, name)
    if len(same) <= index:
        return node
    if not rest.startswith(": "):
        return _find_inside(same[index], rest)
    label = rest.removeprefix(": ").removeprefix("task ")
    for cut in reversed([cut.start() for cut in _CUT.finditer(label)]):
        entry = _entry_called(same, label[:cut])
        if entry is not None:
            return _find_inside(entry, label[cut:])
    return node if len(same) > 1 else same[0]


def _find_inside(node: _Node, rest: str) -> _Node:
    """Follow the rest of a place: ".field" is a field of the message, ", field" one anywhere below it."""
    if rest.startswith(", "):
        return _find(node, rest.removeprefix(", "))
    step = _STEP.match(rest.removeprefix("."))
    if not rest.startswith(".") or step is None or not node.named(step[1]):
        return node
    return _find(node, rest.removeprefix("."))


def _named_in(node: _Node, problem: str, advice: str) -> _Node:
    """Return the field inside the message that the error is about, or the message itself.

    It is the first whose text is a word of the problem, as the name of a missing feature is; else the first
    of the message's own whose name is a word of the problem, or of the advice.
    """
    words_of_problem, words_of_advice = (set(re.findall(r"\w+", text)) for text in (problem, advice))
    own = [each for each in node.fields if each.name not in _NAMES]
    texts = words_of_problem - {each.text for each in node.fields if each.name in _NAMES}
    named = next((each for each in _breadth_first(own) if each.text in texts), None)
    for words in (words_of_problem, words_of_advice):
        named = named or next((each for each in own if each.name in words), None)
    return named or node


def _shallowest(nodes: Sequence[_Node], name: str) -> list[_Node]:
    """Return the fields of this name of the first message, breadth first, that has any."""
    return next((found for node in _breadth_first(nodes) if (found := node.named(name))), [])


def _entry_called(nodes: Sequence[_Node], label: str) -> _Node | None:
    """Return the first of the messages that is called so, or that has what is called so directly below.

    A feature inside a sequence_feature is called by both names: `<sequence_name>__<feature_name>`.
    """
    for node in _breadth_first(nodes):
        if node.is_called(label):
            return node
    for node in _breadth_first(nodes):
        for prefix in node.named("sequence_name"):
            if prefix.text and label.startswith(f"{prefix.text}_"):
                found = _entry_called(node.fields, label.removeprefix(prefix.text).lstrip("_"))
                if found is not None:
                    return found
    return None


def _breadth_first(nodes: Iterable[_Node]) -> Iterator[_Node]:
    waiting = deque(nodes)
    while waiting:
        node = waiting.popleft()
        yield node
        waiting.extend(node.fields)
