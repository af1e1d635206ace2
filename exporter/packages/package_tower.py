"""Packaging a tower: with code of the code cache where there is some, else compiled; verified in any case."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

from exporter.aoti.code import ProgramCode
from exporter.attempt.attempt import DIAGNOSTICS
from exporter.attempt.stage_timeout import TRACE_LOG
from exporter.code_cache.cache import CodeCache
from exporter.code_cache.fingerprint import graph_fingerprint
from exporter.dims.entries import Tried
from exporter.errors import ExportError, OutOfMemory
from exporter.lowering.errors import PrecisionLost
from exporter.manifest import TensorEntry, TraceTime, VerificationReport
from exporter.packages.parts import (
    CodedPart,
    CompiledPart,
    TracedPart,
    assemble_parts,
    compile_part,
    part_progress,
    trace_parts,
)
from exporter.packages.request import PackagingRequest, minify_build_failure, minify_tracing_failure
from exporter.packages.scripted_part import WrittenPart
from exporter.readback.errors import ArchiveDiffers, WeightsDiffer
from exporter.readback.packages import WrittenPackage, read_back
from exporter.readback.tower_weights import find_altered_constant
from exporter.stages import Progress, Stage, StageClock
from exporter.trace.trace_log import log_nodes
from exporter.verify.cases import measure_tried
from exporter.verify.gate import verify_tower
from exporter.verify.runnable_tower import RunnableTower

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CodeOrigin:
    """Origin of the code: warm, if all of it was taken from the cache; cold, if any had to be compiled."""

    code: Literal["cold", "warm"]
    reused: Literal["request", "graph"] | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Packaged:
    """A tower's packages that passed the gate, how to run them, and the gate's report on them."""

    parts: tuple[CompiledPart, ...]
    origin: CodeOrigin
    runnable: RunnableTower
    report: VerificationReport
    tried: Tried  # the sizes of the cases
    trace: TraceTime | None  # None: code of an equal request was reused, and nothing was traced
    scripted: WrittenPart | None = None  # in front of the parts

    @property
    def written(self) -> tuple[WrittenPart | CompiledPart, ...]:
        """All packages on disk, in calling order."""
        return (self.scripted, *self.parts) if self.scripted else self.parts

    @property
    def outputs(self) -> tuple[TensorEntry, ...]:
        """The outputs of the tower, which are those of its last part."""
        return self.parts[-1].code.outputs

    @property
    def op_libraries(self) -> tuple[str, ...]:
        """Modules to import before a package is loaded, because they register its operators."""
        return _op_libraries(self.parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Unverified:
    """Packages that have not been verified, and the part of their code that came out of the cache."""

    parts: tuple[CompiledPart, ...]
    origin: CodeOrigin
    traced: tuple[TracedPart, ...] = ()  # none for an equal request
    reused: tuple[ProgramCode, ...] = ()
    trace: TraceTime | None = None
    scripted: WrittenPart | None = None  # in front of the parts


def package_tower(request: PackagingRequest, cache: CodeCache | None, clock: StageClock) -> Packaged:
    """Return the packages of a tower, which have passed the gate.

    Code of the cache that does not pass is dropped, and all of the tower is traced and compiled, once.

    Raises:
        ExportError: tracing, compiling or the gate refused the tower.
    """
    if cache is None:
        return _verify(request, _build(request, None, clock, "there is no code cache"), clock)
    unverified = _build(request, cache, clock)
    try:
        packaged = _verify(request, unverified, clock)
    # The code does what it should: other code would lose as much, or need as much, or differ as well.
    except (PrecisionLost, OutOfMemory, WeightsDiffer, ArchiveDiffers):
        raise
    except ExportError as error:
        if not unverified.reused:
            raise
        cache.remove(request.cache_key, unverified.reused)
        log.warning("cached_code_dropped", extra={"tower": request.tower.name, "reason": error.message})
        note = f"code of the cache was dropped: {error.message}"
        clock.note(Stage.VERIFY, note)
        packaged = _verify(request, _build(request, None, clock, note), clock)
    if packaged.origin.reused != "request":  # code is kept only once it has passed
        cache.store(request.cache_key, [part.code for part in packaged.parts])
    return packaged


def _build(
    request: PackagingRequest, cache: CodeCache | None, clock: StageClock, no_cache: str = ""
) -> _Unverified:
    """Build the packages of code of an equal request; else trace, and reuse or compile code by graph.

    Without a cache all code is compiled; `no_cache` says why there is none.
    """
    found: tuple[ProgramCode, ...] = ()
    with clock.stage(Stage.TRACE) as progress:
        if cache is not None and not request.passes:  # a pass edits the traced program
            found = cache.find_request(request.cache_key)
        dropped = f"; dropped of it: {'; '.join(cache.dropped)}" if cache and cache.dropped else ""
        note = no_cache or _misfit(request, found, dropped)
        traced = _trace(request, progress) if note else None
        if traced is None:
            progress(1.0, "skipped: warm, the code of an equal request is reused")
    if traced is not None:
        return _build_by_graph(request, *traced, cache, clock, note)
    with clock.stage(Stage.COMPILE) as progress:
        progress(1.0, "skipped: warm, the code of an equal request is reused")
        coded = [
            CodedPart(part=part, code=code, weights=part.tower.module.state_dict())
            for part, code in zip(request.parts, found, strict=True)
        ]
        return _Unverified(
            scripted=request.write_scripted(),
            parts=assemble_parts(coded, request.folder),
            origin=CodeOrigin(code="warm", reused="request"),
            reused=found,
        )


def _misfit(request: PackagingRequest, found: Sequence[ProgramCode], dropped: str) -> str:
    """Return why the cache's code of an equal request cannot be used for these weights; empty if it can."""
    if not found:
        return f"the code cache has no code of this request{dropped}"
    parts = request.parts
    if len(parts) != len(found):
        return f"the code cache has {len(found)} packages of this request, and it takes {len(parts)}"
    for part, code in zip(parts, found, strict=True):
        if misfit := code.find_mismatch(part.tower.module.state_dict()):
            return f"the weights do not fit the code of an equal request: {misfit}"
    return ""


