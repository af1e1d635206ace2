"""Reading a job's server-sent events, line by line."""

from service.schemas import JobView

END = "end"


class EventReader:
    """Gathers lines to events; `job` and `ended` say what the last blank line completed."""

    def __init__(self) -> None:
        """Begin before the first line."""
        self.job: JobView | None = None
        self.ended = False
        self._fields: dict[str, str] = {}

    def take(self, line: str) -> JobView | None:
        """The job that this line completes an event about, if it does."""
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")  # a comment's name is empty
            return None
        fields, self._fields = self._fields, {}
        if fields.get("event") == END:
            self.ended = True
        if fields.get("event") != "job":
            return None
        self.job = JobView.model_validate_json(fields["data"])
        return self.job

    @property
    def headers(self) -> dict[str, str]:
        """What to ask with, so that nothing is told twice."""
        return {"Last-Event-ID": str(self.job.revision)} if self.job else {}
