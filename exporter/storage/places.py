"""Judge where a job reads and writes on this machine: before it reads, and whenever it opens its output."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from exporter.errors import UriNotAllowed
from exporter.spec import ExportSpec
from exporter.storage.local import LocalStore
from exporter.storage.open import local_path, open_store
from exporter.storage.store import ArtifactStore
from exporter.storage.uris import (
    ANYWHERE,
    NO_RULES,
    FileRoots,
    NamedUri,
    UriRules,
    before_pattern,
    real_path,
    uris_of,
)

_MOST_ENTRIES = 1_000_000  # of the folders that are searched for links


@dataclass(frozen=True, kw_only=True)
class Places:
    """The folders of this machine that exports may use, and the rules of the key behind the job."""

    folders: FileRoots = ANYWHERE
    rules: UriRules = NO_RULES
    # False: where no folders are set, paths that a config names lead below the folder that its caller named.
    trusts_configs: bool = True

    def require_within(self, spec: ExportSpec) -> None:
        """Raise UriNotAllowed if a URI of the spec, or a link in a folder that it reads, leads elsewhere."""
        for named in uris_of(spec):
            self.rules.require([named])
            self.folders.require([named])
            path = local_path(named.uri)
            if path is None or named.is_output or self._allow_any_input:
                continue
            for link in _links_below(before_pattern(path)):
                if not self._allow_link(named, link):
                    raise UriNotAllowed(
                        f"{named.field} names {named.uri}, where {link} leads out of the folders that "
                        "exports may use",
                        where=named.field,
                    )

    def require_config_file(self, named: NamedUri, folder: str | None) -> None:
        """Raise UriNotAllowed if the job may not read a file that its config names.

        The caller named only `folder`: nobody else has judged where the config's own paths lead.
        """
        self.rules.require([named])
        folders = self.folders
        if folders.roots is None and not self.trusts_configs:
            path = local_path(folder or "://")
            folders = FileRoots(roots=() if path is None else (path,))
        folders.require([named])

    def require_readable_artifact(self, uri: str) -> None:
        """Raise UriNotAllowed unless the job may read an artifact that another job has published.

        It may where it could have published the artifact itself: that is what its owner sees.
        """
        named = NamedUri(field="release_gate.baseline", uri=uri, is_output=True)
        self.rules.require([named])
        self.folders.require([named])
        path = local_path(uri)
        for link in _links_below(path) if path is not None and self != EVERYWHERE else ():
            if not self._allow_link(named, link):
                raise UriNotAllowed(f"{uri} holds {link}, which leads out of it", where=named.field)

    def open_output(self, output_uri: str, uri: str) -> ArtifactStore:
        """Open the store of a folder in the output of a job, or of the output itself.

        A path is judged by where it leads now. The store keeps to that place: it follows no link that is laid
        afterwards, and none below the output.

        Raises:
            UriNotAllowed: the output lies where the job may not write, or the folder lies outside of it.
        """
        output, path = local_path(output_uri), local_path(uri)
        if output is None or path is None:
            self.rules.require([NamedUri(field="output_uri", uri=uri, is_output=True)])
            if not f"{uri}/".startswith(f"{output_uri.rstrip('/')}/"):
                raise _outside(uri, output_uri)
            return open_store(uri)
        output, path = output.absolute(), path.absolute()  # manifests are recorded so, outputs as given
        real = real_path(output)
        judged = [NamedUri(field="output_uri", uri=str(real), is_output=True)]
        self.rules.require(judged)
        self.folders.require(judged)
        if not path.is_relative_to(output) or ".." in (below := path.relative_to(output)).parts:
            raise _outside(uri, output_uri)
        return LocalStore(path, real=real / below)

    @property
    def _allow_any_input(self) -> bool:
        return self.folders.roots is None and self.rules.inputs is None

    def _allow_link(self, named: NamedUri, link: Path) -> bool:
        led = replace(named, field="link", uri=str(link))  # a name, also where it looks like a pattern
        return self.rules.allow(led) and self.folders.allow(led)


EVERYWHERE = Places()


def _outside(uri: str, output_uri: str) -> UriNotAllowed:
    return UriNotAllowed(f"{uri} does not lie in the job's output, {output_uri}", where="output_uri")


def _links_below(folder: Path) -> Iterator[Path]:
    """Yield every symbolic link in a folder, however deep, also in folders to which links lead.

    A linked folder is entered once its link has been yielded, and each folder once.
    """
    waiting, entered, seen = [folder], set[tuple[int, int]](), 0
    while waiting:
        try:
            status = (folder := waiting.pop()).stat()
            identity = (status.st_dev, status.st_ino)
            if identity in entered or not stat.S_ISDIR(status.st_mode):
                continue
            entered.add(identity)
            entries = os.scandir(folder)
        except OSError:  # nothing can be read there either
            continue
        with entries:
            for entry in entries:
                if (seen := seen + 1) > _MOST_ENTRIES:
                    raise UriNotAllowed(
                        f"{folder} holds more than {_MOST_ENTRIES:,} files, too many to search for links"
                    )
                if entry.is_symlink():
                    yield Path(entry.path)
                    waiting.append(Path(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
