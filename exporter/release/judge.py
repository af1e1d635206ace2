"""The release gate: published packages score held-out rows, and are compared with an earlier release's."""

import logging
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from exporter.artifact.signing import VerifyingKey
from exporter.config.evaluation import EvaluatedTask, Evaluation, read_evaluation
from exporter.distributed.fork_server import ForkServer
from exporter.errors import (
    ExportError,
    InvalidArtifact,
    InvalidRows,
    InvalidSpec,
    OutOfMemory,
    PackageCrashed,
)
from exporter.options.release_gate import ReleaseGate
from exporter.release.cost import Cost, rows_uri_of_tower
from exporter.release.drift import describe_rows, judge_drift, read_statistics
from exporter.release.labelled_rows import LabelledRows
from exporter.release.ranking import TaskAnswers
from exporter.release.releases import JudgedRelease, Side, baseline_finding
from exporter.release.retrieval import judge_retrieval
from exporter.release.scoring import Scorer
from exporter.reports.input_statistics import InputStatistics
from exporter.reports.release_report import Finding, ReleasedArtifacts, ReleaseReport, Verdict
from exporter.serving.downloaded_tower import DownloadedTower, download_tower
from exporter.spec import TowerName
from exporter.stages import Progress

log = logging.getLogger(__name__)


def judge_release(  # noqa: PLR0913  what is judged, by what and where: all but the first three by name
    candidate: ReleasedArtifacts,
    baseline: ReleasedArtifacts | None,
    gate: ReleaseGate,
    *,
    config_text: str,
    scratch: Path,
    item_input_uri: str | None = None,
    key: VerifyingKey | None = None,
    families: Collection[str] = (),
    progress: Progress = lambda fraction, detail: None,
    server: ForkServer | None = None,
) -> ReleaseReport:
    """Measure a published release against labels and against a baseline; raise no error of the tree.

    The report is not blessed, and its `failure` says why, if the release cannot be judged: rows or columns
    are missing, or its own package cannot be run. A baseline that cannot be run, or not on these rows, is a
    finding.

    Args:
        candidate: the release to judge, as published.
        baseline: the release to compare with; None: there is none, and only absolute measures are judged.
        gate: what is measured, and how much worse it may be.
        config_text: the whole pipeline config of the candidate.
        scratch: folder for downloads; what is written there is removed again.
        item_input_uri: rows of all items, for a retrieval model whose item vectors were not published.
        key: the key that must have signed both releases, if any.
        families: custom families whose packages may be loaded.
        progress: called now and then with the share that is done.
        server: it starts the processes that run packages at once, where there is one.
    """
    begun = time.monotonic()
    evidence = _Evidence()
    with tempfile.TemporaryDirectory(dir=scratch, prefix="release-") as folder:
        sources = _Sources(
            folder=Path(folder),
            item_input_uri=item_input_uri,
            key=key,
            families=families,
            progress=progress,
            server=server,
        )
        try:
            _gather(candidate, baseline, gate, config_text, sources, evidence)
        except ExportError as error:
            log.warning("release_not_judged", extra={"code": error.code}, exc_info=True)
            evidence.failure = f"{error.code}: {error.message}" + (f" ({error.hint})" if error.hint else "")
    return ReleaseReport(
        job_id=candidate.job_id,
        baseline=None if baseline is None else baseline.job_id,
        blessed=not evidence.failure and is_blessed(evidence.findings, gate),
        findings=tuple(evidence.findings),
        failure=evidence.failure,
        rows=evidence.rows,
        seconds=round(time.monotonic() - begun, 3),
        statistics=evidence.statistics,
    )


@dataclass(frozen=True, kw_only=True)
class _Sources:
    """Sources and keys by which releases are read, and the folder they are written to."""

    folder: Path
    item_input_uri: str | None
    key: VerifyingKey | None
    families: Collection[str]
    progress: Progress
    server: ForkServer | None


@dataclass(kw_only=True)
class _Evidence:
    """Findings by now, and the reason why there will be no more."""

    findings: list[Finding] = field(default_factory=list)
    failure: str = ""
    rows: int = 0
    statistics: InputStatistics | None = None


