"""The table of constants in compiled code: names, layouts and order of the tensors in its blob of weights."""

import json
import math
import re
from dataclasses import dataclass

_FIELD = re.compile(r"^\s*constants_info_\[(\d+)\]\.(\w+) = (.*);$", re.MULTILINE)
_DTYPE = re.compile(r"\w*?torch_dtype_(\w+)$")


@dataclass(frozen=True, kw_only=True)
class ConstantRow:
    """One row of the table: a tensor that the code reads, and its place in the blob."""

    fqn: str  # fully qualified name in the traced module
    dtype: str  # torch's name without "torch."
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # storage offset, in elements
    size: int  # bytes in the blob, padding included

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def read_rows(code: str) -> tuple[ConstantRow, ...]:
    """Read the table from the wrapper's source, without constants that are folded at load time.

    Raises:
        ValueError: the source is not in the form that the supported versions of torch write.
    """
    rows: dict[int, dict[str, str]] = {}
    for index, field, value in _FIELD.findall(code):
        rows.setdefault(int(index), {})[field] = value
    try:
        return tuple(_row(rows[index]) for index in range(len(rows)) if rows[index]["from_folded"] == "false")
    except KeyError as error:
        raise ValueError(f"a row has no {error}") from error


def _row(row: dict[str, str]) -> ConstantRow:
    dtype = _DTYPE.match(row["dtype"])
    if dtype is None:
        raise ValueError(f"dtype {row['dtype']}")
    return ConstantRow(
        fqn=str(json.loads(row["original_fqn"])),
        dtype=dtype[1],
        shape=_numbers(row["shape"]),
        stride=_numbers(row["stride"]),
        offset=int(row["offset"]),
        size=int(row["data_size"]),
    )


def _numbers(braced: str) -> tuple[int, ...]:
    return tuple(int(number.rstrip("L")) for number in braced.strip("{}").split(",") if number.strip())
