"""The route of the page of all jobs: /."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response

from jobs.model import JobState
from service.access.guard import Reader
from service.dashboard.jobs_page import JobsPage
from service.dashboard.render import answer
from service.dashboard.route import PageRoute
from service.dashboard.search import Wanted, find
from service.dependencies import Jobs, Totals

router = APIRouter(route_class=PageRoute, include_in_schema=False)

IfNoneMatch = Annotated[str | None, Header()]
Words = Annotated[str, Query(max_length=200)]
Value = Annotated[str, Query(max_length=300)]
Before = Annotated[str | None, Query(pattern="^[0-9a-z]{26}$")]


async def _read_search(
    q: Words = "",
    state: JobState | None = None,
    model: Value = "",
    family: Value = "",
    label: Value = "",
    owner: Value = "",
    target: Value = "",
) -> Wanted:
    return Wanted(
        q=q.strip(),
        state=state,
        model=model.strip(),
        family=family.strip(),
        label=label.strip(),
        owner=owner.strip(),
        target=target.strip(),
    )


@router.get("/")
def jobs_page(
    jobs: Jobs,
    totals: Totals,
    reader: Reader,
    wanted: Annotated[Wanted, Depends(_read_search)],
    before: Before = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Show all jobs, newest first, or those that are wanted."""
    page = JobsPage(
        reader=reader,
        found=find(jobs, wanted, before),
        counts={each: totals.count(each) for each in JobState} if totals else {},
        wanted=wanted,
        is_first=before is None,
    )
    return answer(page, if_none_match)
