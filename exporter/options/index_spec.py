"""The FAISS index that is built over item vectors: its kind and parameters."""

from typing import Annotated, Literal

from pydantic import Field

from exporter.frozen import Frozen


class FlatIndex(Frozen):
    """Exact search: stores every vector as it is and compares the query with all of them."""

    kind: Literal["flat"] = "flat"


class _Lists(Frozen):
    nlist: int | None = Field(
        default=None, ge=1, le=65_536, description="Number of lists; default: 4 * sqrt(items)."
    )
    nprobe: int = Field(default=32, ge=1, le=65_536, description="Number of lists that a search looks into.")


class IvfFlatIndex(_Lists):
    """Vectors grouped in lists of neighbours; a search looks into `nprobe` of the lists."""

    kind: Literal["ivf_flat"] = "ivf_flat"


class IvfPqIndex(_Lists):
    """Lists of neighbours with each vector as a code of `m` bytes: for items whose vectors exceed memory."""

    kind: Literal["ivf_pq"] = "ivf_pq"
    m: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Bytes per vector, a divisor of its width; default: the largest up to half the width.",
    )


class HnswIndex(Frozen):
    """A graph that links each item with its neighbours: fast to search, slow to build."""

    kind: Literal["hnsw"] = "hnsw"
    m: int = Field(default=32, ge=4, le=128, description="Neighbours that are linked per item.")
    ef_construction: int = Field(
        default=80, ge=8, le=2048, description="Candidates that are kept per item while the graph is built."
    )
    ef_search: int = Field(default=64, ge=8, le=2048, description="Candidates that are kept during a search.")


IndexSpec = Annotated[FlatIndex | IvfFlatIndex | IvfPqIndex | HnswIndex, Field(discriminator="kind")]
INDEX_KINDS = ("flat", "ivf_flat", "ivf_pq", "hnsw")
