"""The REST calls as values, which either client sends: the request, and how to read its answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Generic, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from exporter.errors import ExportError
from exporter.manifest import Manifest
from exporter.reports.comparison import Comparison
from exporter.spec import ExportSpec, Target, TowerName
from exporter.stages import Stage
from exporter.towers.plan import PlanRequest
from jobs.control.releases import Release
from jobs.model import JobState
from service.client.errors import RequestRefused, ServiceUnreachable
from service.etag import etag_of
from service.schemas import JobList, JobLog, JobView, ModelList, PlanView, Problem, Promotion, Readiness

TIMEOUT_S = 30.0
POLL_S = 0.5  # between two looks at a job that has not ended
PATIENCE_S = 60.0  # with a service that does not answer

Result = TypeVar("Result")
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class Call(Generic[Result]):
    """One request to the service, with the function that reads its answer."""

    method: str
    path: str
    read: Callable[[httpx.Response], Result]
    body: str | None = None
    query: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


def submit(spec: ExportSpec, key: str | None = None) -> Call[JobView]:
    """Post an export: a spec, or an `ExportRequest` with further options; `key` is an Idempotency-Key."""
    headers = {"Idempotency-Key": key} if key else {}
    body = spec.model_dump_json(exclude_unset=True)
    return Call(method="POST", path="/exports", body=body, headers=headers, read=reads(JobView))


def plan(request: PlanRequest) -> Call[PlanView]:
    body = request.model_dump_json(exclude_unset=True)
    return Call(method="POST", path="/exports/plan", body=body, read=reads(PlanView))


def get(job_id: str) -> Call[JobView]:
    return Call(method="GET", path=path_of(job_id), read=reads(JobView))


def get_if_changed(known: JobView) -> Call[JobView]:
    """Get the current job: the object `known` itself if nothing has changed."""

    def read(answer: httpx.Response) -> JobView:
        if answer.status_code == HTTPStatus.NOT_MODIFIED:
            return known
        return JobView.model_validate_json(answer.content)

    headers = {"If-None-Match": etag_of(known)}
    return Call(method="GET", path=path_of(known.id), headers=headers, read=read)


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


def manifest(job_id: str, target: Target | None = None) -> Call[Manifest]:
    query = without_none(target=target)
    return Call(method="GET", path=f"{path_of(job_id)}/manifest", query=query, read=reads(Manifest))


def file(job_id: str, path: str, target: Target | None = None) -> Call[None]:
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
    return Call(method="GET", path=f"/models/{model}/latest", query=query, read=reads(Release))


def promoted(model: str) -> Call[Release]:
    return Call(method="GET", path=f"/models/{model}/promoted", read=reads(Release))


def promote(model: str, job_id: str | None = None, *, force: bool = False) -> Call[Release]:
    body = Promotion(job_id=job_id, force=force).model_dump_json(exclude_defaults=True)
    return Call(method="POST", path=f"/models/{model}/promote", body=body, read=reads(Release))


def roll_back(model: str) -> Call[Release]:
    return Call(method="POST", path=f"/models/{model}/roll-back", read=reads(Release))


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
    except ValidationError as error:
        raise ServiceUnreachable(
            f"{url} answered with something that is none of Slipway's answers"
        ) from error


def refuse_problems(answer: httpx.Response, url: str) -> None:
    """Raise RequestRefused if the answer, whose body has been read, is a problem."""
    if answer.status_code < HTTPStatus.BAD_REQUEST:
        return
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:  # from a proxy, or another program
        detail = f"{url} answered with status {answer.status_code} and no problem description"
        problem = Problem(
            type="about:blank", title="", status=answer.status_code, detail=detail, code=RequestRefused.code
        )
    raise RequestRefused(problem)


def unreachable(url: str, error: Exception) -> ExportError:
    return ServiceUnreachable(
        f"{url} does not answer: {str(error) or type(error).__name__}",
        hint="start the service with `slipway up`, or name another with --url or SLIPWAY_URL",
        where=url,
    )


def cut_off(url: str, job_id: str) -> ExportError:
    return ServiceUnreachable(f"{url} ended the events of job {job_id} before the job ended", where=url)


def reads(model: type[Model]) -> Callable[[httpx.Response], Model]:
    """Return the function that reads an answer as this model."""
    return lambda answer: model.model_validate_json(answer.content)


def without_none(**values: str | None) -> dict[str, str]:
    """Return the query parameters that are given."""
    return {name: value for name, value in values.items() if value is not None}


def path_of(job_id: str) -> str:
    return f"/exports/{quote(job_id, safe='')}"
