"""Quality of a retrieval model: its users' vectors find the items they chose, in the published index."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from exporter.data.column import ColumnPlace
from exporter.data.parquet import open_parquet
from exporter.errors import ExportError, InvalidArtifact, InvalidRows
from exporter.options.release_gate import ReleaseGate
from exporter.release.columns import number_groups, read_group, read_numbers, split_lists
from exporter.release.estimates import Codes, count_units, judge_chance, judge_rise, noise_of
from exporter.release.labelled_rows import LabelledBatch, LabelledRows
from exporter.release.published_items import open_items
from exporter.release.ranking import describe_change, judge_answers
from exporter.release.releases import JudgedRelease, Side, baseline_finding
from exporter.release.scoring import Answers, Scorer
from exporter.release.search import ItemSearch, Labels, hits_and_gains
from exporter.reports.release_report import Finding, Verdict
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.spec import TowerName

_VECTORS_LOOKED_AT = 20_000  # rows whose vectors are compared with each other
_ROWS_PER_SEARCH = 4096
_FEWEST_CHANCE_HITS = 0.01  # above chance, a hit rate that a model which knows nothing may seem to have


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Columns beside the features of the user tower."""

    items: str  # the item, or items, that the row's user chose
    label: str  # rows, or items of a row, count if it is above 0; empty: all of them count
    group: str


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """The items that the rows of a batch chose: one place per item, in the order of the rows."""

    items: pa.Array
    row_of_item: Labels

    @property
    def rows(self) -> Labels:
        """Rows that chose any item, ascending."""
        return np.unique(self.row_of_item)

    def count_items(self) -> Labels:
        """Return the number of items of each of these rows."""
        return np.unique(self.row_of_item, return_counts=True)[1]


@dataclass(kw_only=True)
class _Found:
    """Hits and gains of one release, row by row."""

    search: ItemSearch
    output: str  # of the user tower
    cut_offs: tuple[int, ...]
    hits: list[NDArray[np.float64]] = field(default_factory=list)  # each (B, cut-offs)
    gains: list[NDArray[np.float64]] = field(default_factory=list)
    vectors: list[NDArray[np.float32]] = field(default_factory=list)  # of the first rows
    unpublished: int = 0  # chosen items without a vector
    _waiting: list[tuple[NDArray[np.float32], _Chosen]] = field(default_factory=list)

    def add(self, answers: Answers | None, chosen: _Chosen) -> None:
        """Search for what the rows of a batch chose, several batches at once; others do not count."""
        rows = chosen.rows
        if answers is None or not len(rows):
            return
        self._waiting.append((answers[self.output][rows], chosen))
        if sum(len(vectors) for vectors, _ in self._waiting) >= _ROWS_PER_SEARCH:
            self.search_waiting()

    def search_waiting(self) -> None:
        """Search for what batches that wait have chosen."""
        if not self._waiting:
            return
        vectors = np.concatenate([each for each, _ in self._waiting])
        items = pa.concat_arrays([chosen.items for _, chosen in self._waiting])
        per_row = np.concatenate([chosen.count_items() for _, chosen in self._waiting])
        self._waiting.clear()
        places = self.search.rows_of(items)
        wanted = np.split(places, np.cumsum(per_row)[:-1])
        found = self.search.find(vectors, max(self.cut_offs))
        hits, gains = hits_and_gains(found, wanted, self.cut_offs)
        self.hits.append(hits)
        self.gains.append(gains)
        self.unpublished += int((places < 0).sum())
        if sum(map(len, self.vectors)) < _VECTORS_LOOKED_AT:
            self.vectors.append(vectors)


def judge_retrieval(judged: JudgedRelease) -> Iterator[tuple[Finding, int]]:
    """Yield hit rates and NDCG at each cut-off, with the number of rows that they come from.

    Raises:
        InvalidRows: a column is missing, or a row cannot be read.
        InvalidArtifact: the published index cannot be searched.
    """
    if (problem := _why_not(judged, judged.candidate)) is not None:
        detail = f"quality is not judged: {problem}"
        yield Finding(measure="retrieval", verdict=Verdict.TOO_FEW, detail=detail), 0
        return
    sides = [judged.candidate]
    if TowerName.USER in judged.baseline.towers:
        if (problem := _why_not(judged, judged.baseline)) is None:
            sides.append(judged.baseline)
        else:
            yield baseline_finding(problem), 0
    with ExitStack() as searching:
        found = [_open_search(judged, judged.candidate, searching)]
        for side in sides[1:]:
            try:
                found.append(_open_search(judged, side, searching))
            except ExportError as error:
                yield baseline_finding(error.message), 0
        yield from _search_rows(judged, sides[: len(found)], found)


