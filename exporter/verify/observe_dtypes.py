"""Observation of inputs of other dtypes: a package refuses them as such, or computes with their numbers.

Code without the check reads their bytes as if they were of its own dtype.
"""

from collections.abc import Callable, Iterator

import torch
from pydantic import BaseModel
from torch import Tensor

from exporter.verify.observe import Tensors, is_close

# Not narrower, so that code without the check reads nothing beyond the tensor; and with all of its numbers.
_OTHER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
    torch.float64: torch.complex128,
    torch.bool: torch.uint8,
    torch.uint8: torch.int16,
    torch.int8: torch.int16,
    torch.int16: torch.int32,
    torch.int32: torch.int64,
    torch.int64: torch.float64,
}
_NAMES_IT = "dtype"  # in the message of a refusal for the dtype


class TakenAs(BaseModel):
    """An input that a package neither refused for its dtype nor computed rightly."""

    package: int  # its number in the chain
    input: str
    given: str  # the dtype
    refusal: str = ""  # for another reason; empty: it was computed


def find_unchecked_dtypes(
    calls: Iterator[tuple[Callable[[Tensors], Tensors], Tensors]], rounding: float
) -> Iterator[TakenAs]:
    """Call each package of a chain once for each of its inputs, with this one in another dtype.

    `calls` are the packages with their inputs. An output may differ by `rounding` of its scale.
    """
    for package, (call, inputs) in enumerate(calls):
        expected = call(inputs)
        for name, value in inputs.items():
            if (other := _OTHER.get(value.dtype)) is None:
                continue
            taken = TakenAs(package=package, input=name, given=str(other).removeprefix("torch."))
            try:
                found = call({**inputs, name: value.to(other)})
            except RuntimeError as error:
                if _NAMES_IT not in str(error):
                    yield taken.model_copy(update={"refusal": str(error).strip().partition("\n")[0]})
                continue
            if not _agree(expected, found, rounding):
                yield taken


def _agree(expected: dict[str, Tensor], found: dict[str, Tensor], rounding: float) -> bool:
    return expected.keys() == found.keys() and all(
        is_close(expected[name], found[name], rounding) for name in expected
    )
