"""Routes of the forms on a job's page: cancel, retry, promote, and post its request again with changes."""

from dataclasses import replace

from fastapi import APIRouter, Response, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse

from exporter.errors import ExportError
from jobs.errors import NoArtifact
from jobs.ids import JobId
from service.access.guard import Admin, Submitter
from service.audit import record
from service.dashboard.job.rerun import RerunPage, format_request, parse_request
from service.dashboard.render import answer
from service.dashboard.route import Form, PageRoute
from service.dependencies import Jobs, Models, Submitting
from service.errors import describe_invalid, status_of
from service.routes import models as release_calls
from service.schemas import FieldProblem, Promotion

router = APIRouter(prefix="/jobs/{job_id}", route_class=PageRoute)


@router.post("/cancel")
def cancel(job_id: str, jobs: Jobs, caller: Submitter) -> Response:
    """Cancel the job, and show its page again."""
    job = jobs.cancel(job_id)
    record(caller, "cancel", job.id)
    return _show(job.id)


@router.post("/retry")
def retry(job_id: str, jobs: Jobs, caller: Submitter) -> Response:
    """Export the failed towers again, and show the new job."""
    job = jobs.retry(job_id, caller.owner)
    record(caller, "retry", f"{job_id} as {job.id}")
    return _show(job.id)


@router.post("/promote")
def promote(job_id: str, jobs: Jobs, models: Models, caller: Admin, form: Form) -> Response:
    """Promote the job's release as the API does, and show its page again."""
    job = jobs.get(job_id)
    if job.model is None:
        raise NoArtifact(f"job {job.id} is no release: its request names no model")
    wanted = Promotion(job_id=job.id, force=form.get("force") == "yes")
    release_calls.promote(job.model, wanted, models, caller)
    return _show(job.id)


@router.get("/rerun")
def rerun_page(job_id: str, jobs: Jobs, caller: Submitter) -> Response:
    """Show the job's request as JSON to edit."""
    job = jobs.get(job_id)
    return answer(RerunPage(reader=caller, job=job, text=format_request(job)))


@router.post("/rerun")
def rerun(job_id: str, jobs: Jobs, service: Submitting, form: Form) -> Response:
    """Submit the edited request, and show the new job; or show the form again with what is wrong."""
    job, text = jobs.get(job_id), form.get("request", "")
    page = RerunPage(reader=service.caller, job=job, text=text)
    try:
        request = parse_request(text, jobs.config_of(job))
        return _show(service.submit(request).id)
    except RequestValidationError as error:
        invalid, fields = describe_invalid(error)
        return _refuse(page, invalid, fields)
    except ExportError as error:
        return _refuse(page, error)


def _refuse(page: RerunPage, error: ExportError, mistakes: tuple[FieldProblem, ...] = ()) -> Response:
    return answer(replace(page, error=error, mistakes=mistakes), status=status_of(type(error)))


def _show(job_id: JobId) -> Response:
    return RedirectResponse(f"/jobs/{job_id}", status.HTTP_303_SEE_OTHER)
