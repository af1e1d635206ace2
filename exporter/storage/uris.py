"""Rules for the URIs of a request: sound ones only, and only below the prefixes that a key allows."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import unquote

from pydantic import AfterValidator, BeforeValidator, Field

from exporter.errors import InvalidPipelineConfig, InvalidSpec, UriNotAllowed
from exporter.redaction import deceives
from exporter.spec import ExportOptions, Frozen
from exporter.storage.open import ADVICE, is_known, local_path

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"^[^/]+://[^/?#]")
_USER = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*@")
_SECRETS = "signature|credential|token|secret|password|access_?key"
_SIGNED = re.compile(rf"(?i)[?&;](?:[\w-]{{0,64}}({_SECRETS})[\w-]{{0,64}}|sig)=")
_USER_IN_TEXT = re.compile(r"://[^/\s\"'@:]{0,256}:[^/\s\"'@]{1,256}@")
_KEPT = 1024  # sound URIs; a request names each several times, and others name it again
_LONGEST_NAME, _LONGEST_PATH = 255, 3900  # bytes on Linux; names of the artifact are added to the path
_SIGNS = "*?["  # characters that make a path a pattern
_NAMES = re.compile(r"[/\\]")  # between names, also for a server that takes a backslash for a slash

_INPUTS = ("config_uri", "checkpoint_uri", "item_input_uri", "sample_input_uri", "assets_uri")
GATE_ROWS = "release_gate.rows_uri"
_OUTPUT = "output_uri"
_FIELDS = (*_INPUTS, GATE_ROWS, _OUTPUT)
_ROWS = ("_input_uri", GATE_ROWS)  # ends of the names of the fields that hold rows


def _known_scheme(prefix: str) -> str:
    if not is_known(prefix):
        raise ValueError(f"a prefix leads to no store that Slipway knows; {ADVICE}")
    return prefix


UriPrefix = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_known_scheme)]


class UriRules(Frozen):
    """Prefixes that URIs must lie below: a bucket, a folder in one, or a local folder; null: anywhere."""

    inputs: tuple[UriPrefix, ...] | None = None
    outputs: tuple[UriPrefix, ...] | None = None

    def require(self, uris: "Iterable[NamedUri]") -> None:
        """Raise UriNotAllowed if one of the URIs lies below none of the prefixes."""
        if self.inputs is None and self.outputs is None:
            return
        for named in uris:
            if not self.allow(named):
                raise UriNotAllowed(
                    f"{named.field} names {named.uri}, which lies outside of what this key may "
                    f"{'write' if named.is_output else 'read'}",
                    where=named.field,
                )

    def allow(self, named: "NamedUri") -> bool:
        """Return whether the URI lies below one of the prefixes."""
        allowed = self.outputs if named.is_output else self.inputs
        return allowed is None or any(named.is_below(prefix) for prefix in allowed)


NO_RULES = UriRules()


def _split(given: object) -> object:
    return tuple(Path(part) for part in given.replace(",", " ").split()) if isinstance(given, str) else given


Folders = Annotated[tuple[Path, ...], BeforeValidator(_split)]  # in settings: a list separated by commas


@dataclass(frozen=True, kw_only=True)
class FileRoots:
    """Folders of this machine that plain paths and file:// URIs must lie below, after following links."""

    roots: tuple[Path, ...] | None = None  # None: anywhere

    def require(self, uris: "Iterable[NamedUri]") -> None:
        """Raise UriNotAllowed if a path leads elsewhere, as far as it exists on this machine."""
        if self.roots is None:
            return
        for named in uris:
            if not self.allow(named):
                raise UriNotAllowed(
                    f"{named.field} names {named.uri}, below none of the folders that exports may use",
                    hint="name a place in an object store, or ask the operator to add to SLIPWAY_FILE_ROOTS",
                    where=named.field,
                )

    def allow(self, named: "NamedUri") -> bool:
        """Return whether the URI is no path, or leads below one of the folders."""
        if self.roots is None or local_path(named.uri) is None:
            return True
        return any(named.is_below(str(root)) for root in self.roots)


ANYWHERE = FileRoots()


