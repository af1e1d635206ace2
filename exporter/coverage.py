"""Sizes that the gate tried, beside those that a package accepts."""

from pydantic import Field

from exporter.frozen import Frozen


class TriedSizes(Frozen):
    """The smallest and the largest size in the cases in which package and eager agreed."""

    smallest: int
    largest: int


class ShareEntry(Frozen):
    """Counts of single rows, or of single events, which add up to a dim's size."""

    counts: str = Field(description='What is counted: "values per row", "events per row".')
    high: int | None = Field(
        default=None, description="The most that the config declares; null if it declares none."
    )
    tried: TriedSizes | None = None
    refused: bool = Field(default=False, description="Whether a package refuses more than was tried.")
