"""What a caller asks for when posting an export: the spec, and how its job is to be treated."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StrictBool

from exporter.spec import ExportSpec, Frozen


class Priority(StrEnum):
    """Which of the waiting jobs a worker takes first."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
LabelValue = Annotated[str, Field(max_length=200)]
_HOST = r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]+\])"
_PORT = r"([0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-5][0-9]{2})"
CallbackUrl = Annotated[str, Field(pattern=rf"^https?://{_HOST}(:{_PORT})?([/?][!-~]*)?$", max_length=2048)]
Labels = Annotated[Mapping[LabelName, LabelValue], Field(max_length=32)]


class JobOptions(Frozen):
    """What is said of a job beside what it exports; a retry keeps it."""

    priority: Priority = Priority.NORMAL
    model: ModelName | None = Field(
        default=None, description="The model's name: the artifact becomes its latest when all towers pass."
    )
    labels: Labels = Field(default_factory=dict, description="The caller's own notes; kept as they are.")
    callback_url: CallbackUrl | None = Field(default=None, description="Gets signed events about this job.")


class ExportRequest(ExportSpec, JobOptions):
    """The body of POST /exports."""

    force: StrictBool = Field(
        default=False, description="Export again, even if the same artifact has been made before."
    )

    @property
    def spec(self) -> ExportSpec:
        return ExportSpec.model_validate(self.model_dump(include=set(ExportSpec.model_fields)))

    @property
    def options(self) -> JobOptions:
        return JobOptions.model_validate(self.model_dump(include=set(JobOptions.model_fields)))
