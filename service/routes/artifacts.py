"""Routes for the artifact that a job published: its manifest, its comparison, and its towers' packages."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response, status
from fastapi.responses import RedirectResponse, StreamingResponse

from exporter.artifact.read import read_manifest, root_of
from exporter.artifact.stored_comparison import read_comparison
from exporter.errors import InvalidArtifact, SourceNotFound, StorageError, UriNotAllowed
from exporter.manifest import Manifest
from exporter.reports.comparison import Comparison
from exporter.spec import Target, TowerName
from exporter.storage.open import Opener, split_uri
from jobs.control.control import JobControl
from jobs.errors import JobNotFound, NoArtifact, RecordUnreadable
from jobs.model import Job, TowerProgress
from service.access.guard import reading
from service.dependencies import Jobs, Settings
from service.errors import keyed_responses

router = APIRouter(prefix="/exports", tags=["artifacts"], dependencies=[Depends(reading)])

AskedTarget = Annotated[
    Target | None,
    Query(description="One target of a job with several; default: the first that was published."),
]

_RESPONSES = keyed_responses(JobNotFound, NoArtifact, StorageError, UriNotAllowed, RecordUnreadable)


@router.get("/{job_id}/manifest", responses=_RESPONSES)
def manifest(job_id: str, jobs: Jobs, target: AskedTarget = None) -> Manifest:
    """Return the manifest of the artifact that the job published."""
    job = jobs.get(job_id)
    uri = _manifest_uri(job, target)
    try:
        return read_manifest(uri, opened=_opener(jobs, job))
    except InvalidArtifact as error:
        raise _no_longer_there(uri) from error


@router.get("/{job_id}/diff", responses=_RESPONSES)
def diff(job_id: str, jobs: Jobs, target: AskedTarget = None) -> Comparison:
    """Return the comparison of the job's artifact with the release that it was judged against."""
    job = jobs.get(job_id)
    found = find_comparison(jobs, job, target)
    if found is None:
        raise NoArtifact(
            f"job {job.id} was compared with no other release",
            hint=f"compare it with one yourself: slipway diff OLD {job.id}",
        )
    return found


def find_comparison(jobs: JobControl, job: Job, target: Target | None = None) -> Comparison | None:
    """Read the comparison beside what the job published; None if there is none.

    Raises:
        NoArtifact: the job has published nothing for the target, or the comparison is damaged.
    """
    uri = _manifest_uri(job, target)
    try:
        found = read_comparison(_opener(jobs, job)(root_of(uri)))
    except InvalidArtifact as error:
        raise NoArtifact(error.message, hint="compare the releases again: slipway diff", where=uri) from error
    if found is not None and found.new.job_id != job.id:
        raise NoArtifact(f"the comparison beside {uri} is of job {found.new.job_id}", where=uri)
    return found


def _manifest_uri(job: Job, target: Target | None) -> str:
    uri = job.manifest_uris.get(target) if target and len(job.spec.targets) > 1 else job.manifest_uri
    if uri is None or (target and target not in job.spec.targets):
        raise _not_published(job)
    return uri


@router.get(
    "/{job_id}/towers/{tower}/artifact",
    response_class=Response,
    responses={
        **_RESPONSES,
        status.HTTP_200_OK: {
            "description": "The package, `aoti_model.pt2`, from a store that offers no download links.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        status.HTTP_307_TEMPORARY_REDIRECT: {
            "description": "A download link to the object store, which works for some minutes."
        },
    },
)
def artifact(
    job_id: str, tower: TowerName, jobs: Jobs, settings: Settings, target: AskedTarget = None
) -> Response:
    """Return one tower's package. In mode `two_stage` it is the dense one; the manifest names both."""
    job = jobs.get(job_id)
    published = [each for each in job.towers if each.name is tower and each.package_uri is not None]
    for_target = [each for each in published if target in (None, each.target or job.spec.targets[0])]
    found = next(iter(for_target), None)
    if found is None or found.package_uri is None:
        raise _not_published(job)
    folder, key = split_uri(found.package_uri)
    store = _opener(jobs, job)(folder)
    try:
        size = store.size(key)
        link = store.link(key, timedelta(seconds=settings.link_lifetime), settings.link_endpoint)
    except SourceNotFound as error:
        raise _no_longer_there(found.package_uri) from error
    if link is not None:
        return RedirectResponse(link, status.HTTP_307_TEMPORARY_REDIRECT)
    return _stream(store.chunks(key), size, found)


def _opener(jobs: JobControl, job: Job) -> Opener:
    """Return what opens stores in the job's output alone, without following links that were laid there."""
    return partial(jobs.places_of(job).open_output, job.spec.output_uri)


def _stream(chunks: Iterator[bytes], size: int, tower: TowerProgress) -> Response:
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{tower.name}-aoti_model.pt2"',
    }
    if tower.digest:
        headers["ETag"] = f'"{tower.digest}"'
    return StreamingResponse(chunks, headers=headers, media_type="application/octet-stream")


def _not_published(job: Job) -> NoArtifact:
    return NoArtifact(
        f"job {job.id} is {job.state} and has not published what was asked for",
        hint="the job's towers say which of them are published, and why others are not",
    )


def _no_longer_there(uri: str) -> NoArtifact:
    return NoArtifact(f"{uri} is no longer there", hint="post the export again with `force`", where=uri)
