"""The packages that `slipway check` runs: those of an artifact, or ones compiled for the check."""

from collections.abc import Sequence
from pathlib import Path

from exporter.aoti.architecture import require_target
from exporter.check.task import CheckTask
from exporter.code_cache.cache import CodeCache, open_code_cache
from exporter.code_cache.fingerprint import graph_fingerprint
from exporter.packages.parts import CodedPart, PackagePlan, TracedPart, assemble_parts, compile_part
from exporter.pipeline.open_tower import OpenedTower
from exporter.spec import Target
from exporter.trace.op_libraries import find_op_libraries
from exporter.verify.runnable_tower import RunnableTower


def make_runnable(
    opened: OpenedTower,
    packages: PackagePlan,
    traced: Sequence[TracedPart],
    task: CheckTask,
    folder: Path,
) -> RunnableTower:
    """Return the tower with its packages, from the artifact if there is one, else compiled below `folder`."""
    lookup, scripted, name = packages.lookup, packages.scripted, opened.tower.name
    if task.published is not None:
        downloaded = task.published.download_tower(name, folder / "artifact", task.families)
        chain, lookup, outputs = downloaded.chain, downloaded.lookup or lookup, downloaded.entry.outputs
    else:
        cache = open_code_cache(task.code_cache) if task.code_cache else None
        coded = [_code_part(each, cache, task.spec.targets[0]) for each in traced]
        chain, outputs = tuple(part.link for part in assemble_parts(coded, folder)), coded[-1].code.outputs
        if scripted is not None:
            chain = (scripted.write(folder).link, *chain)
    return RunnableTower(
        tower=opened.tower,
        chain=chain,
        op_libraries=find_op_libraries(each.program for each in traced),
        scratch=folder,
        device=opened.device,
        passes=task.spec.passes_of(name),
        parts=[*([scripted.tower] if scripted else []), *(each.part.tower for each in traced)],
        outputs=outputs,
        programs=[each.program for each in traced],
        lookup=lookup,
    )


def _code_part(traced: TracedPart, cache: CodeCache | None, target: Target) -> CodedPart:
    """Take the part's code from the cache, or compile it; nothing is stored in the cache."""
    fingerprint = graph_fingerprint(traced.program, require_target(target), target)
    code, weights = cache.find_graph(fingerprint) if cache else None, traced.weights
    if code is None or code.find_mismatch(weights):
        return compile_part(traced, fingerprint, target=target)
    return CodedPart(part=traced.part, code=code, weights=weights, passes=traced.passes)
