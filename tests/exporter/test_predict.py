"""What a package's refusal means in words, and its outputs as columns."""

import pytest
import torch

from exporter.predict import output_column, unmet_demand

DEMANDS = ("item.values has an id outside the 9 rows", "item.lengths does not add up")


@pytest.mark.parametrize(
    ("refusal", "meaning"),
    [
        ("Expected u10 <= 0 but received 2", DEMANDS[1]),
        ("Expected u10 <= 0 but received 3", "Expected u10 <= 0 but received 3"),
        ("expected size 8==9, stride 1==1 at dim=0", "expected size 8==9, stride 1==1 at dim=0"),
    ],
)
def test_a_refusal_is_the_demand_it_numbers(refusal: str, meaning: str) -> None:
    assert unmet_demand(refusal, DEMANDS) == meaning


@pytest.mark.parametrize("shape", [(2,), (2, 3), (2, 4, 3), (0, 4, 3)])
def test_an_output_is_a_column_of_lists_as_deep_as_it_has_axes(shape: tuple[int, ...]) -> None:
    values = torch.arange(24.0)[: torch.Size(shape).numel()].reshape(shape)
    assert output_column(values).to_pylist() == values.tolist()