def _trace(request: PackagingRequest, progress: Progress) -> tuple[tuple[TracedPart, ...], TraceTime]:
    with minify_tracing_failure(request), log_nodes(request.folder / DIAGNOSTICS / TRACE_LOG) as log:
        traced = trace_parts(request.parts, request.inputs, request.device, progress, passes=request.passes)
    request.on_traced(traced)
    return traced, log.summary()


def _build_by_graph(
    request: PackagingRequest,
    traced: tuple[TracedPart, ...],
    trace_time: TraceTime,
    cache: CodeCache | None,
    clock: StageClock,
    note: str,
) -> _Unverified:
    """Take each part's code from the cache by the fingerprint of its graph; compile what is not there."""
    coded: list[CodedPart] = []
    reused: list[ProgramCode] = []
    with minify_build_failure(request, traced), clock.stage(Stage.COMPILE) as progress:
        for done, each in enumerate(traced):
            fingerprint = graph_fingerprint(each.program, request.device, request.target)
            code, weights = cache.find_graph(fingerprint) if cache else None, each.weights
            if (
                code is None
                or code.find_mismatch(weights)
                or find_altered_constant(code.code.values, each.program.constants)
            ):
                report = part_progress(progress, done, len(traced))
                coded.append(compile_part(each, fingerprint, report, target=request.target))
            else:
                progress((done + 1) / len(traced), f"{each.part.path}: warm, an equal graph's code is reused")
                coded.append(CodedPart(part=each.part, code=code, weights=weights, passes=each.passes))
                reused.append(code)
        scripted = request.write_scripted()
        parts = assemble_parts(coded, request.folder)
    warm = len(reused) == len(coded)
    kept = note if cache is not None and cache.dropped else ""  # of a warm export: only what was dropped
    origin = (
        CodeOrigin(code="warm", reused="graph", note=kept) if warm else CodeOrigin(code="cold", note=note)
    )
    return _Unverified(
        parts=parts,
        origin=origin,
        traced=traced,
        reused=tuple(reused),
        trace=trace_time,
        scripted=scripted,
    )


def _verify(request: PackagingRequest, unverified: _Unverified, clock: StageClock) -> Packaged:
    """Take the packages through the gate."""
    # A failure with reused code may be the code's fault: all is built anew then, and minified if need be.
    scripted = unverified.scripted
    minifying = nullcontext() if unverified.reused else minify_build_failure(request, unverified.traced)
    with minifying, clock.stage(Stage.VERIFY) as progress:
        runnable = RunnableTower(
            tower=request.tower,
            chain=[*([scripted.link] if scripted else []), *(part.link for part in unverified.parts)],
            op_libraries=_op_libraries(unverified.parts),
            scratch=request.folder,
            device=request.device,
            passes=request.passes,
            parts=[*([scripted.part.tower] if scripted else []), *(part.tower for part in request.parts)],
            outputs=unverified.parts[-1].code.outputs,
            programs=[part.program for part in unverified.traced],
            lookup=request.lookup,
            fp32=request.fp32,
            call_limit_s=request.call_limit_s,
            ahead=request.runner,
        )
        compared = read_back(_written_packages(request, unverified), request.weights, progress)
        if scripted is not None:
            compared = scripted.read_back(request.weights, compared)
        cases = request.make_cases()
        report = verify_tower(runnable, cases, progress, request.on_checked)
    return Packaged(
        parts=unverified.parts,
        origin=unverified.origin,
        runnable=runnable,
        report=report.model_copy(update={"read_back": compared}),
        tried=measure_tried(cases.must_agree, request.tower.plan, report.cases),
        trace=unverified.trace,
        scripted=scripted,
    )


def _written_packages(request: PackagingRequest, unverified: _Unverified) -> list[WrittenPackage]:
    traced = unverified.traced or [None] * len(unverified.parts)
    return [
        WrittenPackage(
            title=request.tower.title,
            file=part.package,
            code=part.code.code,
            module=part.part.tower.module,
            weights=part.part.tower.module.state_dict() if program is None else program.weights,
            constants=None if program is None else program.program.constants,
            edited=bool(part.passes),
        )
        for part, program in zip(unverified.parts, traced, strict=True)
    ]


def _op_libraries(parts: Sequence[CompiledPart]) -> tuple[str, ...]:
    return tuple(sorted({library for part in parts for library in part.code.op_libraries}))
