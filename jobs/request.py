"""The request for an export: its spec, and the options of its job."""

import itertools
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StrictBool, model_validator

from exporter.redaction import shorten
from exporter.spec import ExportSpec, Frozen
from slipway.rest.names import Priority as Priority  # records and views import it from here

_MOST_ENTRIES = 4096  # of a body, or of one of its fields


class PostedBody(Frozen):
    """Base of the bodies that callers send: one with thousands of entries has one mistake, not thousands."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_too_many(cls, body: object) -> object:
        if isinstance(body, dict):
            for name, value in (("", body), *itertools.islice(body.items(), _MOST_ENTRIES)):
                if isinstance(value, dict | list) and len(value) > _MOST_ENTRIES:
                    of = f" of {shorten(str(name), 100)}" if name else ""
                    raise ValueError(f"{len(value):,} entries{of} are more than any request has")
        return body


ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
LabelValue = Annotated[str, Field(max_length=200)]
_HOST = r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]+\])"
_PORT = r"([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-5][0-9]{2})"
CallbackUrl = Annotated[str, Field(pattern=rf"^https?://{_HOST}(:{_PORT})?([/?][!-~]*)?$", max_length=2048)]
Labels = Annotated[Mapping[LabelName, LabelValue], Field(max_length=32)]


class JobOptions(Frozen):
    """The options of a job besides its spec; a retry keeps them."""

    priority: Priority = Priority.NORMAL
    model: ModelName | None = Field(
        default=None,
        description="Name of the model; if all towers succeed, the artifact becomes its latest release.",
    )
    labels: Labels = Field(default_factory=dict, description="The caller's own notes, stored unchanged.")
    callback_url: CallbackUrl | None = Field(
        default=None, description="URL that receives signed events about this job."
    )


class ExportRequest(ExportSpec, JobOptions, PostedBody):
    """The body of POST /exports."""

    force: StrictBool = Field(
        default=False, description="Export again even if the same artifact exists already."
    )

    @property
    def spec(self) -> ExportSpec:
        return ExportSpec.model_validate(self.model_dump(include=set(ExportSpec.model_fields)))

    @property
    def options(self) -> JobOptions:
        return JobOptions.model_validate(self.model_dump(include=set(JobOptions.model_fields)))
