"""Two published releases side by side: see `compare_artifacts`."""

import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from exporter.artifact.read import fetch_files, find_tower, read_manifest, root_of
from exporter.artifact.signing import VerifyingKey
from exporter.comparison.changes import (
    compare_configs,
    compare_settings,
    describe_artifact,
    describe_interface,
)
from exporter.comparison.item_vectors import compare_vectors
from exporter.comparison.row_values import PublishedTable
from exporter.comparison.runs import RunOptions, explain, run_both
from exporter.comparison.table_diff import compare_tables
from exporter.comparison.tower_weights import TowerContents, compare_weights, read_tower
from exporter.distributed.fork_server import ForkServer
from exporter.errors import ExportError, InvalidArtifact, InvalidSpec
from exporter.manifest import FileRef, Manifest, TowerEntry
from exporter.redaction import shorten
from exporter.reports.comparison import (
    LONGEST_TEXT,
    MOST_CHANGES,
    MOST_TABLES,
    ArtifactRef,
    Changes,
    CodeDiff,
    Comparison,
    FileDiff,
    LatencyDiff,
    Outputs,
    Sizes,
    TableDiff,
    TowerDiff,
)
from exporter.reports.release_report import ReleasedArtifacts
from exporter.serving.downloaded_tower import CONFIG_NAME, open_fetched_tower, read_published_config
from exporter.spec import TowerName
from exporter.storage.open import Opener, open_store

DEFAULTS = RunOptions()


@dataclass(frozen=True, kw_only=True)
class ComparisonRequest:
    """The towers to compare, the rows to run them on, and what this program trusts."""

    towers: tuple[TowerName, ...] = ()  # none: all
    runs: RunOptions = DEFAULTS
    key: VerifyingKey | None = None  # that must have signed both artifacts
    families: Collection[str] = ()  # packages of custom families, whose operators may be loaded
    opened: Opener = open_store
    server: ForkServer | None = None  # of the processes that run packages; without it each starts by itself


@dataclass(frozen=True, kw_only=True)
class _Side:
    """One tower of one release: its artifact, and the folder to which its files are fetched."""

    uri: str
    manifest: Manifest
    entry: TowerEntry
    root: Path

    @property
    def config(self) -> str:
        path = self.root / self.entry.name / CONFIG_NAME
        return read_published_config(path, self.entry.name, self.uri)


def compare_artifacts(
    old_uri: str, new_uri: str, request: ComparisonRequest = ComparisonRequest(), *, scratch: Path
) -> Comparison:
    """Compare two artifacts by the URIs of their folders or manifests.

    Files are fetched to below `scratch`, a tower at a time, and removed.

    Raises:
        ExportError: an artifact cannot be read, is damaged, or lacks a tower that was asked for; or rows that
            were asked for cannot be read.
    """
    old, new = (read_release(uri, request) for uri in (old_uri, new_uri))
    return compare_releases(old, new, request, scratch=scratch)


def read_release(uri: str, request: ComparisonRequest) -> ReleasedArtifacts:
    """Return the release that one artifact is by itself.

    Raises:
        ExportError: there is no artifact, or it is not signed with the request's key.
    """
    manifest = read_manifest(uri, request.key, opened=request.opened)
    if not manifest.towers:
        raise InvalidArtifact(f"the manifest of {root_of(uri)} names no tower", where=root_of(uri))
    return ReleasedArtifacts(
        job_id=manifest.job_id, towers={entry.name: root_of(uri) for entry in manifest.towers}
    )


def compare_releases(
    old: ReleasedArtifacts,
    new: ReleasedArtifacts,
    request: ComparisonRequest = ComparisonRequest(),
    *,
    scratch: Path,
) -> Comparison:
    """Compare two releases tower by tower; a release's towers may lie in several artifacts.

    Raises:
        ExportError: as `compare_artifacts`.
    """
    begun = time.monotonic()
    manifests = [_manifests(release, request) for release in (old, new)]
    names = _choose_towers(old, new, request)
    towers, config = [], Changes()
    for name in names:
        with tempfile.TemporaryDirectory(dir=scratch, prefix=f"diff-{name}-") as folder:
            sides = [
                _fetch(release.towers[name], of[name], name, Path(folder) / side, request)
                for side, release, of in (("old", old, manifests[0]), ("new", new, manifests[1]))
                if name in release.towers
            ]
            if len(sides) == 2 and config == Changes():  # the item tower's has only what items need
                config = compare_configs(sides[0].config, sides[1].config)
            towers.append(
                _compare_tower(sides[0], sides[1], request, Path(folder))
                if len(sides) == 2
                else _only_one(sides[0], is_old=name in old.towers)
            )
    refs = [_artifact_ref(release, of) for release, of in zip((old, new), manifests, strict=True)]
    described = [describe_artifact(next(iter(of.values()))) for of in manifests]
    return Comparison(
        old=refs[0],
        new=refs[1],
        same=not config.total and not any(tower.differs for tower in towers),
        artifact=compare_settings(*described),
        config=config,
        towers=tuple(towers),
        seconds=time.monotonic() - begun,
    )


def _manifests(release: ReleasedArtifacts, request: ComparisonRequest) -> dict[TowerName, Manifest]:
    read = {
        uri: read_manifest(uri, request.key, opened=request.opened) for uri in set(release.towers.values())
    }
    return {name: read[uri] for name, uri in release.towers.items()}


def _choose_towers(
    old: ReleasedArtifacts, new: ReleasedArtifacts, request: ComparisonRequest
) -> tuple[TowerName, ...]:
    """Return the towers to compare, in the order of the enumeration, in which items come last but one."""
    present = {*old.towers, *new.towers}
    if missing := [name for name in request.towers if name not in present]:
        raise InvalidSpec(
            f"neither release has the {missing[0]} tower",
            hint=f"their towers: {', '.join(sorted(present))}",
            where="tower",
        )
    return tuple(name for name in TowerName if name in (request.towers or present) and name in present)