def _open_search(judged: JudgedRelease, side: Side, searching: ExitStack) -> _Found:
    """Start a search among the items of a release, which ends with `searching`."""
    tower = side.towers[TowerName.USER]
    items = open_items(judged, side)
    search = searching.enter_context(ItemSearch(items, _width_of(tower), judged.scratch))
    return _Found(search=search, output=_vector_output(tower), cut_offs=judged.gate.k)


def _search_rows(
    judged: JudgedRelease, sides: Sequence[Side], found: list[_Found]
) -> Iterator[tuple[Finding, int]]:
    columns = choose_columns(judged)
    towers = [side.towers[TowerName.USER] for side in sides]
    rows = LabelledRows(
        judged.rows_uri,
        towers,
        [name for name in (columns.items, columns.label, columns.group) if name],
        max_rows=min(judged.gate.max_rows, *(each.search.most_queries for each in found)),
    )
    judged.note_rows(rows)
    scorer = Scorer(rows, towers, judged.scratch, judged.pairs.get(TowerName.USER), judged.server)
    groups = list[pa.Array]()
    with ThreadPoolExecutor(len(found)) as threads:
        for batch in scorer.batches():
            chosen = _chosen(batch.rows, columns)
            adding = [
                threads.submit(each.add, answers, chosen)
                for each, answers in zip(found, batch.answers, strict=True)
            ]
            for each in adding:
                each.result()
            if columns.group:
                groups.append(read_group(batch.rows, columns.group).take(pa.array(chosen.rows)))
        for each in [threads.submit(each.search_waiting) for each in found]:
            each.result()
    if scorer.failure is not None:
        yield baseline_finding(scorer.failure.message), 0
        del found[1:]
    if not found[0].hits:
        raise InvalidRows(
            f"no row of {rows.uri} names a chosen item in column {columns.items}",
            hint="name the column of the chosen items in release_gate.item_column",
            where=rows.uri,
        )
    yield from _judge_found(judged.gate, found, number_groups(groups) if groups else None)


def _judge_found(
    gate: ReleaseGate, found: Sequence[_Found], groups: Codes | None
) -> Iterator[tuple[Finding, int]]:
    """Yield the findings on what was found in the published items."""
    vectors = np.concatenate(found[0].vectors).astype(np.float64)
    count = sum(map(len, found[0].hits))
    for finding in judge_answers(vectors, TowerName.USER):
        yield finding, count
    for name, allowed in (("hit_rate", gate.hit_rate_drop), ("ndcg", gate.ndcg_drop)):
        values = [np.concatenate(each.hits if name == "hit_rate" else each.gains) for each in found]
        for place, k in enumerate(gate.k):
            old = values[1][:, place] if len(values) > 1 else None
            yield _compare(f"{name}@{k}", values[0][:, place], old, allowed, groups), count
    k = max(gate.k)
    hits = np.concatenate(found[0].hits)[:, gate.k.index(k)]
    yield _judge_chance(hits, k, found[0].search.items, groups), count
    if unpublished := found[0].unpublished:
        detail = f"{unpublished:,} chosen items have no published vector, and count as not found"
        yield (
            Finding(
                measure="unpublished_items",
                value=unpublished,
                rows=count,
                verdict=Verdict.NO_BASELINE,
                detail=detail,
            ),
            count,
        )


def _compare(
    measure: str,
    new: NDArray[np.float64],
    old: NDArray[np.float64] | None,
    allowed: float,
    groups: Codes | None,
) -> Finding:
    """Return the finding on the mean of something that every row has, larger being better."""
    value = float(new.mean())
    finding = Finding(
        measure=measure, value=value, allowed=allowed, rows=len(new), verdict=Verdict.NO_BASELINE
    )
    if old is None:
        return finding
    before = float(old.mean())
    if before <= 0:
        return finding.model_copy(
            update={"baseline": before, "verdict": Verdict.TOO_FEW, "detail": "the baseline finds nothing"}
        )
    noise = noise_of((new - old) - (value - before), groups) / before
    rise, units = (before - value) / before, count_units(len(new), groups)
    verdict = judge_rise(rise, noise, allowed, units)
    detail = describe_change(verdict, rise, noise, allowed, units)
    return finding.model_copy(update={"baseline": before, "verdict": verdict, "detail": detail})


