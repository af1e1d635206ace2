"""What a job published: its manifest, and its towers' packages."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response, status
from fastapi.responses import RedirectResponse, StreamingResponse

from exporter.artifact.read import read_manifest
from exporter.errors import InvalidArtifact, SourceNotFound, StorageError
from exporter.manifest import Manifest
from exporter.spec import Target, TowerName
from exporter.storage.open import open_store, split_uri
from jobs.errors import JobNotFound, NoArtifact, StoreUnavailable
from jobs.model import Job, TowerProgress
from service.access.guard import reading
from service.dependencies import Jobs, Settings
from service.errors import Forbidden, Unauthenticated, problem_responses

router = APIRouter(prefix="/exports", tags=["artifacts"], dependencies=[Depends(reading)])

AskedTarget = Annotated[
    Target | None, Query(description="Of a job with several targets; default: the first that was published.")
]

_RESPONSES = problem_responses(
    JobNotFound, NoArtifact, StorageError, StoreUnavailable, Unauthenticated, Forbidden
)


@router.get("/{job_id}/manifest", responses=_RESPONSES)
def manifest(job_id: str, jobs: Jobs, target: AskedTarget = None) -> Manifest:
    """The description of what the job published."""
    job = jobs.get(job_id)
    uri = job.manifest_uris.get(target) if target and len(job.spec.targets) > 1 else job.manifest_uri
    if uri is None or (target and target not in job.spec.targets):
        raise _nothing(job)
    try:
        return read_manifest(uri)
    except InvalidArtifact as error:
        raise _gone(uri) from error


@router.get(
    "/{job_id}/towers/{tower}/artifact",
    response_class=Response,
    responses={
        **_RESPONSES,
        status.HTTP_200_OK: {
            "description": "The package, `aoti_model.pt2`, from a store without links.",
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        status.HTTP_307_TEMPORARY_REDIRECT: {"description": "A link that works for some minutes."},
    },
)
def artifact(
    job_id: str, tower: TowerName, jobs: Jobs, settings: Settings, target: AskedTarget = None
) -> Response:
    """One tower's package. In two_stage this is the dense one; the manifest names both."""
    job = jobs.get(job_id)
    of_name = [each for each in job.towers if each.name is tower and each.package_uri is not None]
    wanted = [each for each in of_name if target in (None, each.target or job.spec.targets[0])]
    found = next(iter(wanted), None)
    if found is None or found.package_uri is None:
        raise _nothing(job)
    folder, key = split_uri(found.package_uri)
    store = open_store(folder)
    try:
        size = store.size(key)
        link = store.link(key, timedelta(seconds=settings.link_lifetime), settings.link_endpoint)
    except SourceNotFound as error:
        raise _gone(found.package_uri) from error
    if link is not None:
        return RedirectResponse(link, status.HTTP_307_TEMPORARY_REDIRECT)
    return _stream(store.chunks(key), size, found)


def _stream(chunks: Iterator[bytes], size: int, tower: TowerProgress) -> Response:
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{tower.name}-aoti_model.pt2"',
    }
    if tower.digest:
        headers["ETag"] = f'"{tower.digest}"'
    return StreamingResponse(chunks, headers=headers, media_type="application/octet-stream")


def _nothing(job: Job) -> NoArtifact:
    return NoArtifact(
        f"job {job.id} has {job.state} and published nothing of the kind",
        hint="the job's towers say which of them are published, and why others are not",
    )


def _gone(uri: str) -> NoArtifact:
    return NoArtifact(f"{uri} is no longer there", hint="post the export again with `force`", where=uri)
