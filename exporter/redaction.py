"""Make text fit to be shown: remove what looks like a secret and characters that deceive a reader."""

import re
from collections.abc import Iterable

_NAMES = "signature|credential|token|secret|password|key"
_FIELDS = "secret_access_key|session_token|api_key|password"
_QUOTE = r"(?:\\?[\"'])?"  # plain, or escaped as in a JSON string
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


def redact(text: str, known: Iterable[str] = ()) -> str:
    """Replace passwords, tokens, signatures and the `known` secrets in a text by "…"."""
    for secret in known:
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, "…")
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


def escape_deceptive(text: str) -> str:
    """Write every character that could hide or reorder others as its escape sequence."""
    return _DECEIVING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def deceives(text: str) -> bool:
    """Return whether a text has characters that hide or reorder others."""
    return _DECEIVING.search(text) is not None


def redact_and_escape(text: str, known: Iterable[str] = ()) -> str:
    """Return the text as people may see it: without secrets, and with deceptive characters escaped."""
    return escape_deceptive(redact(text, known))
