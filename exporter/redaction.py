"""Make text fit to be shown: without what looks like a secret, characters that deceive, and endless parts."""

import re
from collections.abc import Collection, Iterable
from itertools import islice

_NAMES = "signature|credential|token|secret|password|key"
_FIELDS = "secret_access_key|access_key_secret|client_secret|session_token|api_key|password"
_QUOTE = r"(?:\\?[\"'])?"  # plain, or escaped as in a JSON string
# The form of a secret, what to put in its place, and a part of every such text: most lines lack it, and then
# need not be searched.
_SECRETS = (
    (re.compile(r"(?<=://)[^/\s@\"']{1,1024}@"), "…@", "@"),  # user and password of a URI
    (re.compile(rf"(?i)([?&][\w-]{{0,64}}(?:{_NAMES})[\w-]{{0,64}}=)[^&\s\"'\\]+"), r"\1…", "="),
    (re.compile(r"(?i)([?&]sig=)[^&\s\"'\\]+"), r"\1…", "="),  # of Azure's shared access signatures
    (re.compile(r"(?i)\b((?:Account|SharedAccess)(?:Key|Signature)=)[^;\s\"']+"), r"\1…", "="),
    (re.compile(r"whsec_[\w+/=-]+"), "whsec_…", "whsec_"),
    (re.compile(r"(?i)(bearer\s{1,9})[\w.~+/=-]+"), r"\1…", ""),
    (
        re.compile(
            rf"(?i)\b((?:aws_|oss_|azure_|alibaba_cloud_)?(?:{_FIELDS}){_QUOTE}\s{{0,9}}[=:]\s{{0,9}}{_QUOTE})[^\s\"',\\]+"
        ),
        r"\1…",
        "",
    ),
)
_SHORTEST = 8  # characters of a known secret; a shorter one would blot out words

MOST_NAMED = 20  # names of a list in a message, mistakes of a request in its answer
_LONGEST_NAME = 200  # characters

# Control characters other than tab and newline, those that turn the direction of text, lone surrogates.
_DECEIVING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def redact(text: str, known: Iterable[str] = ()) -> str:
    """Replace passwords, tokens, signatures and the `known` secrets in a text by "…"."""
    for secret in known:
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, "…")
    for pattern, instead, part in _SECRETS:
        if part in text:
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


def shorten(text: str, most: int) -> str:
    """Return the text, or its first `most` characters and how many there are beside them."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def shorten_inside(text: str, most: int) -> str:
    """Return the text, or `most` characters of both ends: a sentence may go on after a long value."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end]}… ({len(text) - most:,} more characters) …{text[-end:]}"


def name_first(names: Collection[str], *, most: int = MOST_NAMED) -> str:
    """Return the first names as a list in a sentence, and how many more there are."""
    shown = ", ".join(shorten(name, _LONGEST_NAME) for name in islice(names, most))
    return f"{shown} and {len(names) - most:,} more" if len(names) > most else shown
