"""The form that posts a job's request again with changes, as JSON."""

import json
from dataclasses import dataclass
from typing import ClassVar

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from exporter.errors import ExportError
from exporter.frozen import Frozen
from exporter.spec import ExportOptions
from jobs.model import Job
from jobs.request import ExportRequest, JobOptions
from service.dashboard.render import Page
from service.errors import InvalidRequest
from service.schemas import FieldProblem


@dataclass(frozen=True, kw_only=True)
class RerunPage(Page):
    """A job's request to edit, and why the last one was refused."""

    template: ClassVar[str] = "rerun.html"
    every: ClassVar[int] = 0

    job: Job
    text: str
    error: ExportError | None = None
    mistakes: tuple[FieldProblem, ...] = ()


def format_request(job: Job) -> str:
    """Return the request of a job as JSON, without what is at its default.

    Without `config` and `config_uri`, it is about the config that the job has kept. `force` is set, because
    an equal request would be answered with the job itself.
    """
    source = {"config_uri": job.config_uri} if job.config_uri else {}
    spec = job.spec.model_dump(mode="json", include=_list_set(job.spec, ExportOptions))
    options = job.model_dump(mode="json", include=_list_set(job, JobOptions))
    return json.dumps({**source, **spec, **options, "force": True}, indent=2, ensure_ascii=False)


def _list_set(request: Frozen, part: type[Frozen]) -> set[str]:
    """Return the fields of a part of a request that are not at their defaults; nested ones are whole."""
    return {
        name
        for name, field in part.model_fields.items()
        if getattr(request, name) != field.get_default(call_default_factory=True)
    }


def parse_request(text: str, config: str) -> ExportRequest:
    """Read an edited request as the API reads a body; one that names no config is about `config`.

    Raises:
        InvalidRequest: it is no JSON object.
        RequestValidationError: fields are missing, unknown or have wrong values.
    """
    try:
        fields = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"the request is no JSON: {error.msg}, in line {error.lineno}", hint="send one JSON object"
        ) from error
    except (ValueError, RecursionError) as error:  # numbers, or a nesting, beyond what Python reads
        message = "the request has numbers or a nesting that are not read as JSON here"
        raise InvalidRequest(message, hint="send one JSON object") from error
    if isinstance(fields, dict) and fields.get("config") is None and fields.get("config_uri") is None:
        fields["config"] = config
    try:
        return ExportRequest.model_validate(fields)
    except ValidationError as error:
        mistakes = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
        raise RequestValidationError(mistakes) from error
