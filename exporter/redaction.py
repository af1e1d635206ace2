"""Text that may be shown: without what looks like a secret, and without characters that deceive a reader."""

import re
from collections.abc import Iterable

_NAMES = "signature|credential|token|secret|password|key"
_FIELDS = "secret_access_key|session_token|api_key|password"
_QUOTE = r"(?:\\?[\"'])?"  # as it stands in a text, or in that text as JSON
_SECRETS = (
    (re.compile(r"(?<=://)[^/\s@\"']{1,1024}@"), "…@"),  # user and password of a URI
    (re.compile(rf"(?i)([?&][\w-]{{0,64}}(?:{_NAMES})[\w-]{{0,64}}=)[^&\s\"'\\]+"), r"\1…"),
    (re.compile(r"whsec_[\w+/=-]+"), "whsec_…"),
    (re.compile(r"(?i)(bearer\s{1,9})[\w.~+/=-]+"), r"\1…"),
    (
        re.compile(rf"(?i)\b((?:aws_)?(?:{_FIELDS}){_QUOTE}\s{{0,9}}[=:]\s{{0,9}}{_QUOTE})[^\s\"',\\]+"),
        r"\1…",
    ),
)
_SHORTEST = 8  # characters of a known secret; a shorter one would blot out words

# Control characters other than tab and newline, those that turn the direction of text, lone surrogates.
_DECEIVING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """The text without what looks like a password, a token or a signature, and without the `known` ones."""
    for secret in known:
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, "…")
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def visible(text: str) -> str:
    """The text with every character written out by its number that could hide or reorder others."""
    return _DECEIVING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def deceives(text: str) -> bool:
    """Whether a reader would not see the text as it is."""
    return _DECEIVING.search(text) is not None


def shown(text: str, known: Iterable[str] = ()) -> str:
    """Text for people: redacted, and with every character visible."""
    return visible(redacted(text, known))
