"""Entity tags of jobs, by which a poller learns that nothing has changed."""

from service.schemas import JobView


def etag_of(job: JobView) -> str:
    """Return the record's revision, with the targets that no worker serves: those are not in the record."""
    return f'"{"-".join((str(job.revision), *job.unserved))}"'


def matches(if_none_match: str | None, job: JobView) -> bool:
    """Return whether the header names the job's tag, by the weak comparison of RFC 9110."""
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag_of(job) in tags
