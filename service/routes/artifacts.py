"""Routes for the artifact that a job published: its manifest, its comparison, and its towers' packages."""

from datetime import timedelta
from functools import partial
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Response, status
from fastapi.responses import RedirectResponse, StreamingResponse

from exporter.artifact.read import read_manifest, root_of
from exporter.artifact.signing import SIGNATURE_NAME
from exporter.artifact.stored_comparison import read_comparison
from exporter.errors import InvalidArtifact, SourceNotFound, StorageError, UriNotAllowed
from exporter.manifest import MANIFEST_NAME, FileRef, Manifest
from exporter.reports.comparison import Comparison
from exporter.spec import Target, TowerName
from exporter.storage.open import Opener, split_uri
from jobs.control.control import JobControl
from jobs.errors import JobNotFound, NoArtifact, RecordUnreadable
from jobs.model import Job
from service.access.guard import reading
from service.dependencies import Jobs, Settings
from service.errors import keyed_responses
from service.settings import ServiceSettings

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
    return _file_response(
        _opener(jobs, job), folder, key, settings, name=f"{found.name}-aoti_model.pt2", digest=found.digest
    )


@router.get(
    "/{job_id}/files/{path:path}",
    response_class=Response,
    responses={
        **_RESPONSES,
        status.HTTP_200_OK: {
            "description": "The file, from a store that offers no download links.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        status.HTTP_307_TEMPORARY_REDIRECT: {
            "description": "A download link to the object store, which works for some minutes."
        },
    },
)
def file(job_id: str, path: str, jobs: Jobs, settings: Settings, target: AskedTarget = None) -> Response:
    """Return one file of the artifact by its path in the manifest; also the manifest and its signature."""
    job = jobs.get(job_id)
    uri = _manifest_uri(job, target)
    opener = _opener(jobs, job)
    digest = None if path in (MANIFEST_NAME, SIGNATURE_NAME) else _find_file(uri, path, opener).sha256
    return _file_response(opener, root_of(uri), path, settings, name=path.replace("/", "-"), digest=digest)


def _find_file(uri: str, path: str, opener: Opener) -> FileRef:
    """Return a file that the manifest names; nothing else below the artifact's folder can be had."""
    try:
        named = [file for tower in read_manifest(uri, opened=opener).towers for file in tower.all_files]
    except InvalidArtifact as error:
        raise _no_longer_there(uri) from error
    found = next((each for each in named if each.path == path), None)
    if found is None:
        raise NoArtifact(
            f"the artifact has no file {path}", hint="give the `path` of a file in its manifest", where=uri
        )
    return found


def _file_response(
    opener: Opener, root: str, key: str, settings: ServiceSettings, *, name: str, digest: str | None
) -> Response:
    """Answer with a link to the file, or with the file where the store offers no links."""
    store = opener(root)
    try:
        size = store.size(key)
        link = store.link(key, timedelta(seconds=settings.link_lifetime), settings.link_endpoint)
    except SourceNotFound as error:
        raise _no_longer_there(store.uri_of(key)) from error
    if link is not None:
        return RedirectResponse(link, status.HTTP_307_TEMPORARY_REDIRECT)
    headers = {"Content-Length": str(size), "Content-Disposition": f'attachment; filename="{quote(name)}"'}
    if digest:
        headers["ETag"] = f'"{digest}"'
    return StreamingResponse(store.chunks(key), headers=headers, media_type="application/octet-stream")


def _opener(jobs: JobControl, job: Job) -> Opener:
    """Return what opens stores in the job's output alone, without following links that were laid there."""
    return partial(jobs.places_of(job).open_output, job.spec.output_uri)


def _not_published(job: Job) -> NoArtifact:
    return NoArtifact(
        f"job {job.id} is {job.state} and has not published what was asked for",
        hint="the job's towers say which of them are published, and why others are not",
    )


def _no_longer_there(uri: str) -> NoArtifact:
    return NoArtifact(f"{uri} is no longer there", hint="post the export again with `force`", where=uri)