def _fetch(uri: str, manifest: Manifest, name: TowerName, root: Path, request: ComparisonRequest) -> _Side:
    entry = find_tower(manifest, name, uri)
    vectors = entry.vectors.files if entry.vectors else ()
    fetch_files(request.opened(uri), (*entry.served_files, *vectors), root)
    return _Side(uri=uri, manifest=manifest, entry=entry, root=root)


def _artifact_ref(release: ReleasedArtifacts, manifests: Mapping[TowerName, Manifest]) -> ArtifactRef:
    manifest = next(iter(manifests.values()))
    return ArtifactRef(
        uri=shorten(next(iter(release.towers.values())), LONGEST_TEXT),
        job_id=shorten(release.job_id, LONGEST_TEXT),
        created_at=shorten(manifest.created_at, LONGEST_TEXT),
        family=shorten(manifest.family, LONGEST_TEXT),
    )


def _only_one(side: _Side, *, is_old: bool) -> TowerDiff:
    files = side.entry.all_files
    size = sum(file.size for file in files)
    sizes = Sizes(old_bytes=size if is_old else 0, new_bytes=0 if is_old else size)
    return TowerDiff(name=side.entry.name, only_in="old" if is_old else "new", sizes=sizes)


def _compare_tower(old: _Side, new: _Side, request: ComparisonRequest, scratch: Path) -> TowerDiff:
    """Compare one tower of both releases; what needs running may be missing, and says why."""
    interface = compare_settings(describe_interface(old.entry), describe_interface(new.entry))
    diff = TowerDiff(
        name=new.entry.name,
        identical=not interface.total and _digests(old.entry) == _digests(new.entry),
        interface=interface,
        vectors=compare_vectors(old.entry.vectors, new.entry.vectors, old.root, new.root),
        sizes=_compare_sizes(old.entry.all_files, new.entry.all_files),
    )
    if diff.identical:
        return diff
    contents = _read_contents(old), _read_contents(new)
    tables = _compare_all_tables(contents[0].tables, contents[1].tables)
    outputs, latency = _run(old, new, request, scratch)
    return diff.model_copy(
        update={
            "code": _compare_code(old.entry, new.entry, contents[0].code, contents[1].code),
            "tables": tuple(tables[:MOST_TABLES]),
            "tables_total": len(tables),
            "tables_changed": sum(table.differs for table in tables),
            "weights": compare_weights(contents[0].weights, contents[1].weights),
            "outputs": outputs,
            "latency": latency,
        }
    )


def _read_contents(side: _Side) -> TowerContents:
    """Return the contents of a tower's packages; an error names the artifact, not the copy on this disk."""
    try:
        return read_tower(side.entry, side.root)
    except InvalidArtifact as error:
        message = error.message.replace(str(side.root), side.uri)
        raise InvalidArtifact(message, hint=error.hint, where=side.uri) from error


def _digests(entry: TowerEntry) -> list[tuple[str, str]]:
    return sorted((file.path, file.sha256) for file in entry.served_files)


def _compare_all_tables(
    old: Mapping[str, PublishedTable], new: Mapping[str, PublishedTable]
) -> list[TableDiff]:
    """Compare all tables by their paths; those with the largest share of changed rows come first."""
    diffs = [compare_tables(old.get(path), new.get(path)) for path in dict.fromkeys((*new, *old))]
    return sorted(diffs, key=lambda diff: (not diff.differs, -diff.share_changed, diff.name))


def _run(old: _Side, new: _Side, request: ComparisonRequest, scratch: Path) -> tuple[Outputs, LatencyDiff]:
    try:
        towers = [
            open_fetched_tower(side.manifest, side.entry, side.root, side.uri, families=request.families)
            for side in (old, new)
        ]
    except ExportError as error:  # made for another machine, or by a family that is not trusted here
        return Outputs(note=explain(error)), LatencyDiff(note=explain(error))
    return run_both(towers[0], towers[1], options=request.runs, scratch=scratch, server=request.server)


def _compare_code(
    old: TowerEntry, new: TowerEntry, old_code: Mapping[str, str], new_code: Mapping[str, str]
) -> CodeDiff:
    kinds = dict.fromkeys((*old_code, *new_code))
    changed = [kind for kind in kinds if old_code.get(kind) != new_code.get(kind)]
    return CodeDiff(
        same=not changed,
        same_sources=not any(kind.endswith((".cpp", ".json", ".cu", ".py")) for kind in changed),
        changed=tuple(shorten(kind, LONGEST_TEXT) for kind in islice(changed, MOST_CHANGES)),
        old_origin=_origin(old),
        new_origin=_origin(new),
    )


def _origin(entry: TowerEntry) -> str:
    return "cold" if entry.code == "cold" else f"warm, of an equal {entry.reused or 'graph'}"


def _compare_sizes(old: tuple[FileRef, ...], new: tuple[FileRef, ...]) -> Sizes:
    before, after = ({file.path: file for file in files} for files in (old, new))
    differing = [
        FileDiff(
            path=shorten(path, LONGEST_TEXT),
            old_size=before[path].size if path in before else None,
            new_size=after[path].size if path in after else None,
        )
        for path in dict.fromkeys((*before, *after))
        if before.get(path) != after.get(path)
    ]
    return Sizes(
        old_bytes=sum(file.size for file in old),
        new_bytes=sum(file.size for file in new),
        files=tuple(differing[:MOST_CHANGES]),
    )
