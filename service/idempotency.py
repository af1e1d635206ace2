"""Carrying out a repeated POST once: the first answer is kept under the caller's Idempotency-Key."""

import hashlib
from collections.abc import Callable
from typing import Annotated

from fastapi import Header, Response, status

from jobs.control.idempotency import AnswerKey, Answers, StoredAnswer
from service.access.callers import Caller
from service.etag import etag_of
from service.schemas import JobView

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[\x21-\x7e]{1,255}$",
        description="Chosen by you: the same request with the same key is carried out once.",
    ),
]


def answer_once(
    answers: Answers,
    caller: Caller,
    key: str | None,
    describe: Callable[[], str],
    carry_out: Callable[[], JobView],
) -> Response:
    """Call `carry_out` and answer with its job, or repeat the earlier answer to the caller's same key.

    Only answers are kept: a request that failed is carried out again.
    """
    if key is None:
        return answer_with(carry_out())
    # A caller whose places have changed since is not answered with a job that it may no longer see.
    places = "" if caller.sees_all else caller.sees.model_dump_json()
    fingerprint = hashlib.sha256((describe() + places).encode()).hexdigest()
    own_key = AnswerKey(caller.name, key)
    earlier = answers.begin(own_key, fingerprint)
    if earlier is not None and earlier.body is not None:
        answer = answer_with(JobView.model_validate_json(earlier.body))
        answer.headers["Idempotency-Replayed"] = "true"
        return answer
    try:
        job = carry_out()
    except BaseException:
        answers.drop(own_key)
        raise
    answers.keep(own_key, StoredAnswer(fingerprint=fingerprint, body=job.model_dump_json()))
    return answer_with(job)


def answer_with(job: JobView) -> Response:
    """Answer 202 for a job that is to run, 200 for one that made the same artifact before."""
    code = status.HTTP_200_OK if job.state.is_final else status.HTTP_202_ACCEPTED
    headers = {"Location": f"/exports/{job.id}", "ETag": etag_of(job)}
    return Response(job.model_dump_json(), code, headers, media_type="application/json")
