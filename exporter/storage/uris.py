"""Rules for the URIs of a request: sound ones only, and only below the prefixes that a key allows."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field

from exporter.errors import InvalidPipelineConfig, InvalidSpec, UriNotAllowed
from exporter.redaction import deceives
from exporter.spec import ExportSpec, Frozen
from exporter.storage.open import ADVICE, is_known, local_path, open_store

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"^[^/]+://[^/?#]")
_USER = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*@")
_SECRETS = "signature|credential|token|secret|password|access_?key"
_SIGNED = re.compile(rf"(?i)[?&;][\w-]{{0,64}}({_SECRETS})[\w-]{{0,64}}=")
_USER_IN_TEXT = re.compile(r"://[^/\s\"'@:]{0,256}:[^/\s\"'@]{1,256}@")
_SIGNS = "*?["  # characters that make a path a pattern
_MOST_ENTRIES = 1_000_000  # of a folder that is searched for links

_INPUTS = ("config_uri", "checkpoint_uri", "item_input_uri", "sample_input_uri")


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
        for named in uris:
            allowed = self.outputs if named.is_output else self.inputs
            if allowed is not None and not any(_is_below(named.uri, prefix) for prefix in allowed):
                raise UriNotAllowed(
                    f"{named.field} names {named.uri}, which lies outside of what this key may "
                    f"{'write' if named.is_output else 'read'}",
                    where=named.field,
                )


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
        for named in uris:
            path = local_path(named.uri)
            if self.roots is not None and path is not None and not self._contain(_before_pattern(path)):
                raise UriNotAllowed(
                    f"{named.field} names {named.uri}, below none of the folders that exports may use",
                    hint="name a place in an object store, or ask the operator to add to SLIPWAY_FILE_ROOTS",
                    where=named.field,
                )

    def require_within(self, spec: ExportSpec) -> None:
        """Apply `require` to a spec, and refuse links in the folders it reads that lead elsewhere."""
        self.require(uris_of(spec))
        for named in uris_of(spec):
            path = local_path(named.uri)
            if self.roots is None or path is None or named.is_output:
                continue
            for link in _links_below(_before_pattern(path)):
                if not self._contain(link):
                    raise UriNotAllowed(
                        f"{named.field} names {named.uri}, where {link} leads out of the folders that "
                        "exports may use",
                        where=named.field,
                    )

    def _contain(self, path: Path) -> bool:
        real = _real(path)
        return any(real.is_relative_to(_real(root)) for root in self.roots or ())


ANYWHERE = FileRoots()


@dataclass(frozen=True, kw_only=True)
class NamedUri:
    """One URI of a spec, with the field that names it."""

    field: str
    uri: str
    is_output: bool

    def require_sound(self) -> Self:
        """Return the URI itself, or refuse it.

        The error does not repeat text that could be a secret or deceive a reader.

        Raises:
            InvalidSpec: it has credentials, deceiving characters or "..", is blank, or names no known store.
        """
        if _USER.search(self.uri) or _SIGNED.search(self.uri):
            raise self._refusal(
                "holds credentials, which would be stored and shown",
                "leave them out; the service and its workers have their own",
            )
        if deceives(self.uri) or "\n" in self.uri or "\t" in self.uri:
            raise self._refusal("holds control characters, or characters that turn the direction of text", "")
        if _SCHEME.match(self.uri) and local_path(self.uri) is None and ".." in self.uri.split("/"):
            raise self._refusal("climbs with '..', which object stores do not know", "write the URI out")
        if not self.uri.strip():
            raise self._refusal("is blank", ADVICE)
        if local_path(self.uri) is None and not (is_known(self.uri) and _BUCKET.match(self.uri)):
            raise self._refusal(
                f"names {self.uri}, which is in no store that Slipway knows",
                ADVICE,
            )
        return self

    def _refusal(self, why: str, hint: str) -> InvalidSpec:
        return InvalidSpec(f"{self.field} {why}", hint=hint, where=self.field)


def uris_of(spec: ExportSpec) -> Iterator[NamedUri]:
    """Yield every URI of the spec; fields for rows may hold several, separated by commas."""
    for field in _INPUTS:
        given: str | None = getattr(spec, field)
        parts = given.split(",") if given and field.endswith("_input_uri") else [given or ""]
        for uri in filter(None, (part.strip() for part in parts)):
            yield NamedUri(field=field, uri=uri, is_output=False)
    yield NamedUri(field="output_uri", uri=spec.output_uri, is_output=True)


def require_sound_uris(spec: ExportSpec) -> None:
    """Raise InvalidSpec for the first URI of the spec that is not sound; see `NamedUri.require_sound`."""
    for named in uris_of(spec):
        named.require_sound()


def require_writable_output(spec: ExportSpec) -> None:
    """Raise StorageError if publishing is sure to fail, as far as this is known without writing."""
    open_store(spec.output_uri).require_writable()


def require_no_credentials_in(text: str, where: str) -> None:
    """Raise InvalidPipelineConfig if a URI in the text holds a password: the text will be published."""
    if found := _USER_IN_TEXT.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise InvalidPipelineConfig(
            f"{where}:{line}: a URI holds a password, and the config is published with the artifact",
            hint="leave the password out; exports have credentials of their own",
            where=f"{where}:{line}",
        )


def _is_below(uri: str, prefix: str) -> bool:
    path, root = local_path(uri), local_path(prefix)
    if path is not None or root is not None:
        return (
            path is not None and root is not None and _real(_before_pattern(path)).is_relative_to(_real(root))
        )
    wanted, given = prefix.rstrip("/").split("/"), uri.split("/")
    if prefix.endswith("://"):
        return uri.startswith(prefix)
    return given[: len(wanted)] == wanted and not {".", ".."} & set(given)


def _before_pattern(path: Path) -> Path:
    """Return the folders before the first pattern; all of the path if it is none, or names a file."""
    if not any(sign in str(path) for sign in _SIGNS) or path.exists():
        return path
    folders = Path()
    for part in path.parts:
        if any(sign in part for sign in _SIGNS):
            break
        folders /= part
    return folders


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path.absolute()))


def _links_below(folder: Path) -> Iterator[Path]:
    """Yield every symbolic link in a folder, however deep; links are not followed."""
    seen = 0
    for parent, folders, files in os.walk(folder):
        names: Sequence[str] = (*folders, *files)
        seen += len(names)
        if seen > _MOST_ENTRIES:
            raise UriNotAllowed(
                f"{folder} holds more than {_MOST_ENTRIES:,} files, too many to search for links"
            )
        yield from (path for path in (Path(parent, name) for name in names) if path.is_symlink())
