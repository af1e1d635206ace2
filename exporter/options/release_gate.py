"""The conditions under which a published release may be promoted."""

from pydantic import Field

from exporter.frozen import Frozen


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
        default="promoted",
        min_length=1,
        max_length=128,
        description="Release to compare with: `promoted`, the model's promoted release, or a job's id.",
    )
