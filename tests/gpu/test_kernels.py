"""Kernels on a GPU, at random sizes, against float64."""

import random

import pytest

from benchmarks.gpu.cases.case import Case
from benchmarks.gpu.check import all_cases

# Some cases call torch.compile, and inductor warns of what torch itself deprecates.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("kernel", all_cases(), ids=lambda case: case.name)
def test_it_computes_what_its_reference_does(kernel: Case) -> None:
    seed = random.SystemRandom().randrange(2**32)
    assert kernel.error(seed) <= kernel.bound, f"seed {seed}"
