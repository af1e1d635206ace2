"""A sample comparison of two releases, with names and settings of a stranger who means harm."""

from exporter.dtypes import TableDtype
from exporter.reports.comparison import (
    ArtifactRef,
    Change,
    Changes,
    CodeDiff,
    Comparison,
    FileDiff,
    Histogram,
    LatencyDiff,
    LatencyRatio,
    OutputDiff,
    Outputs,
    RowChange,
    Sizes,
    TableDiff,
    TowerDiff,
    VectorsDiff,
    WeightDiff,
    Weights,
)
from exporter.spec import TowerName
from tests.dashboard.sample import NASTY

SIDE = ArtifactRef(uri=f"s3://m/{NASTY}", job_id=f"old{NASTY}", created_at=NASTY, family=NASTY)
EDGES = (0.0, 0.1, 1.0, 10.0)


def table(number: int = 0) -> TableDiff:
    return TableDiff(
        name=f"t{number}{NASTY}",
        path=NASTY,
        old_rows=5000,
        new_rows=5100,
        old_width=16,
        new_width=16,
        old_dtype=TableDtype.FP32,
        new_dtype=TableDtype.INT8,
        rows_compared=5000,
        rows_changed=37,
        rows_added=100,
        mean_norm_change=0.01,
        largest_norm_change=1.5,
        mean_cosine=0.99,
        least_cosine=-0.25,
        norms=Histogram(edges=EDGES, old=(1, 4000, 999), new=(2, 4000, 998)),
        relative_changes=Histogram(edges=EDGES, old=(0, 0, 0), new=(30, 5, 2)),
        most_changed=(RowChange(row=4711, distance=1.75, old_norm=2.0, new_norm=0.5, cosine=-0.25),),
        note=NASTY,
    )


def output(number: int = 0) -> OutputDiff:
    return OutputDiff(
        name=f"y{number}{NASTY}",
        rows=200,
        rows_changed=150,
        rows_not_finite=1,
        mean_difference=0.01,
        largest_difference=0.5,
        correlation=0.98,
        rank_correlation=0.97,
        shares=(0.0, 0.5, 1.0),
        old_quantiles=(0.0, 0.4, 1.0),
        new_quantiles=(0.0, 0.5, 1.0),
        histogram=Histogram(edges=EDGES, old=(50, 100, 50), new=(40, 110, 50)),
        note="",
    )


def changes(count: int) -> Changes:
    listed = tuple(Change(place=f"{NASTY}[{number}]", old=NASTY, new=None) for number in range(count))
    return Changes(listed=listed, total=count + 7)


def comparison(*, many: int = 1) -> Comparison:
    """Both towers, with this many of everything that is listed."""
    ratio = LatencyRatio(
        batch=64, rounds=50, old_ms=2.0, new_ms=2.5, ratio=1.25, low=1.2, high=1.3, confidence=0.99
    )
    tower = TowerDiff(
        name=TowerName.USER,
        interface=changes(many),
        code=CodeDiff(same=False, same_sources=True, changed=(NASTY,), old_origin="cold", new_origin="warm"),
        tables=tuple(table(number) for number in range(many)),
        tables_total=many + 1,
        tables_changed=many,
        weights=Weights(
            listed=tuple(
                WeightDiff(name=NASTY, old_shape=(3, 4), new_shape=(3, 4), numbers_changed=12, relative=0.5)
                for _ in range(many)
            ),
            total=many + 30,
            changed=many,
        ),
        outputs=Outputs(rows_uri=NASTY, rows=200, outputs=tuple(output(number) for number in range(many))),
        vectors=VectorsDiff(
            old_items=10,
            new_items=12,
            compared=12,
            found=9,
            mean_cosine=0.9,
            least_cosine=0.5,
            cosines=Histogram(edges=EDGES, old=(0, 0, 0), new=(1, 8, 0)),
        ),
        latency=LatencyDiff(ratios=(ratio,), note=NASTY),
        sizes=Sizes(
            old_bytes=1000,
            new_bytes=2000,
            files=tuple(FileDiff(path=NASTY, old_size=1000, new_size=None) for _ in range(many)),
        ),
    )
    item = TowerDiff(name=TowerName.ITEM, only_in="new", sizes=Sizes(new_bytes=5))
    return Comparison(
        old=SIDE,
        new=SIDE.model_copy(update={"job_id": "new"}),
        same=False,
        artifact=changes(many),
        config=changes(many),
        towers=(tower, item),
        seconds=3.0,
    )
