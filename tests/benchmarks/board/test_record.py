import pytest

from benchmarks.board.page import describe_changes, page_of
from benchmarks.board.record import ALL, Record, Result, Row, changes, merge_records, merge_unfinished, row_of
from exporter.outcome import Failure, TowerOutcome
from exporter.spec import TowerName
from exporter.stages import Stage


def row(model: str, result: Result, why: str = "") -> Row:
    return Row(
        family="dssm", model=model, tower="user", mode="unified", precision="fp32", result=result, why=why
    )


def record(*rows: Row) -> Record:
    return Record(at="2026-01-01T00:00:00+00:00", torch="2.13.0", rows=rows)


def test_a_run_says_what_is_new_what_regressed_and_what_was_mended() -> None:
    earlier = record(row("a", Result.PASS), row("b", Result.FAIL), row("gone", Result.PASS))
    now = record(row("a", Result.FAIL), row("b", Result.PASS), row("c", Result.PASS))
    assert describe_changes(changes(earlier, now)) == [
        "new: c user unified fp32",
        "regressed: a user unified fp32",
        "mended: b user unified fp32",
        "gone: gone user unified fp32",
    ]


def test_an_export_that_fails_as_a_whole_regressed_in_each_tower_and_is_mended_in_each() -> None:
    user = row("a", Result.PASS)
    towers = record(user, user.model_copy(update={"tower": "item"}))
    whole = record(row("a", Result.FAIL).model_copy(update={"tower": ALL}))
    both = "a user unified fp32, a item unified fp32"
    assert describe_changes(changes(towers, whole)) == [f"regressed: {both}"]
    assert describe_changes(changes(whole, towers)) == [f"mended: {both}"]
    assert describe_changes(changes(whole, whole)) == []
    item_left_out = towers.rows[1].model_copy(update={"result": Result.LEFT_OUT})
    reduced = record(*whole.rows, item_left_out)
    assert describe_changes(changes(towers, reduced)) == ["regressed: a user unified fp32"]


def test_a_row_that_was_left_out_keeps_what_is_known_of_it() -> None:
    earlier = record(row("a", Result.PASS), row("a", Result.PASS).model_copy(update={"tower": "item"}))
    left_out = row("a", Result.LEFT_OUT, "reduced").model_copy(update={"tower": ALL})
    now = record(left_out)
    assert merge_records(earlier, now).rows == earlier.rows
    user, item = earlier.rows
    tried = user.model_copy(update={"result": Result.FAIL})
    assert merge_records(earlier, record(tried, left_out.model_copy(update={"tower": "item"}))).rows == (
        tried,
        item,
    )
    assert describe_changes(changes(earlier, now)) == []


def test_the_stage_behind_the_last_finished_one_is_the_one_that_failed() -> None:
    failure = Failure(code="compile_failed", message="no g++")
    outcome = TowerOutcome(tower=TowerName.USER, failure=failure)
    finished = [Stage.CONFIG, Stage.CHECKPOINT, Stage.ROWS, Stage.TRACE]
    made = row_of(outcome, family="dssm", case=("a", "unified", "fp32"), finished=finished, seconds=1.0)
    assert made.stages[Stage.TRACE] is Result.PASS
    assert made.stages[Stage.COMPILE] is Result.FAIL
    assert made.stages[Stage.VERIFY] is Result.NOT_REACHED
    assert made.why == "compile_failed: no g++"


def test_a_run_that_is_cut_short_has_recorded_what_it_did() -> None:
    earlier = record(row("a", Result.PASS), row("b", Result.PASS))
    recorded = merge_unfinished(earlier, [row("a", Result.FAIL)], torch="2.13.0")
    assert [(each.model, each.result) for each in recorded.rows] == [("a", Result.FAIL), ("b", Result.PASS)]


@pytest.mark.parametrize("code", ["verification_failed", "package_unsteady", "package_crashed"])
def test_a_failing_verification_fails_at_its_class_of_sizes(code: str) -> None:
    failure = Failure(code=code, message="differs", where="empty_history")
    outcome = TowerOutcome(tower=TowerName.USER, failure=failure)
    made = row_of(outcome, family="dssm", case=("a", "unified", "fp32"), finished=[], seconds=1.0)
    assert made.sizes == {"empty histories": Result.FAIL}


def test_the_page_shows_failures_and_reasons_as_text() -> None:
    now = record(row("a", Result.FAIL, "x < y"), row("b", Result.LEFT_OUT, "no GPU here"))
    page = page_of(now, changes(record(row("a", Result.PASS)), now))
    assert "x &lt; y" in page
    assert "no GPU here" in page
    assert "regressed: a user unified fp32" in page
    assert "0 pass, 1 fail, 1 left out" in page
