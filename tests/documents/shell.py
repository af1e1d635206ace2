"""Commands of the documents' blocks, as a shell would read them."""

import re
import shlex
from collections.abc import Iterator

from tests.documents.markdown import Block

_SUBSTITUTED = re.compile(r"\$\(([^()]+)\)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_OPERATORS = re.compile(r"[;&|]+|[()]")


def commands_of(block: Block) -> Iterator[str]:
    """Yield the lines that a reader types; a line that does not end a quotation is continued by the next."""
    typed = block.text.splitlines()
    if block.language == "console":
        typed = [line.removeprefix("$ ") for line in typed if line.startswith("$ ")]
    begun = ""
    for line in typed:
        begun = f"{begun}\n{line}" if begun else line
        if _is_whole(begun):
            if shlex.split(begun, comments=True):
                yield begun
            begun = ""
    assert not begun, f"{block}: this command has no end: {begun}"


def programs_of(command: str) -> Iterator[list[str]]:
    """Yield the words of each program that a command starts, the program first."""
    for nested in _SUBSTITUTED.findall(command):
        yield from programs_of(nested)
    lexer = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.commenters = "#"
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if _OPERATORS.fullmatch(word):
            if words:
                yield words
            words = []
        elif words or not _ASSIGNMENT.fullmatch(word):
            words.append(word)


def _is_whole(text: str) -> bool:
    if text.endswith("\\"):
        return False
    try:
        shlex.split(text, comments=True)
    except ValueError:  # a quotation without its end
        return False
    return True
