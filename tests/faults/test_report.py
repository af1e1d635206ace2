"""The table of a run."""

from tests.faults.cells import Result
from tests.faults.report import is_whole, rows, table, with_last_run

RESULTS = [
    Result("kill -9 of the worker", "config", "light", "succeeded", 2, 11.8, ()),
    Result("kill -9 of the worker", "verify", "light", "failed", 1, 14.2, ("a | b",)),
    Result("kill -9 of the worker", "verify", "real", "succeeded", 2, 20.0, ()),
]


def test_a_fault_has_a_row_for_each_kind_of_attempt() -> None:
    first, *_, light, real = table(RESULTS).splitlines()
    assert first == "3 faults in 2 cells, 3 jobs, 1 invariants broken."
    assert light == (
        "| kill -9 of the worker | light | config; verify | 2 | succeeded, failed | 1 to 2 | 12 to 14 | 1 |"
    )
    assert real == "| kill -9 of the worker | real | verify | 1 | succeeded | 2 | 20 | 0 |"


def test_each_job_has_a_row_that_says_what_broke() -> None:
    assert rows(RESULTS).splitlines()[3].endswith("| failed | 1 | 14.2 | a / b |")
    assert not is_whole(RESULTS)


def test_the_last_run_takes_the_place_of_the_one_before() -> None:
    once = with_last_run("# Faults\n\ntext\n", ["old\n"])
    assert with_last_run(once, ["new\n"]) == "# Faults\n\ntext\n\n## The last whole run\n\nnew\n"
