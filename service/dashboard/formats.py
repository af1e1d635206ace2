"""Formats of quantities for people: the filters of the templates."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from exporter.redaction import escape_deceptive
from exporter.reports.comparison_text import share
from jobs.model import Job

_MINUTE, _HOUR = 60, 3600
_SHORT = 8


def seconds(value: float) -> str:
    """Format a duration: "3 ms", "4.2 s", "48 s", "1 min 05 s", "2 h 03 min"."""
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 9.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} min"


def size(count: int) -> str:
    """Format a number of bytes: "512 bytes", "2.8 MB"."""
    if count < 1000:
        return f"{count} bytes"
    value, unit = float(count), "bytes"
    for unit in ("kB", "MB", "GB", "TB"):  # noqa: B007 (the last unit reached is shown)
        value /= 1000
        if value < 999.5:
            break
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"


def milliseconds(value: float) -> str:
    """Format a latency: "0.019 ms", "31 ms"."""
    return f"{value:.2g} ms" if value < 10 else f"{value:.0f} ms"


def number(value: float) -> str:
    """Format a small difference: "8.9e-08"."""
    return f"{value:.2g}"


def moment(value: datetime) -> str:
    """Format a time for programs: RFC 3339 in UTC."""
    return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock(value: datetime) -> str:
    """Format a time for people, in UTC, so that it is the same for all of them."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def words(value: str) -> str:
    """Format a name of the code as words."""
    return value.replace("_", " ")


def short(job_id: str) -> str:
    """Shorten an id to its end, which differs for jobs of the same minute."""
    return job_id[-_SHORT:]


def headline(job: Job) -> str:
    """Name a job's model in a few words: its name, its family, and the end of its checkpoint's URI."""
    parts = [part for part in job.spec.checkpoint_uri.split("/") if part]
    checkpoint = "/".join(parts[-2:]) or job.spec.checkpoint_uri
    return " · ".join(part for part in (job.model, job.family, checkpoint) if part)


def took(job: Job) -> float | None:
    """Return the seconds from the start of a finished job's last attempt to its end."""
    if job.started_at is None or job.finished_at is None:
        return None
    return (job.finished_at - job.started_at).total_seconds()


def plain(text: str) -> str:
    """Write out characters of strangers' texts that would hide or reorder what is beside them."""
    return escape_deceptive(text)


FILTERS: Mapping[str, Callable[..., str | float | None]] = {
    each.__name__: each
    for each in (
        seconds,
        size,
        milliseconds,
        number,
        moment,
        clock,
        words,
        short,
        headline,
        took,
        share,
        plain,
    )
}
