"""A tower's packages: warm where the code cache has their code, else cold; through the gate in any case."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Literal

from exporter.aoti.code import ProgramCode
from exporter.attempt.attempt import EVIDENCE
from exporter.attempt.stage_timeout import TRACE_LOG
from exporter.code_cache.cache import CodeCache
from exporter.code_cache.fingerprint import graph_fingerprint, request_key
from exporter.errors import ExportError, OutOfMemory
from exporter.lowering.errors import PrecisionLost
from exporter.manifest import TensorEntry, TraceTime, VerificationReport
from exporter.packages.parts import (
    CodedPart,
    CompiledPart,
    Part,
    TracedPart,
    assemble_parts,
    compile_part,
    of_part,
    trace_parts,
    weights_of,
)
from exporter.packages.request import PackageOrder, failures_made_small, untraceable_made_small
from exporter.stages import Progress, Stage, StageClock
from exporter.trace.trace_log import log_nodes
from exporter.verify.fp32 import AgainstFp32
from exporter.verify.gate import Gate

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CodeOrigin:
    """Whether code was compiled for this export, or taken from the cache: all of it, or it counts as cold."""

    code: Literal["cold", "warm"]
    reused: Literal["request", "graph"] | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Packaged:
    """Packages that passed the gate, the gate, and its report on them."""

    parts: tuple[CompiledPart, ...]
    origin: CodeOrigin
    gate: Gate
    report: VerificationReport
    trace: TraceTime | None

    @property
    def outputs(self) -> tuple[TensorEntry, ...]:
        """The tower's, which are its last part's."""
        return self.parts[-1].known.outputs

    @property
    def op_libraries(self) -> tuple[str, ...]:
        """To import before a package is loaded."""
        return _op_libraries(self.parts)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Unverified:
    """Packages that have not been verified, and which of their code came out of the cache."""

    parts: tuple[CompiledPart, ...]
    origin: CodeOrigin
    traced: tuple[TracedPart, ...] = ()  # none for an equal request
    reused: tuple[ProgramCode, ...] = ()
    trace: TraceTime | None = None


def package_tower(order: PackageOrder, cache: CodeCache | None, clock: StageClock) -> Packaged:
    """Packages of the tower that have passed the gate.

    Code of the cache that does not pass is dropped, and everything is made anew, once.

    Raises:
        ExportError: tracing, compiling or the gate refused the tower.
    """
    if cache is None:
        return _verified(order, _cold(order, clock, note="there is no code cache"), clock)
    key = request_key([part.tower for part in order.parts], order.passes, order.device, order.target)
    made = _from_cache(order, cache, key, clock)
    try:
        packaged = _verified(order, made, clock)
    # The code does what it should: other code would lose as much, or take as much memory.
    except (PrecisionLost, OutOfMemory):
        raise
    except ExportError as error:
        if not made.reused:
            raise
        cache.remove(key, made.reused)
        log.warning("cached_code_dropped", extra={"tower": order.tower.name, "reason": error.message})
        note = f"code of the cache was dropped: {error.message}"
        clock.note(Stage.VERIFY, note)
        packaged = _verified(order, _cold(order, clock, note=note), clock)
    if packaged.origin.reused != "request":  # what is kept has passed
        cache.store(key, [part.known for part in packaged.parts])
    return packaged


def _from_cache(order: PackageOrder, cache: CodeCache, key: str, clock: StageClock) -> _Unverified:
    """The code of the whole request, or of each traced graph that the cache knows."""
    with clock.stage(Stage.TRACE) as progress:
        found = () if order.passes else cache.find_request(key)  # a pass edits what has been traced
        note = _misfit(order.parts, found) if found else "the code cache has no code of this request"
        if not note:
            progress(1.0, "skipped: warm, the code of an equal request is reused")
        traced, took = _trace(order, progress) if note else ((), None)
    if note:
        return replace(_by_graph(traced, order, cache, note, clock), trace=took)
    with clock.stage(Stage.COMPILE) as progress:
        progress(1.0, "skipped: warm, the code of an equal request is reused")
        coded = [
            CodedPart(part=part, known=known, weights=part.tower.module.state_dict())
            for part, known in zip(order.parts, found, strict=True)
        ]
        return _Unverified(
            parts=assemble_parts(coded, order.folder),
            origin=CodeOrigin(code="warm", reused="request"),
            reused=found,
        )


def _by_graph(
    traced: tuple[TracedPart, ...], order: PackageOrder, cache: CodeCache, note: str, clock: StageClock
) -> _Unverified:
    """Each part's code by the fingerprint of its graph, compiled where the cache lacks it."""
    coded: list[CodedPart] = []
    reused: list[ProgramCode] = []
    with failures_made_small(order, traced), clock.stage(Stage.COMPILE) as progress:
        for done, each in enumerate(traced):
            fingerprint = graph_fingerprint(each.program, order.device, order.target)
            known, weights = cache.find_graph(fingerprint), weights_of(each)
            if known is None or known.find_mismatch(weights):
                told = of_part(progress, done, len(traced))
                coded.append(compile_part(each, fingerprint, told, target=order.target))
            else:
                progress((done + 1) / len(traced), f"{each.part.path}: warm, an equal graph's code is reused")
                coded.append(CodedPart(part=each.part, known=known, weights=weights, passes=each.passes))
                reused.append(known)
        parts = assemble_parts(coded, order.folder)
    warm = len(reused) == len(coded)
    origin = CodeOrigin(code="warm", reused="graph") if warm else CodeOrigin(code="cold", note=note)
    return _Unverified(parts=parts, origin=origin, traced=traced, reused=tuple(reused))


