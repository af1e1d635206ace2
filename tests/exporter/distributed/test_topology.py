"""Which rank has which rows, by TorchRec's plan."""

import pytest

from exporter.distributed.topology import plan_digest, row_wise_plan, rows_of_rank

TABLES = {"small": (3, 4), "large": (1000, 16)}


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 16])
def test_every_row_is_one_ranks(ranks: int) -> None:
    plan = row_wise_plan(TABLES, ranks)
    for name, (rows, _) in TABLES.items():
        shares = [rows_of_rank(plan, rank)[name] for rank in range(ranks) if name in rows_of_rank(plan, rank)]
        assert [first for first, _ in shares] == [0, *(end for _, end in shares[:-1])]
        assert shares[-1][1] == rows


def test_a_rank_beyond_the_last_row_has_none() -> None:
    plan = row_wise_plan(TABLES, 4)
    assert "small" not in rows_of_rank(plan, 3)
    assert plan["small"].sharding_type == "row_wise"
    assert plan["small"].ranks == [0, 1, 2]


def test_plans_are_told_apart() -> None:
    same = plan_digest(row_wise_plan(TABLES, 2))
    assert plan_digest(row_wise_plan(dict(TABLES), 2)) == same
    others = (row_wise_plan(TABLES, 3), row_wise_plan(dict(reversed(TABLES.items())), 2))
    assert same not in {plan_digest(plan) for plan in others}
