"""Two releases on disk, and what they are judged by."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from exporter.comparison.latency import PairRunner
from exporter.config.evaluation import Evaluation
from exporter.distributed.fork_server import ForkServer
from exporter.errors import InvalidRows
from exporter.options.release_gate import ReleaseGate
from exporter.release.labelled_rows import LabelledRows
from exporter.reports.release_report import Finding, Verdict
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.spec import TowerName


@dataclass(frozen=True, kw_only=True)
class Side:
    """One release: its towers on disk, and the artifacts that they came from."""

    job_id: str
    uris: Mapping[TowerName, str]
    towers: Mapping[TowerName, DownloadedTower]  # of the baseline, those that can be compared
    folder: Path


@dataclass(frozen=True, kw_only=True)
class JudgedRelease:
    """The candidate and the baseline, with the rows and columns that they are judged by."""

    candidate: Side
    baseline: Side  # without towers if there is none
    evaluation: Evaluation
    gate: ReleaseGate
    rows_uri: str
    item_input_uri: str | None  # rows of all items
    scratch: Path
    rows: list[LabelledRows] = field(default_factory=list)  # that were read, tower by tower
    server: ForkServer | None = None  # of the processes that run packages; without it each starts by itself
    # Baseline and candidate in one process, by tower; empty: each is run in a process of its own.
    pairs: Mapping[TowerName, Future[PairRunner]] = field(default_factory=dict)

    @property
    def id_column(self) -> str:
        """Column by which items are identified: of the published vectors, or a feature of the item tower.

        The sampler names an item as training rows do, where it may be the member of a sequence of candidates.

        Raises:
            InvalidRows: the tower reads no ids.
        """
        tower = self.candidate.towers[TowerName.ITEM]
        if tower.entry.vectors is not None:
            return tower.entry.vectors.id_column
        names, sampled = [feature.name for feature in tower.features], self.evaluation.item_id
        by_sampler = [name for name in names if name == sampled or sampled.endswith(f"__{name}")]
        ids = [feature.name for feature in tower.features if feature.is_sparse]
        if column := next(iter([*by_sampler, *ids]), ""):
            return column
        raise InvalidRows(
            f"the {TowerName.ITEM} tower of job {self.candidate.job_id} reads no ids by which items could "
            "be told apart",
            hint="export with materialise_items, and name the column of the ids in item_id_column",
            where="item_id_column",
        )

    def note_rows(self, rows: LabelledRows) -> None:
        """Keep rows that are read, for their counts and statistics."""
        self.rows.append(rows)


def baseline_finding(problem: str, subject: str = "") -> Finding:
    """Return the finding that there is a baseline which nothing can be compared with."""
    return Finding(
        measure="baseline",
        subject=subject,
        verdict=Verdict.TOO_FEW,
        detail=f"the baseline cannot be compared: {problem}",
    )
