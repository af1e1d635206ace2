"""Which FAISS index is built over item vectors, with its parameters."""

from typing import Annotated, Literal

from pydantic import Field

from exporter.frozen import Frozen


class FlatIndex(Frozen):
    """Every vector as it is, all of them compared: exact."""

    kind: Literal["flat"] = "flat"


class _Lists(Frozen):
    nlist: int | None = Field(
        default=None, ge=1, le=65_536, description="Lists of neighbours; default: 4 * sqrt(items)."
    )
    nprobe: int = Field(default=32, ge=1, le=65_536, description="Lists that a search looks into.")


class IvfFlatIndex(_Lists):
    """Vectors in lists of neighbours; a search looks into some of them."""

    kind: Literal["ivf_flat"] = "ivf_flat"


class IvfPqIndex(_Lists):
    """The same, each vector as a code of `m` bytes: for more items than memory holds vectors."""

    kind: Literal["ivf_pq"] = "ivf_pq"
    m: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Bytes per vector, a divisor of its width; default: the largest up to half of it.",
    )


class HnswIndex(Frozen):
    """A graph of neighbours: fast to search, slow to build."""

    kind: Literal["hnsw"] = "hnsw"
    m: int = Field(default=32, ge=4, le=128, description="Neighbours per item.")
    ef_construction: int = Field(default=80, ge=8, le=2048, description="Breadth while it is built.")
    ef_search: int = Field(default=64, ge=8, le=2048, description="Breadth of a search.")


IndexSpec = Annotated[FlatIndex | IvfFlatIndex | IvfPqIndex | HnswIndex, Field(discriminator="kind")]
INDEX_KINDS = ("flat", "ivf_flat", "ivf_pq", "hnsw")