def _judge_chance(hits: NDArray[np.float64], k: int, items: int, groups: Codes | None) -> Finding:
    """Return whether more is found than by drawing items."""
    value, chance = float(hits.mean()), min(1.0, k / max(1, items))
    if chance >= 1:
        detail = f"lists of {k} hold all {items} items, so that all of them find everything"
        return Finding(measure="above_chance", value=value, verdict=Verdict.NO_BASELINE, detail=detail)
    # No hit at all has no noise of its own: at least that of drawing is taken.
    noise = max(noise_of(hits - value, groups), float(np.sqrt(chance * (1 - chance) / len(hits))))
    units = count_units(len(hits), groups)
    verdict = judge_chance(value, noise, chance, max(chance, _FEWEST_CHANCE_HITS), units)
    return Finding(
        measure="above_chance",
        subject=f"hit_rate@{k}",
        value=value,
        allowed=chance,
        rows=len(hits),
        verdict=verdict,
        detail=f"{k} of {items:,} items drawn at random would find {chance:.4g}",
    )


def choose_columns(judged: JudgedRelease) -> Columns:
    """Return the columns of chosen items and labels.

    Raises:
        InvalidRows: no column is known to hold the chosen items.
    """
    gate, there = judged.gate, open_parquet(judged.rows_uri).column_names()
    items = gate.item_column or _find_item_column(judged, there)
    label = gate.labels.get("", judged.evaluation.label)
    given = "" in gate.labels  # a column that the request names must be there
    return Columns(items=items, label=label if given or label in there else "", group=gate.group_column or "")


def _find_item_column(judged: JudgedRelease, there: Sequence[str]) -> str:
    """Return the column of the id of the item, or that of a candidate sequence which ends in its name."""
    id_column = judged.id_column
    read_by_user = {feature.name for feature in judged.candidate.towers[TowerName.USER].features}
    for name in (id_column, judged.evaluation.item_id):
        if name and name in there:
            return name
    ends = [name for name in there if name.endswith(f"__{id_column}") and name not in read_by_user]
    if len(ends) == 1:
        return ends[0]
    raise InvalidRows(
        f"{judged.rows_uri} has no column {id_column!r} with the item that each row's user chose",
        hint="name the column in release_gate.item_column",
        where=judged.rows_uri,
    )


def _chosen(batch: LabelledBatch, columns: Columns) -> _Chosen:
    """Return the chosen items of those labels that count."""
    items, rows = split_lists(batch, columns.items)
    keep = items.is_valid().to_numpy(zero_copy_only=False)
    if columns.label:
        labels, per_row = read_numbers(batch, columns.label)
        if per_row is None:
            keep &= (labels > 0)[rows]
        elif len(labels) == len(items):
            keep &= labels > 0
        else:
            place = ColumnPlace(where=batch.where, column=columns.label, first_row=batch.first_row)
            place.refuse(
                f"holds {len(labels)} labels for the {len(items)} items of {columns.items}",
                hint="write one label per item, or per row",
            )
    return _Chosen(items=items.filter(pa.array(keep)), row_of_item=rows[keep])


def _vector_output(tower: DownloadedTower) -> str:
    """Return the name of the output that holds the users' vectors.

    Raises:
        InvalidArtifact: the tower has no such output.
    """
    for output in tower.entry.outputs:
        if len(output.shape) in (2, 3) and output.dtype.startswith("float") and _last(output.shape):
            return output.name
    raise InvalidArtifact(f"the {tower.entry.name} tower gives no vectors", hint="export a retrieval model")


def _width_of(tower: DownloadedTower) -> int:
    name = _vector_output(tower)
    return next(_last(output.shape) for output in tower.entry.outputs if output.name == name)


def _last(shape: Sequence[int | str]) -> int:
    return shape[-1] if isinstance(shape[-1], int) else 0


def _why_not(judged: JudgedRelease, side: Side) -> str | None:
    """Return why the items of a release cannot be searched, if that is so."""
    if TowerName.USER not in side.towers or TowerName.ITEM not in side.towers:
        there = " and ".join(side.towers) or "none"
        return f"hit rates need a user and an item tower, and of release {side.job_id} there is {there}"
    if side.towers[TowerName.ITEM].entry.vectors is None and judged.item_input_uri is None:
        return (
            f"release {side.job_id} published no item vectors, and there are no item rows to compute them "
            "from: export with materialise_items, or give item_input_uri"
        )
    return None
