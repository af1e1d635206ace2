"""Entity tags of jobs: a poller is told when nothing has changed."""

from jobs.model import Job


def etag_of(job: Job) -> str:
    return f'"{job.revision}"'


def matches(if_none_match: str | None, job: Job) -> bool:
    """Whether the header names the job's tag, weakly compared as RFC 9110 says."""
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag_of(job) in tags
