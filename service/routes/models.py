"""Routes for a model's releases: the latest, the promoted one, promoting and rolling back."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import StringConstraints

from jobs.control.releases import Release
from jobs.errors import JobNotFound, ModelNotFound, NoArtifact, ReleaseNotBlessed
from jobs.ids import JobId
from service.access.guard import Admin, reading
from service.audit import record
from service.dependencies import Models
from service.errors import keyed_responses
from service.schemas import ModelList, Promotion

router = APIRouter(prefix="/models", tags=["models"], dependencies=[Depends(reading)])

_LABEL = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}:.{0,200}$"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"

Name = Annotated[str, Path(pattern=_NAME)]
Limit = Annotated[int, Query(ge=1, le=100)]
Cursor = Annotated[str | None, Query(pattern=_NAME, description="`next_cursor` of a page.")]
Wanted = Annotated[
    tuple[Annotated[str, StringConstraints(pattern=_LABEL)], ...],
    Query(description="name:value, one of the export's `labels`; may be repeated.", max_length=32),
]


@router.get("", responses=keyed_responses())
def list_models(models: Models, limit: Limit = 20, cursor: Cursor = None) -> ModelList:
    """List the models that have a release, by name; a page may hold fewer than `limit`."""
    return ModelList.of(models.models(limit=limit, after=cursor))


@router.get("/{name}/latest", responses=keyed_responses(ModelNotFound))
def latest(name: Name, models: Models, label: Wanted = ()) -> Release:
    """Return the release of the model's newest successful export, or of the newest with these labels."""
    return models.find_latest(name, {key: value for key, _, value in (each.partition(":") for each in label)})


@router.get("/{name}/promoted", responses=keyed_responses(ModelNotFound))
def promoted(name: Name, models: Models) -> Release:
    """Return the release that is promoted now."""
    return models.get_promoted(name)


@router.post(
    "/{name}/promote", responses=keyed_responses(ModelNotFound, JobNotFound, NoArtifact, ReleaseNotBlessed)
)
def promote(name: Name, promotion: Promotion, models: Models, caller: Admin) -> Release:
    """Promote one job's release, or with `job_id` null the latest; the change is atomic for readers.

    A release that its gate does not bless is refused with the figures, unless `force` is set.
    """
    job_id = JobId(promotion.job_id) if promotion.job_id else None
    release = models.promote(name, job_id, force=promotion.force, by=caller.name)
    subject = f"{name} to {release.job_id}"
    if objections := release.objections:
        record(caller, "promote by force", subject, objections=objections)
    else:
        record(caller, "promote", subject)
    return release


@router.post("/{name}/roll-back", responses=keyed_responses(ModelNotFound))
def roll_back(name: Name, models: Models, caller: Admin) -> Release:
    """Promote the release again that was promoted before the current one."""
    release = models.roll_back(name, caller.name)
    record(caller, "roll-back", f"{name} to {release.job_id}")
    return release
