"""The conditions under which a published release may be promoted."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, StrictBool, model_validator

from exporter.frozen import Frozen

MAX_CUT_OFFS = 8
_Column = Annotated[str, Field(min_length=1, max_length=256)]
PROMOTED_BASELINE = "promoted"


class ReleaseGate(Frozen):
    """The held-out rows that score a published release, and the baseline it may not be worse than."""

    rows_uri: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="Parquet with held-out rows and their labels; default: the config's eval_input_path.",
    )
    max_rows: int = Field(
        default=100_000, ge=1, le=10_000_000, description="Held-out rows that are scored, at most."
    )
    baseline: str = Field(
        default=PROMOTED_BASELINE,
        min_length=1,
        max_length=128,
        description="Release to compare with: `promoted`, the model's promoted release, or a job's id.",
    )
    labels: Mapping[Annotated[str, Field(max_length=256)], _Column] = Field(
        default={},
        max_length=64,
        description="Column of the labels of each task, by the task's name; the empty name is that of the "
        "only task. Default: the config's label_name, or the first of its label_fields.",
    )
    group_column: _Column | None = Field(
        default=None,
        description="Column that groups rows, usually of the user. Default: the config's grouping_key.",
    )
    weight_column: _Column | None = Field(
        default=None, description="Column of sample weights. Default: the config's, if it names one."
    )
    item_column: _Column | None = Field(
        default=None,
        description="Retrieval: column of the held-out rows with the item, or items, that a row's user "
        "chose. Default: the column by which items are identified, or the sampler's item_id_field.",
    )
    k: tuple[Annotated[int, Field(ge=1, le=1000)], ...] = Field(
        default=(10, 50),
        min_length=1,
        max_length=MAX_CUT_OFFS,
        description="Retrieval: lengths of the lists of items at which hit rate and NDCG are measured.",
    )
    auc_drop: float = Field(default=0.005, gt=0, le=1, description="Largest drop of AUC.")
    gauc_drop: float = Field(default=0.01, gt=0, le=1, description="Largest drop of grouped AUC.")
    accuracy_drop: float = Field(default=0.01, gt=0, le=1, description="Largest drop of accuracy.")
    ne_rise: float = Field(
        default=0.01, gt=0, le=10, description="Largest rise of normalised entropy, as a fraction of it."
    )
    error_rise: float = Field(
        default=0.03,
        gt=0,
        le=10,
        description="Largest rise of mean absolute and mean squared error, as a fraction of them.",
    )
    calibration_rise: float = Field(
        default=0.1,
        gt=0,
        le=10,
        description="Largest rise of the distance between mean answer and mean label, as a fraction of the "
        "mean label.",
    )
    calibration_error_rise: float = Field(
        default=0.1,
        gt=0,
        le=10,
        description="Largest rise of that distance where it is taken in tenths of the rows, by their "
        "answers.",
    )
    hit_rate_drop: float = Field(
        default=0.1, gt=0, le=1, description="Largest drop of hit rates, as a fraction of the baseline's."
    )
    ndcg_drop: float = Field(
        default=0.1, gt=0, le=1, description="Largest drop of NDCG, as a fraction of the baseline's."
    )
    latency_ratio: float = Field(
        default=1.15, gt=1, le=100, description="Largest ratio of the new latency to the old one."
    )
    size_ratio: float = Field(
        default=1.5, gt=1, le=100, description="Largest ratio of the new size in bytes to the old one."
    )
    null_rise: float = Field(
        default=0.05, gt=0, le=1, description="Largest rise of the share of null values of a feature."
    )
    unknown_rise: float = Field(
        default=0.02,
        gt=0,
        le=1,
        description="Largest rise of the share of a feature's ids that its table has no row for.",
    )
    psi: float = Field(
        default=0.25,
        gt=0,
        le=100,
        description="Largest population stability index between the rows of the two releases, by feature.",
    )
    drift_exempt: tuple[_Column, ...] = Field(
        default=(),
        max_length=256,
        description="Features whose values are others in every release's rows, such as ids of a day or of a "
        "session: no population stability index is computed of them.",
    )
    bless_untold: StrictBool = Field(
        default=False,
        description="Bless the release although for some measures there were too few rows to tell.",
    )

    @model_validator(mode="after")
    def _cut_offs_are_distinct(self) -> Self:
        if len(set(self.k)) != len(self.k):
            raise ValueError("`k` names a length twice")
        return self
