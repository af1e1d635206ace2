"""A client's patience: with a job that has not ended, and with a service that does not answer."""

import time

from slipway.rest.answers import JobView
from slipway.rest.calls import UNREACHABLE_S
from slipway.rest.errors import SlipwayError, StillRunning


class Wait:
    """One wait for the end of a job: for `timeout_s` seconds, or for as long as it takes."""

    def __init__(self, timeout_s: float | None) -> None:
        """Begin before the first look at the job."""
        self._answered = time.monotonic()
        self._end = None if timeout_s is None else self._answered + timeout_s

    def goes_on(self, job: JobView) -> bool:
        """Return whether to look at the job again; raise StillRunning if the time for that is over."""
        if job.state.is_final:
            return False
        if self._end is not None and time.monotonic() > self._end:
            raise StillRunning(job)
        return True

    def note_answer(self) -> None:
        """Be patient again for as long as at the beginning: the service has answered."""
        self._answered = time.monotonic()

    def raise_unless_retryable(self, error: SlipwayError) -> None:
        """Raise the error again, unless the service may yet answer."""
        if not error.retryable or time.monotonic() > self._answered + UNREACHABLE_S:
            raise error
