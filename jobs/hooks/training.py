"""A training job's completion, as a CloudEvent tells it."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue


def _refuse_number(value: object) -> object:
    """CloudEvents write a time as text; pydantic would take a number for seconds."""
    if isinstance(value, int | float):
        raise ValueError("a time is written as RFC 3339 says")  # noqa: TRY004 (pydantic reports this one)
    return value


Time = Annotated[AwareDatetime, BeforeValidator(_refuse_number)]
Attribute = Annotated[str, Field(min_length=1, max_length=1024)]

# What a training platform may call a job that did not succeed; nothing is exported after any of these.
FAILED_STATUSES = frozenset(
    {"failed", "failure", "error", "errored", "aborted", "killed", "cancelled", "canceled"}
)


class TrainingEvent(BaseModel):
    """A CloudEvent 1.0 and its data; attributes and data that no trigger asks for are let be."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    specversion: Literal["1.0"]
    id: Attribute
    source: Attribute
    type: Attribute
    subject: Attribute | None = None
    time: Time | None = None
    data: Mapping[str, JsonValue] = Field(
        default_factory=dict,
        description="`model`, `status`, `checkpoint_uri`, `config_uri`, `step`, `labels`, and what else "
        "templates ask for.",
    )

    @property
    def model(self) -> str:
        return self._text("model")

    @property
    def status(self) -> str:
        return self._text("status").lower()

    def _text(self, name: str) -> str:
        value = self.data.get(name)
        return value if isinstance(value, str) else ""
