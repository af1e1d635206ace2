"""Reading a job's server-sent events, line by line."""

import json

from slipway.rest import calls
from slipway.rest.answers import JobView
from slipway.rest.json_values import read

END = "end"


class EventReader:
    """Parses lines into events; `job` is the latest job, `ended` whether its last event has been read."""

    def __init__(self, url: str) -> None:
        """Begin before the first line from the service at `url`."""
        self._url = url
        self.job: JobView | None = None
        self.ended = False
        self._fields: dict[str, str] = {}

    def take(self, line: str) -> JobView | None:
        """Read one line; return the job if the line completes an event about it.

        Raises:
            ServiceUnreachable: the event is none that this version reads.
        """
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")  # the name of a comment is empty
            return None
        fields, self._fields = self._fields, {}
        if fields.get("event") == END:
            self.ended = True
        if fields.get("event") != "job":
            return None
        try:
            self.job = read(JobView, json.loads(fields["data"]))
        except (ValueError, KeyError) as error:
            raise calls.not_ours(self._url) from error
        return self.job

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request that continues after the last event."""
        return {"Last-Event-ID": str(self.job.revision)} if self.job else {}
