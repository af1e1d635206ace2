"""What a package's refusal means in words."""

import pytest

from exporter.predict import unmet_demand

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
