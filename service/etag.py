"""Entity tags of jobs: a poller is told when nothing has changed."""

from service.schemas import JobView


def etag_of(job: JobView) -> str:
    """The record's revision; and what it waits for in vain, which is no part of the record."""
    return f'"{"-".join((str(job.revision), *job.unserved))}"'


def matches(if_none_match: str | None, job: JobView) -> bool:
    """Whether the header names the job's tag, weakly compared as RFC 9110 says."""
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag_of(job) in tags
