"""Blocks of code, headings and links of Markdown files."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"(?ms)^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$")
_INDENTED = re.compile(r"\n\n {4}(?=\S)")
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)
_LINK = re.compile(r"(?<!`)!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^\s)>]+)>?(?: \"[^\"]*\")?\)")
_CODE = re.compile(r"`[^`\n]*`")


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    page: str  # below the root
    line: int  # of its first line of code
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        code = re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        yield Block(page, text.count("\n", 0, match.start()) + 2, match["language"], code)


def prose_of(text: str) -> str:
    """Return the text with its fenced blocks emptied; lines keep their numbers."""
    return _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)


def indented_lines(text: str) -> list[int]:
    """Return the lines at which code begins that is indented and not fenced."""
    prose = prose_of(text)
    return [prose.count("\n", 0, match.start()) + 3 for match in _INDENTED.finditer(prose)]


def anchors_of(text: str) -> set[str]:
    """Return the anchors that GitHub and Sphinx give to the headings."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose_of(text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = sum(1 for each in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", each))
        found.add(f"{slug}-{number}" if number else slug)
    return found


def links_of(text: str) -> list[str]:
    """Return the targets of links and pictures."""
    return _LINK.findall(_CODE.sub("`code`", prose_of(text)))