def _gather(
    candidate: ReleasedArtifacts,
    baseline: ReleasedArtifacts | None,
    gate: ReleaseGate,
    config_text: str,
    sources: _Sources,
    evidence: _Evidence,
) -> None:
    """Download and measure; raise the error that keeps the candidate from being judged."""
    new = _download(candidate, sources)
    evaluation = _read_evaluation(config_text, new)
    old, notes = _download_baseline(baseline, new, sources)
    evidence.findings.extend(notes)
    judged = JudgedRelease(
        candidate=new,
        baseline=old,
        evaluation=evaluation,
        gate=gate,
        rows_uri=rows_uri_of(gate, evaluation),
        item_input_uri=sources.item_input_uri,
        scratch=sources.folder,
        server=sources.server,
    )
    with Cost(judged) as cost:
        for finding, scored in _judge_together(replace(judged, pairs=cost.pairs)):
            evidence.findings.append(finding)
            evidence.rows = max(evidence.rows, scored)
        if not judged.rows:
            evidence.findings.extend(_read_inputs(judged))
        for rows in judged.rows:
            before = [read_statistics(uri) for uri in dict.fromkeys(old.uris.values())]
            known = next((each for each in before if each is not None), None)
            evidence.statistics = describe_rows(rows)
            evidence.findings.extend(judge_drift(rows, known, gate))
        sources.progress(0.8, "release: latency and size")
        evidence.findings.extend(cost.judge())


def _read_inputs(judged: JudgedRelease) -> Iterator[Finding]:
    """Read the rows of a release whose answers are not judged, for the statistics of its inputs."""
    for name, tower in judged.candidate.towers.items():
        if (uri := rows_uri_of_tower(judged, name)) is not None:
            rows = LabelledRows(uri, [tower], [], max_rows=judged.gate.max_rows)
            judged.note_rows(rows)
            for _ in rows.batches():
                pass
            return
    detail = "inputs are not judged: there are no rows that its towers read"
    yield Finding(measure="drift", verdict=Verdict.TOO_FEW, detail=detail)


def is_blessed(findings: Iterable[Finding], gate: ReleaseGate) -> bool:
    """Return whether no measure failed, and none was left untold unless the gate allows that."""
    refusing = {Verdict.FAILED} if gate.bless_untold else {Verdict.FAILED, Verdict.TOO_FEW}
    return not any(finding.verdict in refusing for finding in findings)


def rows_uri_of(gate: ReleaseGate, evaluation: Evaluation) -> str:
    """Return the URI of the held-out rows: the gate's, or the config's eval_input_path.

    Raises:
        InvalidSpec: neither names any.
    """
    if uri := gate.rows_uri or evaluation.eval_input_path:
        return uri
    raise InvalidSpec(
        "the release gate has no rows: neither release_gate.rows_uri nor the config's eval_input_path is set",
        hint="name a parquet file of held-out rows with their labels in release_gate.rows_uri",
        where="release_gate.rows_uri",
    )


def _judge_together(judged: JudgedRelease) -> list[tuple[Finding, int]]:
    """Judge both releases in one process; if that fails, in two, where it shows which of them it was."""
    try:
        return list(judge_quality(judged))
    except (PackageCrashed, OutOfMemory, InvalidArtifact):
        if not judged.pairs:
            raise
        log.info("release_judged_apart", exc_info=True)
        judged.rows.clear()
        return list(judge_quality(replace(judged, pairs={})))


def judge_quality(judged: JudgedRelease) -> Iterator[tuple[Finding, int]]:
    """Yield the findings on held-out rows, each with the number of rows."""
    if TowerName.MODEL in judged.candidate.towers:
        yield from _judge_ranking(judged)
    elif TowerName.USER in judged.candidate.towers or TowerName.ITEM in judged.candidate.towers:
        yield from judge_retrieval(judged)
    else:
        kinds = " and ".join(judged.candidate.towers)
        yield _not_judged(f"what a tower {kinds} answers is not held against labels"), 0