@dataclass(frozen=True, kw_only=True)
class NamedUri:
    """One URI of a spec, with the field that names it."""

    field: str
    uri: str
    is_output: bool

    @property
    def may_be_pattern(self) -> bool:
        """True for rows; any other URI names one file or folder, whatever characters it has."""
        return self.field.endswith(_ROWS)

    def is_below(self, prefix: str) -> bool:
        """Return whether the URI leads to a prefix or below it, on this machine after following links.

        Of rows, both the name as it stands and the folder in which the pattern begins must lie there.
        """
        path, root = local_path(self.uri), local_path(prefix)
        if path is not None and root is not None:
            judged = {path, before_pattern(path)} if self.may_be_pattern else {path}
            return all(real_path(each).is_relative_to(real_path(root)) for each in judged)
        if path is not None or root is not None:
            return False
        if prefix.endswith("://"):
            return self.uri.startswith(prefix)
        wanted, given = prefix.rstrip("/").split("/"), self.uri.split("/")
        fixed = list(_before_sign(given)) if self.may_be_pattern else given
        return fixed[: len(wanted)] == wanted and not {".", ".."} & set(given)

    def require_sound(self) -> Self:
        """Return the URI itself, or refuse it.

        The error does not repeat text that could be a secret or deceive a reader.

        Raises:
            InvalidSpec: it has credentials, deceiving characters or "..", is blank, or names no known store.
        """
        _refuse_unsound(self)
        return self

    def refuse_unsound(self) -> None:
        """Refuse the URI if it is not sound, which its text alone decides."""
        path = local_path(self.uri)
        if _USER.search(self.uri) or _SIGNED.search(self.uri):
            raise self._refusal(
                "holds credentials, which would be stored and shown",
                "leave them out; the service and its workers have their own",
            )
        if any(deceives(text) or "\n" in text or "\t" in text for text in (self.uri, str(path or ""))):
            raise self._refusal("holds control characters, or characters that turn the direction of text", "")
        if _SCHEME.match(self.uri) and path is None and climbs(self.uri):
            raise self._refusal("climbs with '..', which object stores do not know", "write the URI out")
        if path is not None and self.may_be_pattern and ".." in path.parts[len(_fixed_parts(path)) :]:
            raise self._refusal("climbs with '..' behind a pattern, which no name matches", "write it out")
        if path is not None and not _fits_a_disk(path):
            raise self._refusal(
                f"has a name or a path that is longer than {_LONGEST_NAME} or {_LONGEST_PATH} bytes", ""
            )
        if not self.uri.strip():
            raise self._refusal("is blank", ADVICE)
        if path is None and not (is_known(self.uri) and _BUCKET.match(self.uri)):
            raise self._refusal(
                f"names {self.uri}, which is in no store that Slipway knows",
                ADVICE,
            )
        if path is None and {"", "."} & set(self.uri.rstrip("/").split("/")[3:]):
            raise self._refusal(f"names {self.uri}, where a name is empty or '.'", "write the URI out")

    def _refusal(self, why: str, hint: str) -> InvalidSpec:
        return InvalidSpec(f"{self.field} {why}", hint=hint, where=self.field)


_refuse_unsound = lru_cache(maxsize=_KEPT)(NamedUri.refuse_unsound)


def uris_of(spec: ExportOptions) -> Iterator[NamedUri]:
    """Yield every URI of the spec; fields for rows may hold several, separated by commas."""
    yield from _name_uris(_given_uris(spec))


def _given_uris(spec: ExportOptions) -> tuple[str | None, ...]:
    """Return the fields of the spec that hold URIs, in the order of _FIELDS."""
    # The spec of a job has no config_uri at all.
    return (*(getattr(spec, field, None) for field in _INPUTS), spec.gate_rows_uri, spec.output_uri)


def _name_uris(given: tuple[str | None, ...]) -> Iterator[NamedUri]:
    for field, text in zip(_FIELDS, given, strict=True):
        if text is not None:
            parts = filter(None, map(str.strip, text.split(","))) if field.endswith(_ROWS) else [text]
            for uri in parts:
                yield NamedUri(field=field, uri=uri, is_output=field == _OUTPUT)


def require_sound_uris(spec: ExportOptions) -> None:
    """Raise InvalidSpec for the first URI of the spec that is not sound; see `NamedUri.require_sound`."""
    _refuse_unsound_ones(_given_uris(spec))


@lru_cache(maxsize=_KEPT)
def _refuse_unsound_ones(given: tuple[str | None, ...]) -> None:
    for named in _name_uris(given):
        named.require_sound()


def require_no_credentials_in(text: str, where: str) -> None:
    """Raise InvalidPipelineConfig if a URI in the text holds a password: the text will be published."""
    if found := _USER_IN_TEXT.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise InvalidPipelineConfig(
            f"{where}:{line}: a URI holds a password, and the config is published with the artifact",
            hint="leave the password out; exports have credentials of their own",
            where=f"{where}:{line}",
        )


def climbs(text: str) -> bool:
    """Return whether a name in a text is "..", as it stands or after unquoting it however often."""
    return any(".." in _NAMES.split(form) for form in forms_of(text))


def forms_of(text: str) -> Iterator[str]:
    """Yield a text as it stands, unquoted, unquoted again, and so on until that changes nothing."""
    while (unquoted := unquote(text)) != text:
        yield text
        text = unquoted
    yield text


def is_pattern(text: str) -> bool:
    """Return whether a text has a character that makes it a pattern where rows are named."""
    return any(sign in text for sign in _SIGNS)


def real_path(path: Path) -> Path:
    """Return the absolute path to which a path leads, after following links as far as it exists."""
    return Path(os.path.realpath(path.absolute()))


def before_pattern(path: Path) -> Path:
    """Return the folders before the first pattern; all of the path if it is none, or names a file."""
    fixed = _fixed_parts(path)
    try:
        is_name = len(fixed) == len(path.parts) or path.exists()
    except OSError:  # longer than any name
        is_name = False
    return path if is_name else Path(*fixed)


def _fits_a_disk(path: Path) -> bool:
    encoded = os.fsencode(path)
    return len(encoded) <= _LONGEST_PATH and max(map(len, encoded.split(b"/"))) <= _LONGEST_NAME


def _fixed_parts(path: Path) -> tuple[str, ...]:
    return tuple(_before_sign(path.parts))


def _before_sign(names: Iterable[str]) -> Iterator[str]:
    return takewhile(lambda name: not is_pattern(name), names)
