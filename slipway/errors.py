"""The error of an export from Python."""

from exporter.errors import ExportError
from exporter.outcome import Failure


class ExportFailed(ExportError):
    """The process that exports ended without a result, or with a failure, whose code this error carries."""

    code = "export_failed"
    advice = "read its lines of progress; export again with `slipway export` to see more"

    @classmethod
    def of(cls, failure: Failure, where: str = "") -> "ExportFailed":
        """Return the error of a failure; `where` is put in front of its message."""
        error = cls(f"{where}{failure.message}", hint=failure.hint, where=failure.where)
        error.code, error.retryable, error.report = failure.code, failure.retryable, failure.report
        return error
