"""Texts and lists of strangers are shown in part, with a count of the rest."""

import pytest
from pydantic import ValidationError

from exporter.errors import (
    LONGEST_HINT,
    LONGEST_MESSAGE,
    LONGEST_PLACE,
    LONGEST_REPORT,
    CheckpointMismatch,
    ExportError,
    InvalidSpec,
)
from exporter.outcome import Failure
from exporter.redaction import name_first, shorten, shorten_inside
from jobs.request import ExportRequest

ROOM = 40  # characters of the count behind a cut text
LONG = "x" * 4_000_000


def test_a_text_is_cut_and_says_how_much_is_missing() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcde", 3) == "abc… (2 more characters)"


def test_a_sentence_keeps_its_end() -> None:
    assert shorten_inside("abcdef", 6) == "abcdef"
    assert shorten_inside("0123456789", 6) == "0123… (4 more characters) …89"


def test_a_list_names_its_first_entries_and_counts_the_others() -> None:
    assert name_first(["a", "b"]) == "a, b"
    assert name_first([str(number) for number in range(10_000)], most=3) == "0, 1, 2 and 9,997 more"
    assert len(name_first([LONG] * 30)) < 20 * 300


def assert_short(message: str, hint: str, where: str) -> None:
    assert len(message) <= LONGEST_MESSAGE + ROOM
    assert len(hint) <= LONGEST_HINT + ROOM
    assert len(where) <= LONGEST_PLACE + ROOM


def test_no_error_has_long_texts() -> None:
    error = InvalidSpec(LONG, hint=LONG, where=LONG)
    assert_short(error.message, error.hint, error.where)
    assert str(error) == error.message


@pytest.mark.parametrize("error", [ValueError(LONG), InvalidSpec(LONG, hint=LONG, where=LONG)])
def test_no_failure_has_long_texts(error: Exception) -> None:
    failure = Failure.of(error)
    assert_short(failure.message, failure.hint, failure.where)
    assert "more characters" in failure.message


def test_a_failure_that_an_attempt_wrote_is_cut_as_it_is_read() -> None:
    text = Failure(code="x", message="m").model_dump_json().replace('"m"', f'"{LONG}"')
    assert_short(Failure.model_validate_json(text).message, "", "")
    assert len(Failure(code="x", message="", report=LONG).report) <= LONGEST_REPORT + ROOM


def test_a_secret_at_the_cut_is_not_shown_in_part() -> None:
    secret = " s3://user:hunter2hunter2@host/"
    for place in (LONGEST_MESSAGE * 2 // 3, 4000 - LONGEST_MESSAGE // 3, LONGEST_MESSAGE):
        for before in range(place - len(secret) - 5, place + 5):
            text = "x" * before + secret
            assert "hunter" not in ExportError(text + "x" * (4000 - len(text))).message


def test_a_mismatch_counts_its_tensors() -> None:
    error = CheckpointMismatch(missing=[f"t{n}" for n in range(10_000)], unexpected=[], mismatched=[])
    assert "10000 missing: t0, t1, t2, t3, t4 and 9,995 more" in error.message
    assert len(Failure.of(error).report) <= LONGEST_REPORT + ROOM


@pytest.mark.parametrize(
    "body", [{f"f{n}": 1 for n in range(5000)}, {"labels": {f"f{n}": 1 for n in range(5000)}}]
)
def test_a_body_of_thousands_of_entries_has_one_mistake(body: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        ExportRequest.model_validate(body)
    assert caught.value.error_count() == 1
    assert "5,000 entries" in str(caught.value)
