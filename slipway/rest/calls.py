"""The REST calls as values, which either client sends: the request, and how to read its answer."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Generic, TypeVar
from urllib.parse import quote

import httpx

from slipway.rest.answers import (
    Comparison,
    JobList,
    JobLog,
    JobView,
    Manifest,
    ModelList,
    PlanView,
    Problem,
    Readiness,
    Release,
)
from slipway.rest.errors import RequestRefused, ServiceUnreachable, SlipwayError
from slipway.rest.json_values import as_json, read
from slipway.rest.names import JobState, Stage, TowerName
from slipway.rest.requests import Body, ExportRequest, PlanRequest, SubscriptionRequest

TIMEOUT_S = 30.0
POLL_S = 0.5  # between two looks at a job that has not ended
UNREACHABLE_S = 60.0  # a service may stay silent for so long while a job is waited for

Result = TypeVar("Result")
Answer = TypeVar("Answer")

NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, kw_only=True)
class Call(Generic[Result]):
    """One request to the service, with the function that reads its answer."""

    method: str
    path: str
    read: Callable[[httpx.Response], Result]
    body: str | None = None
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def submit(request: ExportRequest | Body, key: str | None = None) -> Call[JobView]:
    """Post an export; `key` is an Idempotency-Key."""
    headers = {"Idempotency-Key": key} if key else {}
    return Call(method="POST", path="/exports", body=body_of(request), headers=headers, read=reads(JobView))


def plan(request: PlanRequest | Body) -> Call[PlanView]:
    return Call(method="POST", path="/exports/plan", body=body_of(request), read=reads(PlanView))


def get(job_id: str) -> Call[JobView]:
    return Call(method="GET", path=path_of(job_id), read=reads(JobView))


def get_if_changed(known: JobView) -> Call[JobView]:
    """Get the current job: the object `known` itself if nothing has changed."""

    def read_if_changed(answer: httpx.Response) -> JobView:
        return known if answer.status_code == HTTPStatus.NOT_MODIFIED else read(JobView, answer.json())

    tag = "-".join((str(known.revision), *known.unserved))  # what no worker serves is not in the record
    headers = {"If-None-Match": f'"{tag}"'}
    return Call(method="GET", path=path_of(known.id), headers=headers, read=read_if_changed)


def page(*, limit: int, state: JobState | None = None, cursor: str | None = None) -> Call[JobList]:
    query = without_none(limit=str(limit), state=state, cursor=cursor)
    return Call(method="GET", path="/exports", query=query, read=reads(JobList))


def cancel(job_id: str) -> Call[JobView]:
    return Call(method="POST", path=f"{path_of(job_id)}/cancel", read=reads(JobView))


def retry(job_id: str, key: str | None = None) -> Call[JobView]:
    headers = {"Idempotency-Key": key} if key else {}
    return Call(method="POST", path=f"{path_of(job_id)}/retry", headers=headers, read=reads(JobView))


def delete(job_id: str) -> Call[None]:
    return Call(method="DELETE", path=path_of(job_id), read=lambda answer: None)


def log(job_id: str, tower: TowerName | None = None, stage: Stage | None = None) -> Call[JobLog]:
    query = without_none(tower=tower, stage=stage)
    return Call(method="GET", path=f"{path_of(job_id)}/log", query=query, read=reads(JobLog))


def bundle(job_id: str, tower: TowerName | None = None) -> Call[bytes]:
    query = without_none(tower=tower)
    return Call(
        method="GET", path=f"{path_of(job_id)}/bundle", query=query, read=lambda answer: answer.content
    )


def manifest(job_id: str, target: str | None = None) -> Call[Manifest]:
    query = without_none(target=target)
    return Call(method="GET", path=f"{path_of(job_id)}/manifest", query=query, read=reads(Manifest))


def file(job_id: str, path: str, target: str | None = None) -> Call[None]:
    """Get a file of the artifact by its path in the manifest; clients write it to disk as it comes."""
    where = f"{path_of(job_id)}/files/{quote(path)}"
    return Call(method="GET", path=where, query=without_none(target=target), read=lambda answer: None)


def diff(job_id: str) -> Call[Comparison]:
    return Call(method="GET", path=f"{path_of(job_id)}/diff", read=reads(Comparison))


def models(*, limit: int, cursor: str | None = None) -> Call[ModelList]:
    query = without_none(limit=str(limit), cursor=cursor)
    return Call(method="GET", path="/models", query=query, read=reads(ModelList))


def latest(model: str, labels: Mapping[str, str]) -> Call[Release]:
    query = {"label": [f"{name}:{value}" for name, value in labels.items()]}
    return Call(method="GET", path=f"{_model(model)}/latest", query=query, read=reads(Release))


def promoted(model: str) -> Call[Release]:
    return Call(method="GET", path=f"{_model(model)}/promoted", read=reads(Release))


def promote(model: str, job_id: str | None = None, *, force: bool = False) -> Call[Release]:
    body = json.dumps({"job_id": job_id, **({"force": True} if force else {})})
    return Call(method="POST", path=f"{_model(model)}/promote", body=body, read=reads(Release))


def roll_back(model: str) -> Call[Release]:
    return Call(method="POST", path=f"{_model(model)}/roll-back", read=reads(Release))


def ready() -> Call[Readiness]:
    return Call(method="GET", path="/readyz", read=reads(Readiness))


def headers_of(call: Call[Result], api_key: str | None) -> dict[str, str]:
    """Return all headers of the call."""
    headers = {"Accept": "application/json", **call.headers}
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    return headers


def result_of(call: Call[Result], answer: httpx.Response, url: str) -> Result:
    """Read the answer of a call.

    Raises:
        RequestRefused: the answer is a problem.
        ServiceUnreachable: the answer is not one of Slipway's, so that another program has answered.
    """
    refuse_problems(answer, url)
    try:
        return call.read(answer)
    except ValueError as error:
        raise not_ours(url) from error


def refuse_problems(answer: httpx.Response, url: str) -> None:
    """Raise RequestRefused if the answer, whose body has been read, is a problem."""
    if answer.status_code < HTTPStatus.BAD_REQUEST:
        return
    try:
        problem = read(Problem, answer.json())
    except ValueError:  # from a proxy, or another program
        detail = f"{url} answered with status {answer.status_code} and no problem description"
        problem = Problem(status=answer.status_code, detail=detail, code=RequestRefused.code)
    raise RequestRefused(problem)


def unreachable(url: str, error: Exception) -> SlipwayError:
    return ServiceUnreachable(
        f"{url} does not answer: {str(error) or type(error).__name__}",
        hint="start the service with `slipway up`, or name another with --url or SLIPWAY_URL",
        where=url,
    )


def not_ours(url: str) -> SlipwayError:
    return ServiceUnreachable(f"{url} answered with something that is none of Slipway's answers")


def cut_off(url: str, job_id: str) -> SlipwayError:
    return ServiceUnreachable(f"{url} ended the events of job {job_id} before the job ended", where=url)


def body_of(request: ExportRequest | PlanRequest | SubscriptionRequest | Body) -> str:
    """Return a request as JSON: the fields that are set."""
    if isinstance(request, ExportRequest | PlanRequest | SubscriptionRequest | Mapping):
        return json.dumps(as_json(request))
    return request.model_dump_json(exclude_unset=True)


def reads(kind: type[Answer]) -> Callable[[httpx.Response], Answer]:
    """Return the function that reads an answer as this kind."""
    return lambda answer: read(kind, answer.json())


def without_none(**values: str | None) -> dict[str, str]:
    """Return the query parameters that are given."""
    return {name: value for name, value in values.items() if value is not None}


def _model(name: str) -> str:
    return f"/models/{quote(name, safe='')}"


def path_of(job_id: str) -> str:
    return f"/exports/{quote(job_id, safe='')}"
