"""Routes for the texts of a job: its log and its pipeline config, to read and to download."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Response

from exporter.spec import TowerName
from service.access.guard import Reader
from service.dashboard.job.texts import (
    ConfigPage,
    FollowedLogPage,
    LogChoice,
    LogPage,
    StageOrStart,
    format_log,
    read_log,
    show_config,
)
from service.dashboard.render import answer
from service.dashboard.route import PageRoute
from service.dependencies import Jobs, Logs

router = APIRouter(prefix="/jobs/{job_id}", route_class=PageRoute)

IfNoneMatch = Annotated[str | None, Header()]
Words = Annotated[str, Query(max_length=200)]
Anything = Literal[""]  # from a form in which nothing is chosen


async def _choose(
    tower: TowerName | Anything = "", stage: StageOrStart | Anything = "", q: Words = ""
) -> LogChoice:
    return LogChoice(tower=tower or None, stage=stage or None, words=q.strip())


Choice = Annotated[LogChoice, Depends(_choose)]


@router.get("/log")
def log_page(
    job_id: str,
    jobs: Jobs,
    logs: Logs,
    reader: Reader,
    choice: Choice,
    follow: bool = True,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Show the job's log by tower and stage, or the part of it that is chosen."""
    job = jobs.get(job_id)
    kind = FollowedLogPage if follow and not job.state.is_final else LogPage
    page = kind(reader=reader, job=job, choice=choice, parts=read_log(logs, job, choice))
    return answer(page, if_none_match)


@router.get("/log/download")
def log_file(job_id: str, jobs: Jobs, logs: Logs, _reader: Reader, choice: Choice) -> Response:
    """Return what the page of the log shows as a text file."""
    job = jobs.get(job_id)
    return _text_file(format_log(read_log(logs, job, choice)), f"{job.id}-log.txt")


@router.get("/config")
def config_page(job_id: str, jobs: Jobs, reader: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """Show the pipeline config that the job was submitted with."""
    job = jobs.get(job_id)
    text = show_config(jobs.config_of(job))
    return answer(ConfigPage(reader=reader, job=job, text=text), if_none_match)


@router.get("/config/download")
def config_file(job_id: str, jobs: Jobs, _reader: Reader) -> Response:
    """Return the pipeline config as a text file."""
    job = jobs.get(job_id)
    return _text_file(show_config(jobs.config_of(job)) + "\n", f"{job.id}-pipeline.config")


def _text_file(text: str, name: str) -> Response:
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, no-cache",
    }
    return Response(text, headers=headers, media_type="text/plain; charset=utf-8")