def _cold(order: PackageOrder, clock: StageClock, *, note: str) -> _Unverified:
    with clock.stage(Stage.TRACE) as progress:
        traced, took = _trace(order, progress)
    coded: list[CodedPart] = []
    with failures_made_small(order, traced), clock.stage(Stage.COMPILE) as progress:
        for done, each in enumerate(traced):
            fingerprint = graph_fingerprint(each.program, order.device, order.target)
            told = of_part(progress, done, len(traced))
            coded.append(compile_part(each, fingerprint, told, target=order.target))
        parts = assemble_parts(coded, order.folder)
    return _Unverified(parts=parts, origin=CodeOrigin(code="cold", note=note), traced=traced, trace=took)


def _trace(order: PackageOrder, progress: Progress) -> tuple[tuple[TracedPart, ...], TraceTime]:
    with untraceable_made_small(order), log_nodes(order.folder / EVIDENCE / TRACE_LOG) as log:
        traced = trace_parts(order.parts, order.inputs, order.device, progress, passes=order.passes)
    order.on_traced(traced)
    return traced, log.summary()


def _misfit(parts: Sequence[Part], found: Sequence[ProgramCode]) -> str:
    """Why code of an equal request cannot take these weights; nothing if it can."""
    if len(parts) != len(found):
        return f"the code cache has {len(found)} packages of this request, and it takes {len(parts)}"
    for part, known in zip(parts, found, strict=True):
        if misfit := known.find_mismatch(part.tower.module.state_dict()):
            return f"the weights do not fit the code of an equal request: {misfit}"
    return ""


def _verified(order: PackageOrder, made: _Unverified, clock: StageClock) -> Packaged:
    """The packages, once they have been held against eager."""
    # What fails with reused code may be the code's fault; it is made anew, and then made small if need be.
    making_small = nullcontext() if made.reused else failures_made_small(order, made.traced)
    with making_small, clock.stage(Stage.VERIFY) as progress:
        gate = Gate(
            order.tower,
            [part.link for part in made.parts],
            op_libraries=_op_libraries(made.parts),
            scratch=order.folder,
            device=order.device,
            passes=order.passes,
            programs=[part.program for part in made.traced],
            lookup=order.lookup,
            fp32=AgainstFp32(reference=order.fp32) if order.fp32 else None,
            call_limit_s=order.call_limit_s,
            ahead=order.runner,
        )
        report = gate.verify(order.agreeing(), order.contradicting(), progress)
    return Packaged(parts=made.parts, origin=made.origin, gate=gate, report=report, trace=made.trace)


def _op_libraries(parts: Sequence[CompiledPart]) -> tuple[str, ...]:
    return tuple(sorted({library for part in parts for library in part.known.op_libraries}))
