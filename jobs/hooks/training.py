"""Training events: CloudEvents about a training job that has ended."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue


def _refuse_number(value: object) -> object:
    """Refuse a number as a time: CloudEvents write times as text, but pydantic would take seconds."""
    if isinstance(value, int | float):
        raise ValueError("a time is written as RFC 3339 says")  # noqa: TRY004 (pydantic reports this one)
    return value


Time = Annotated[AwareDatetime, BeforeValidator(_refuse_number)]
# CloudEvents allow no control characters; NUL separates source and id where receipts are stored.
Attribute = Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]

# Statuses that training platforms give a job that did not succeed; none of these starts an export.
FAILED_STATUSES = frozenset(
    {"failed", "failure", "error", "errored", "aborted", "killed", "cancelled", "canceled"}
)


class TrainingEvent(BaseModel):
    """A CloudEvent 1.0 and its data; unknown attributes are ignored."""

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
