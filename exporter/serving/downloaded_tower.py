"""Downloading a published tower: its digests are verified, and it is ready to be called."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from exporter.aoti.architecture import require_runnable
from exporter.artifact.read import fetch_manifest, fetch_tower, read_manifest
from exporter.artifact.signing import VerifyingKey
from exporter.config.features.tables import take_rows
from exporter.config.schema import Feature, TowerConfig
from exporter.dims.declared_dims import plan_declared
from exporter.dims.plan import DimPlan, plan_dims
from exporter.errors import InvalidArtifact, InvalidSpec
from exporter.families.loading import family_modules
from exporter.manifest import Manifest, TowerEntry
from exporter.shards.lookup import open_shard_lookup
from exporter.spec import TowerName
from exporter.towers.declared_view import declared_tower
from exporter.towers.lookup import LookUp
from exporter.towers.view import published_tower
from exporter.trace.op_libraries import require_trusted
from exporter.verify.reload import Link

CONFIG_NAME = "pipeline.config"


@dataclass(frozen=True, kw_only=True)
class DownloadedTower:
    """A published tower on disk, with verified digests, and what is needed to encode rows and to call it."""

    manifest: Manifest
    entry: TowerEntry
    chain: tuple[Link, ...]
    features: tuple[Feature, ...]
    plan: DimPlan
    root: Path  # the folder that has its files, and the manifest
    lookup: LookUp | None = None  # in the mapped shards of its tables, where no package looks up


def download_tower(
    artifact_uri: str,
    tower: TowerName,
    into: Path,
    key: VerifyingKey | None = None,
    *,
    families: Collection[str] = (),
) -> DownloadedTower:
    """Download a tower's packages and the description of its inputs.

    Operators may come from the packages of `families`, which the operator of this program has listed.

    Raises:
        SignatureRefused: there is a `key`, which has not signed the artifact.
        InvalidSpec: the artifact has no such tower.
        InvalidArtifact: it is incomplete, damaged, contradicts itself, or was built for another machine.
    """
    manifest = fetch_manifest(artifact_uri, into, key)
    entry = _find_entry(manifest, tower, artifact_uri)
    _require_usable(manifest, artifact_uri, families)  # before anything large is fetched
    fetch_tower(artifact_uri, tower, into, key)
    return open_fetched_tower(manifest, entry, into, artifact_uri, families=families)


def open_fetched_tower(
    manifest: Manifest, entry: TowerEntry, root: Path, artifact_uri: str, *, families: Collection[str] = ()
) -> DownloadedTower:
    """Open a tower whose files were fetched to below `root`, with their digests verified.

    Raises:
        InvalidArtifact: it contradicts itself, or was built for another machine.
    """
    _require_usable(manifest, artifact_uri, families)
    config, plan = _read_interface(manifest, entry, root / entry.name / CONFIG_NAME, artifact_uri)
    if [(tensor.name, tensor.shape) for tensor in plan.inputs] != [(i.name, i.shape) for i in entry.inputs]:
        raise InvalidArtifact(
            f"{artifact_uri}: the {entry.name} tower's pipeline.config and the manifest describe different "
            "inputs",
            hint="export again; the artifact was changed or made by another version",
            where=artifact_uri,
        )
    return DownloadedTower(
        manifest=manifest,
        entry=entry,
        chain=tuple(_chain(entry, root)),
        features=config.pipeline.features,
        plan=plan,
        root=root,
        lookup=open_shard_lookup(manifest, entry, config, plan, root),
    )


def open_lookup(
    folder: Path, tower: TowerName, key: VerifyingKey | None = None, *, families: Collection[str] = ()
) -> LookUp | None:
    """Open the lookup of a tower with sharded tables, for `slipway.loader.load`; None for any other tower.

    The artifact in `folder`, as published or prepared, is not checked again.

    Raises:
        InvalidArtifact: there is no such tower, or its tables are not complete.
        SignatureRefused: there is a `key`, which has not signed the artifact.
    """
    manifest = read_manifest(str(folder), key)
    entry = _find_entry(manifest, tower, str(folder))
    return open_fetched_tower(manifest, entry, folder, str(folder), families=families).lookup


def _require_usable(manifest: Manifest, artifact_uri: str, families: Collection[str]) -> None:
    """Raise InvalidArtifact if the packages do not run here, or need operators that nobody has listed."""
    require_runnable(manifest.device, manifest.architecture)
    require_trusted(
        manifest.op_libraries, lambda: chain.from_iterable(map(family_modules, families)), artifact_uri
    )


def _find_entry(manifest: Manifest, tower: TowerName, where: str) -> TowerEntry:
    for entry in manifest.towers:
        if entry.name is tower:
            return entry
    names = ", ".join(entry.name for entry in manifest.towers)
    raise InvalidSpec(f"{where} has no {tower} tower", hint=f"it has: {names}", where="tower")


def read_published_config(config: Path, tower: TowerName, where: str) -> str:
    """Return the text of a published tower's config.

    Raises:
        InvalidArtifact: the artifact at `where` has no such file, or it is no text.
    """
    try:
        return config.read_text()
    except FileNotFoundError:
        problem = "is missing: the manifest does not name it"
    except UnicodeDecodeError as error:
        problem = f"is no text: {error}"
    raise InvalidArtifact(
        f"{where}: {tower}/{CONFIG_NAME} {problem}",
        hint="export again; without its config nobody can encode rows for the package",
        where=f"{where}/{tower}/{CONFIG_NAME}",
    )


def _read_interface(
    manifest: Manifest, entry: TowerEntry, config: Path, where: str
) -> tuple[TowerConfig, DimPlan]:
    """Return the features and dims of the inputs: by the pipeline config, or as a custom family declared."""
    text = read_published_config(config, entry.name, where)
    if entry.declaration is not None:
        declared = declared_tower(entry.declaration, family=manifest.family, text=text)
        plan = plan_declared(entry.declaration, max_batch_size=manifest.max_batch_size)
        return declared, plan
    published = published_tower(text, entry.name, where=f"{where}: {entry.name}/{CONFIG_NAME}")
    shapes = {f"{table.path}.weight": (table.rows, table.width) for table in entry.embeddings}
    published = replace(published, pipeline=take_rows(published.pipeline, shapes))
    return published, plan_dims(published.pipeline.features, max_batch_size=manifest.max_batch_size)


def _chain(entry: TowerEntry, root: Path) -> Iterator[Link]:
    """Yield the packages in calling order, each with the order of its inputs."""
    inputs = tuple(tensor.name for tensor in entry.inputs)
    if entry.sparse is not None:
        yield Link(package=root / entry.sparse.package.path, order=inputs, kind=entry.sparse.kind)
        inputs = tuple(tensor.name for tensor in entry.sparse.tensors)
    elif entry.tables is not None:
        inputs = tuple(tensor.name for tensor in entry.tables.tensors)
    yield Link(package=root / entry.package.path, order=inputs)