def _not_judged(why: str, subject: str = "") -> Finding:
    """Return the finding that there is no measure of quality, which is not taken for a good one."""
    return Finding(
        measure="quality",
        subject=subject,
        verdict=Verdict.TOO_FEW,
        detail=f"quality is not judged: {why}; bless_untold blesses the release all the same",
    )


def _judge_ranking(judged: JudgedRelease) -> Iterator[tuple[Finding, int]]:
    name = TowerName.MODEL
    sides = (judged.candidate, judged.baseline)
    towers = [side.towers[name] for side in sides if name in side.towers]
    tasks = list(_find_tasks(judged, towers))
    if not tasks:
        declared = judged.candidate.towers[name].entry.declaration is not None
        why = "the config names no task with a loss and a label whose answers this tower gives"
        yield _not_judged("a custom family says nothing of labels" if declared else why, name), 0
        return
    columns = [column for task in tasks for column in task.columns]
    rows = LabelledRows(judged.rows_uri, towers, columns, max_rows=judged.gate.max_rows)
    judged.note_rows(rows)
    scorer = Scorer(rows, towers, judged.scratch, judged.pairs.get(name), judged.server)
    for batch in scorer.batches():
        for task in tasks:
            task.add(batch)
    if not rows.counts.rows:
        raise InvalidRows(
            f"no row of {rows.uri} could be scored: all name ids that a table has no row for",
            hint="give rows of the model's own vocabulary",
            where=rows.uri,
        )
    if scorer.failure is not None:
        yield baseline_finding(scorer.failure.message), rows.counts.rows
        for task in tasks:
            task.has_baseline = False
    for task in tasks:
        for finding in task.judge():
            yield finding, rows.counts.rows


def _find_tasks(judged: JudgedRelease, towers: Sequence[DownloadedTower]) -> Iterator[TaskAnswers]:
    """Yield the tasks whose answers the tower gives and whose labels have a column.

    Raises:
        InvalidSpec: the gate names the labels of a task that there is not.
    """
    known = {task.name for task in judged.evaluation.tasks}
    for name in judged.gate.labels:
        if name not in known:
            raise InvalidSpec(
                f"release_gate.labels names task {name!r}, and the model has none of this name",
                hint=f"its tasks are {', '.join(map(repr, sorted(known))) or 'none'}",
                where="release_gate.labels",
            )
    for task in judged.evaluation.tasks:
        found = TaskAnswers(
            task=task,
            gate=judged.gate,
            has_baseline=len(towers) > 1 and _gives(towers[1], task),
        )
        if _gives(towers[0], task) and found.label:
            yield found


def _gives(tower: DownloadedTower, task: EvaluatedTask) -> bool:
    return any(output.name == task.output for output in tower.entry.outputs)


def _read_evaluation(config_text: str, candidate: Side) -> Evaluation:
    """Return what the config says of labels; a custom family's config says nothing that is known here."""
    if any(tower.entry.declaration is not None for tower in candidate.towers.values()):
        return Evaluation(eval_input_path="", tasks=(), label="", item_id="")
    return read_evaluation(config_text)


def _download(release: ReleasedArtifacts, sources: _Sources) -> Side:
    folder = sources.folder / "new"
    towers = {
        name: download_tower(uri, name, folder / name, sources.key, families=sources.families)
        for name, uri in release.towers.items()
    }
    return Side(job_id=release.job_id, uris=release.towers, towers=towers, folder=folder)


def _download_baseline(
    baseline: ReleasedArtifacts | None, candidate: Side, sources: _Sources
) -> tuple[Side, list[Finding]]:
    """Return the baseline with the towers that can be compared, and findings on those that cannot."""
    folder, found, findings = sources.folder / "old", dict[TowerName, DownloadedTower](), list[Finding]()
    uris = {} if baseline is None else baseline.towers
    for name in candidate.towers if baseline is not None else ():
        if name not in uris:
            findings.append(baseline_finding(f"it has no {name} tower", name))
            continue
        try:
            found[name] = download_tower(
                uris[name], name, folder / name, sources.key, families=sources.families
            )
        except ExportError as error:
            findings.append(baseline_finding(error.message, name))
    job_id = "" if baseline is None else baseline.job_id
    return Side(job_id=job_id, uris=uris, towers=found, folder=folder), findings
