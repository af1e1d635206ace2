"""The changes of a model's promoted release: who made each, and when."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from exporter.spec import Frozen
from jobs.ids import JobId

MOST_PROMOTIONS = 100  # of a model that are kept


class PromotionKind(StrEnum):
    """The two ways in which a release becomes the promoted one."""

    PROMOTE = "promote"
    ROLL_BACK = "roll_back"


class PromotionNote(Frozen):
    """One change of the release that is promoted."""

    at: datetime
    by: str = Field(description="Name of the key or token that asked for it.")
    kind: PromotionKind
    job_id: JobId = Field(description="The job whose release was promoted by it.")
    forced: bool = Field(default=False, description="Whether the release gate had objected.")
