"""The outcome of an export: one record per tower, which rank 0 writes as outcome.json."""

import errno
import os

from pydantic import Field, ValidationInfo, field_validator

from exporter.errors import (
    LONGEST_HINT,
    LONGEST_MESSAGE,
    LONGEST_PLACE,
    LONGEST_REPORT,
    ExportError,
    StorageError,
    fit_to_show,
)
from exporter.manifest import TowerEntry
from exporter.reports.release_report import ReleaseReport
from exporter.spec import Frozen, TowerName
from slipway.rest.errors import SlipwayError

_LONGEST = {
    "message": LONGEST_MESSAGE,
    "hint": LONGEST_HINT,
    "where": LONGEST_PLACE,
    "report": LONGEST_REPORT,
}
_NO_SPACE = os.strerror(errno.ENOSPC)
_MAKE_ROOM = "make room below TMPDIR, or where the worker has its workspaces"
_REPORT_IT = "report it with the log: it is a fault in Slipway"


class Failure(Frozen):
    """The reason why a tower or the whole export failed, and what the caller can do about it."""

    code: str
    message: str
    hint: str = ""
    where: str = ""
    retryable: bool = False
    report: str = Field(
        default="", description="Details that are too long for `message`, cut after 8,000 characters."
    )
    bundle_url: str = Field(default="", description="URL of a zip with diagnostics of the failure.")

    @field_validator("message", "hint", "where", "report")
    @classmethod
    def _fit_to_show(cls, text: str, field: ValidationInfo) -> str:
        """Shorten it, without secrets and hidden characters: an attempt repeats text of strangers."""
        return fit_to_show(text, _LONGEST[str(field.field_name)])

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Describe an error; one outside the tree is reported as `internal_error`, unless a disk is full."""
        if isinstance(error, ExportError | SlipwayError):
            return cls(
                code=error.code,
                message=error.message,
                hint=error.hint,
                where=error.where,
                retryable=error.retryable,
                report=error.report if isinstance(error, ExportError) else "",
            )
        if _NO_SPACE in str(error):  # some libraries that write files raise no OSError
            full = StorageError(f"a disk is full: {error}", hint=_MAKE_ROOM)
            return cls(code=full.code, message=full.message, hint=full.hint, retryable=full.retryable)
        return cls(code="internal_error", message=f"{type(error).__name__}: {error}", hint=_REPORT_IT)


class TowerOutcome(Frozen):
    """One tower: either published, with its entry and URI, or failed, with the reason."""

    tower: TowerName
    entry: TowerEntry | None = None
    package_uri: str | None = None
    failure: Failure | None = None


class ExportOutcome(Frozen):
    """The outcome of all towers; `failure` is set if no tower could be tried at all."""

    towers: tuple[TowerOutcome, ...] = ()
    manifest_uri: str | None = None
    manifest_sha256: str | None = None  # None if an earlier attempt wrote the manifest
    failure: Failure | None = None
    release: ReleaseReport | None = None  # the verdict of the release gate, if the request asks for one
    release_sha256: str | None = None  # of release.json; None if there is none beside the manifest
