"""The harness of tests over random configs."""

import pytest

from tests.exporter.models.random_configs import FEW, MANY, Draw, over_random_configs


def test_a_failure_names_its_seed() -> None:
    @over_random_configs
    def fails_sometimes(draw: Draw) -> None:
        assert draw.random() < 0.9

    with pytest.raises(AssertionError) as failure:
        fails_sometimes(range(MANY))
    [note] = failure.value.__notes__
    seed = next(seed for seed in range(MANY) if Draw(seed).random() >= 0.9)
    assert f"Draw({seed})" in note


def test_every_seed_draws_another_config() -> None:
    drawn: list[tuple[int, ...]] = []
    over_random_configs(lambda draw: drawn.append(draw.widths(9)))(range(FEW))
    assert len(set(drawn)) > FEW // 2
