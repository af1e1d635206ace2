"""What to check, and the packages to check it by."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from exporter.aoti.architecture import require_target
from exporter.check.artifact import Published
from exporter.code_cache.cache import CodeCache, open_code_cache
from exporter.code_cache.fingerprint import graph_fingerprint
from exporter.packages.parts import CodedPart, TracedPart, assemble_parts, compile_part
from exporter.spec import ExportSpec, Target, TowerName
from exporter.towers.lookup import LookUp
from exporter.verify.reload import Link


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What to check, and how thoroughly."""

    spec: ExportSpec
    published: Published | None = None  # check its packages; else they are compiled
    families: Collection[str] = ()
    sizes: int = 16  # to draw
    seed: int = 20
    code_cache: str | None = None
    shrink_into: Path | None = None  # where to keep the smallest graph that fails


@dataclass(frozen=True, kw_only=True)
class Packages:
    """A tower's packages in calling order; what looks up in front of them, if the artifact says."""

    chain: tuple[Link, ...]
    lookup: LookUp | None = None


def packages_of(tower: TowerName, traced: Sequence[TracedPart], wanted: Wanted, folder: Path) -> Packages:
    """The packages: those of the artifact, or ones that are compiled now."""
    if wanted.published is not None:
        served = wanted.published.served(tower, folder / "artifact", wanted.families)
        return Packages(chain=served.chain, lookup=served.lookup)
    cache = open_code_cache(wanted.code_cache) if wanted.code_cache else None
    coded = [_coded(each, cache, wanted.spec.targets[0]) for each in traced]
    return Packages(chain=tuple(part.link for part in assemble_parts(coded, folder)))


def _coded(traced: TracedPart, cache: CodeCache | None, target: Target) -> CodedPart:
    fingerprint = graph_fingerprint(traced.program, require_target(target), target)
    code, weights = cache.find_graph(fingerprint) if cache else None, traced.weights
    if code is None or code.find_mismatch(weights):
        return compile_part(traced, fingerprint, target=target)
    return CodedPart(part=traced.part, code=code, weights=weights, passes=traced.passes)
