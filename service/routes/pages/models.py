"""Routes of the pages of models: their releases, the figures of these, promoting and rolling back."""

from collections.abc import Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Header, Path, Query, Response, status
from fastapi.responses import RedirectResponse

from exporter.errors import ExportError
from jobs.control.control import JobControl
from jobs.control.releases import Release, Releases
from jobs.errors import JobNotFound, ModelNotFound, RecordUnreadable
from jobs.ids import JobId, is_job_id
from jobs.model import Job
from service.access.guard import Admin, Reader
from service.audit import record
from service.dashboard.manifests import read_once
from service.dashboard.models.figures import ReleaseRecord
from service.dashboard.models.pages import FiguresPage, ModelPage, ModelRow, ModelsPage, note_of
from service.dashboard.render import answer
from service.dashboard.route import Form, PageRoute
from service.dependencies import Jobs, Models
from service.errors import InvalidRequest
from service.routes import models as release_calls
from service.schemas import Promotion

_PAGE = 50
_MOST_RELEASES = 20

router = APIRouter(prefix="/pages/models", route_class=PageRoute, include_in_schema=False)

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
Name = Annotated[str, Path(pattern=_NAME)]
Cursor = Annotated[str | None, Query(pattern=_NAME)]
IfNoneMatch = Annotated[str | None, Header()]


@router.get("")
def models_page(
    models: Models, jobs: Jobs, reader: Reader, after: Cursor = None, if_none_match: IfNoneMatch = None
) -> Response:
    """Show the models that have a release, by name."""
    found = models.models(limit=_PAGE, after=after)
    rows = tuple(_row(name, models, jobs) for name in found.names)
    page = ModelsPage(reader=reader, rows=rows, next=found.next, is_first=after is None)
    return answer(page, if_none_match)


@router.get("/{name}")
def model_page(
    name: Name,
    models: Models,
    jobs: Jobs,
    reader: Reader,
    changed: bool = False,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Show a model's newest releases, and which of them is promoted."""
    page = ModelPage(
        reader=reader,
        name=name,
        releases=tuple(_record_of(each, jobs) for each in _list_releases(name, models)),
        promoted=_promoted(name, models),
        previous=models.get_previous(name),
        notes=models.promotions(name),
        changed=changed,
    )
    return answer(page, if_none_match)


@router.get("/{name}/figures")
def figures_page(
    name: Name, models: Models, jobs: Jobs, reader: Reader, if_none_match: IfNoneMatch = None
) -> Response:
    """Show the figures of a model's newest releases, for which their manifests are read."""
    records = [_with_manifests(_record_of(each, jobs), jobs) for each in _list_releases(name, models)]
    promoted = _promoted(name, models)
    page = FiguresPage(
        reader=reader,
        name=name,
        oldest_first=tuple(records[::-1]),
        promoted_id=promoted.job_id if promoted else None,
        unread=sum(len(_manifests_of(each.release)) - len(each.manifests) for each in records),
    )
    return answer(page, if_none_match)


@router.post("/{name}/promote")
def promote(name: Name, form: Form, models: Models, caller: Admin) -> Response:
    """Promote the release of the form's job, with `force` also one that its gate does not bless."""
    job_id = form.get("job_id", "")
    if not is_job_id(job_id):
        raise InvalidRequest("job_id: it is no job's id", hint="use the buttons of the model's page")
    wanted = Promotion(job_id=job_id, force=form.get("force") == "yes")
    release_calls.promote(name, wanted, models, caller)
    return _show(name)


@router.post("/{name}/roll-back")
def roll_back(name: Name, form: Form, models: Models, caller: Admin) -> Response:
    """Promote the release before the one that the form names; show the page if that is no longer promoted."""
    promoted = models.get_promoted(name)
    if promoted.job_id != form.get("from"):
        return _show(name, "?changed=1")
    try:
        release = models.roll_back(name, caller.name, expected=promoted.job_id)
    except ModelNotFound:
        now = _promoted(name, models)
        if now is not None and now.job_id == promoted.job_id:
            raise  # there is no earlier release
        return _show(name, "?changed=1")
    record(caller, "roll-back", f"{name} to {release.job_id}")
    return _show(name)


def _show(name: str, query: str = "") -> Response:
    return RedirectResponse(f"/pages/models/{quote(name)}{query}", status.HTTP_303_SEE_OTHER)


def _row(name: str, models: Releases, jobs: JobControl) -> ModelRow:
    try:
        latest = models.find_latest(name)
    except ModelNotFound:  # its jobs have been deleted
        latest = None
    promoted = _promoted(name, models)
    job = _job(jobs, latest.job_id) if latest else None
    return ModelRow(
        name=name,
        family=job.family if job else None,
        latest=latest,
        promoted=promoted,
        note=note_of(promoted, models.promotions(name)[:1]),
    )


def _promoted(name: str, models: Releases) -> Release | None:
    try:
        return models.get_promoted(name)
    except ModelNotFound:
        return None


def _list_releases(name: str, models: Releases) -> Sequence[Release]:
    """Return the newest releases, newest first, and the promoted one; ModelNotFound if there is neither."""
    promoted = _promoted(name, models)
    try:
        newest = models.newest(name, limit=_MOST_RELEASES)
    except ModelNotFound:
        if promoted is None:
            raise
        newest = ()
    is_among = promoted is None or any(each.job_id == promoted.job_id for each in newest)
    return newest if is_among or promoted is None else (*newest, promoted)


def _record_of(release: Release, jobs: JobControl) -> ReleaseRecord:
    ids = {release.job_id, *(tower.job_id for tower in release.towers)}
    found = {job_id: job for job_id in ids if (job := _job(jobs, job_id))}
    return ReleaseRecord(release=release, jobs=found, manifests={})


def _job(jobs: JobControl, job_id: JobId) -> Job | None:
    try:
        return jobs.get(job_id)
    except (JobNotFound, RecordUnreadable):
        return None


def _manifests_of(release: Release) -> dict[str, JobId]:
    return {tower.manifest_uri: tower.job_id for tower in release.towers}


def _with_manifests(found: ReleaseRecord, jobs: JobControl) -> ReleaseRecord:
    """Return the release with those of its manifests that can be read."""
    manifests = {}
    for uri, job_id in _manifests_of(found.release).items():
        if (job := found.jobs.get(job_id)) is None:
            continue
        try:
            manifests[uri] = read_once(uri, jobs.places_of(job), job.spec.output_uri)
        except ExportError:  # the other figures are still useful; the page counts what is missing
            continue
    return ReleaseRecord(release=found.release, jobs=found.jobs, manifests=manifests)
