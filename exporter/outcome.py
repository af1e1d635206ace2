"""What became of an export: one record per tower, written by rank 0 as outcome.json."""

import errno
import os

from pydantic import Field, field_validator

from exporter.errors import ExportError, StorageError
from exporter.manifest import TowerEntry
from exporter.redaction import shown
from exporter.spec import Frozen, TowerName

_LONGEST_REPORT = 8000
_NO_SPACE = os.strerror(errno.ENOSPC)
_MAKE_ROOM = "make room below TMPDIR, or where the worker has its workspaces"
_REPORT_IT = "report it with the log: it is a fault in Slipway"


class Failure(Frozen):
    """Why a tower, or the whole export, failed: what a caller can act on."""

    code: str
    message: str
    hint: str = ""
    where: str = ""
    retryable: bool = False
    report: str = Field(default="", description="What is too long for `message`; its beginning.")
    bundle_url: str = Field(default="", description="A zip of what it takes to find out why.")

    @field_validator("message", "hint", "where", "report")
    @classmethod
    def _fit_to_show(cls, text: str) -> str:
        """Whoever wrote it: it may be an attempt that reads what strangers wrote."""
        return shown(text)

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Describe an error; one outside the tree is reported as `internal_error`, unless a disk is full."""
        if isinstance(error, ExportError):
            return cls(
                code=error.code,
                message=error.message,
                hint=error.hint,
                where=error.where,
                retryable=error.retryable,
                report=error.report[:_LONGEST_REPORT],
            )
        if _NO_SPACE in str(error):  # some of those who write files raise no OSError
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
    """The whole export. `failure` is set when nothing could be tried at all."""

    towers: tuple[TowerOutcome, ...] = ()
    manifest_uri: str | None = None
    manifest_sha256: str | None = None  # of what this attempt wrote; None for what an earlier one did
    failure: Failure | None = None
