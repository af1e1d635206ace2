"""The messages of the process that searches a published index, which may be read where FAISS is missing."""

from pathlib import Path

from pydantic import BaseModel

from exporter.manifest import Metric


class SearchSetup(BaseModel):
    """The first line on stdin."""

    index: Path | None  # None: search `parts`, whose labels are then row numbers
    parts: tuple[Path, ...]
    width: int
    metric: Metric
    threads: int


class SearchRequest(BaseModel):
    """Search for the queries of a .npy file, one vector per line."""

    queries: Path
    k: int
    labels: Path  # where the labels go, nearest first; -1 stands for none
    scores: Path  # larger is nearer


class SearchReply(BaseModel):
    """The answer; `failed` says why there is none."""

    items: int = 0
    failed: str | None = None
