"""Routes that show a job: its page, and what it links to about its packages."""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from exporter.artifact.read import root_of
from exporter.artifact.signing import SIGNATURE_NAME
from exporter.errors import ExportError
from exporter.spec import Target
from exporter.storage.places import Places
from exporter.towers.plan import PlanRequest
from jobs.control.releases import Release, Releases
from jobs.errors import ModelNotFound
from jobs.model import Job
from service.access.guard import Reader
from service.dashboard.diff_page import DiffPage, DiffView
from service.dashboard.job.files import FilesPage, TargetFiles
from service.dashboard.job.page import JobDetailsPage
from service.dashboard.manifests import read_once
from service.dashboard.pages import PlanPage, ReportPage, TargetReport
from service.dashboard.render import answer
from service.dashboard.route import PageRoute
from service.dependencies import Jobs, Models
from service.planning import view_plan
from service.routes.artifacts import find_comparison

router = APIRouter(prefix="/jobs/{job_id}", route_class=PageRoute)

IfNoneMatch = Annotated[str | None, Header()]


@router.get("")
def job_page(
    job_id: str, jobs: Jobs, models: Models, reader: Reader, if_none_match: IfNoneMatch = None
) -> Response:
    """Show the current state of one job."""
    job = jobs.get(job_id)
    page = JobDetailsPage(reader=reader, job=job, promoted=_find_promoted(models, job))
    return answer(page, if_none_match)


@router.get("/plan")
def plan_page(job_id: str, jobs: Jobs, reader: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """Show the job's dim plan."""
    job = jobs.get(job_id)
    plan = view_plan(PlanRequest.model_validate(jobs.spec_with_config(job).model_dump()))
    return answer(PlanPage(reader=reader, job=job, plan=plan), if_none_match)


@router.get("/report")
def report_page(
    job_id: str,
    jobs: Jobs,
    reader: Reader,
    target: Target | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Show the job's verification, from its manifests: for all of its targets, or for one of them."""
    job = jobs.get(job_id)
    several = len(job.spec.targets) > 1
    chosen = target if several and target in job.spec.targets else None
    targets = (chosen,) if chosen else job.spec.targets if several else (None,)
    reports = tuple(_report(jobs.places_of(job), job, each) for each in targets)
    return answer(ReportPage(reader=reader, job=job, reports=reports, chosen=chosen), if_none_match)


@router.get("/files")
def files_page(job_id: str, jobs: Jobs, reader: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """Show the files that the job has published, with their digests."""
    job = jobs.get(job_id)
    targets = job.spec.targets if len(job.spec.targets) > 1 else (None,)
    files = tuple(_files(jobs.places_of(job), job, each) for each in targets)
    return answer(FilesPage(reader=reader, job=job, targets=files), if_none_match)


@router.get("/diff")
def diff_page(
    job_id: str,
    jobs: Jobs,
    models: Models,
    reader: Reader,
    target: Target | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Show the comparison with the release that the job was judged against, or how to get one."""
    job = jobs.get(job_id)
    comparison, problem = None, "This export was compared with no other release."
    try:
        comparison = find_comparison(jobs, job, target)
    except ExportError as error:
        problem = f"There is no comparison to show: {error.message}."
    view = DiffView(comparison=comparison) if comparison else None
    promoted = _find_promoted(models, job)
    page = DiffPage(reader=reader, job=job, view=view, problem=problem, promoted=promoted)
    return answer(page, if_none_match)


def _find_promoted(models: Releases, job: Job) -> Release | None:
    """Return the promoted release of the job's model; None if there is none, or none that the reader sees."""
    if job.model is None or not job.state.is_final:
        return None
    try:
        return models.get_promoted(job.model)
    except ModelNotFound:
        return None


def _report(places: Places, job: Job, target: Target | None) -> TargetReport:
    """Read the manifest of one target, or say why there is none to show."""
    uri = _manifest_uri(job, target)
    if uri is None:
        return TargetReport(
            target=target, problem="Nothing is published, so there is no verification to show."
        )
    try:
        return TargetReport(target=target, manifest=read_once(uri, places, job.spec.output_uri))
    except ExportError as error:  # the rest of the page is still useful
        return TargetReport(target=target, problem=f"The manifest cannot be read: {error.message}.")


def _files(places: Places, job: Job, target: Target | None) -> TargetFiles:
    """Read which files one target has, or say why there are none to show."""
    uri = _manifest_uri(job, target)
    if uri is None:
        return TargetFiles(job=job, target=target, problem="Nothing is published, so there are no files.")
    try:
        manifest = read_once(uri, places, job.spec.output_uri)
        is_signed = places.open_output(job.spec.output_uri, root_of(uri)).exists(SIGNATURE_NAME)
    except ExportError as error:
        problem = f"The manifest cannot be read: {error.message}."
        return TargetFiles(job=job, target=target, problem=problem)
    return TargetFiles(job=job, target=target, uri=uri, manifest=manifest, is_signed=is_signed)


def _manifest_uri(job: Job, target: Target | None) -> str | None:
    return job.manifest_uris.get(target) if target else job.manifest_uri
