"""A published artifact to be checked: its sources, its packages, and the request that would make it again."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from exporter.artifact.read import read_manifest
from exporter.artifact.signing import VerifyingKey
from exporter.dtypes import Kernel
from exporter.errors import InvalidSpec
from exporter.manifest import Manifest, SourceRef
from exporter.options.tables import TableLayout
from exporter.serving.downloaded_tower import DownloadedTower, download_tower
from exporter.spec import Device, IdWeights, TowerName

_INLINE = "inline"  # a config that came with the request: the artifact does not say where it is


@dataclass(frozen=True, kw_only=True)
class PublishedArtifact:
    """An artifact, by its URI and its manifest."""

    uri: str
    manifest: Manifest
    key: VerifyingKey | None = None

    def download_tower(self, tower: TowerName, into: Path, families: Collection[str]) -> DownloadedTower:
        """Download a tower and verify its digests; operators may come from the packages of `families`."""
        return download_tower(self.uri, tower, into, self.key, families=families)

    def require_made_from(self, found: SourceRef) -> None:
        """Raise InvalidSpec if a config or checkpoint is not what the artifact was made from.

        Rows may be others: they are what it is tried on.
        """
        made_from = {source.role: source.sha256 for source in self.manifest.sources}
        if found.sha256 != made_from.get(found.role, found.sha256):
            raise InvalidSpec(
                f"{found.uri} is not the {found.role} that {self.uri} was made from: its sha256 is "
                f"{found.sha256[:12]}…, and the manifest says {made_from[found.role][:12]}…",
                hint=f"give --{found.role} what the artifact was made from",
                where=found.role,
            )


def open_artifact(uri: str, key: VerifyingKey | None = None) -> PublishedArtifact:
    """Open the artifact at the URI of its folder or manifest.

    Raises:
        SignatureRefused: there is a `key`, which has not signed the artifact.
        InvalidArtifact: there is none, or it is damaged.
    """
    return PublishedArtifact(uri=uri, manifest=read_manifest(uri, key), key=key)


def reconstruct_request(published: PublishedArtifact) -> Mapping[str, JsonValue]:
    """Return the request that would make the artifact again, as JSON, as far as its manifest says."""
    manifest, towers = published.manifest, published.manifest.towers
    given: dict[str, JsonValue] = {
        "mode": manifest.mode,
        "layout": manifest.layout,
        "device": manifest.device,
        "max_batch_size": manifest.max_batch_size,
        "towers": [tower.name for tower in towers],
        "passes": [applied.asked.model_dump() for tower in towers for applied in tower.passes],
        "allow_inferred_ops": any(tower.inferred_ops for tower in towers),
        "precision": towers[0].precision,
        "tf32": towers[0].tf32,
        "strict_bounds": any(dim.share and dim.share.refused for tower in towers for dim in tower.dims),
    }
    if manifest.device is Device.CUDA and manifest.family_package is None:
        by_triton = any(tower.kernel is Kernel.TRITON for tower in towers)
        given["kernel"] = Kernel.TRITON if by_triton else Kernel.PYTORCH
    given["tables"] = {
        "layout": TableLayout.SHARDED if any(tower.tables for tower in towers) else TableLayout.PACKAGED,
        "dtypes": {table.name: table.dtype for tower in towers for table in tower.embeddings if table.error},
    }
    if manifest.family_package is not None:
        given["family"] = manifest.family
    elif any(tower.id_weights is IdWeights.IGNORE for tower in towers):
        given["id_weights"] = IdWeights.IGNORE
    for source in manifest.sources:
        if source.uri != _INLINE:
            given[f"{source.role}_uri"] = source.uri
    return given
