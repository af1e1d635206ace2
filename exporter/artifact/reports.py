"""Reports on a published artifact, which are written beside its manifest, once, and read again."""

import hashlib
import logging
from dataclasses import dataclass

from pydantic import ValidationError

from exporter.artifact.put_once import put_once
from exporter.errors import SourceNotFound
from exporter.frozen import Frozen
from exporter.reports.release_report import REPORT_NAME, ReleaseReport
from exporter.storage.store import ArtifactStore, Permission

log = logging.getLogger(__name__)

_LARGEST = 8 << 20  # bytes


@dataclass(frozen=True, kw_only=True)
class StoredVerdict:
    """A verdict of the release gate as the store holds it."""

    report: ReleaseReport
    sha256: str


def put_report(name: str, report: Frozen, store: ArtifactStore, *, may_write: Permission) -> str:
    """Write a report into an artifact's store; return its digest.

    Raises:
        AlreadyPublished: there is another one.
        StorageError: it could not be written.
    """
    text = (report.model_dump_json(indent=2) + "\n").encode()
    put_once(store, name, text, may_write)
    return hashlib.sha256(text).hexdigest()


def find_release_report(store: ArtifactStore, job_id: str) -> StoredVerdict | None:
    """Return the verdict beside a job's manifest; None if there is none, or none that can be used."""
    try:
        data = store.read(REPORT_NAME, limit=_LARGEST)
        report = ReleaseReport.model_validate_json(data)
    except SourceNotFound:
        return None
    except ValidationError:
        log.warning("release_report_unreadable", exc_info=True, extra={"uri": store.uri_of(REPORT_NAME)})
        return None
    if report.job_id != job_id:
        log.warning("release_report_of_another_job", extra={"uri": store.uri_of(REPORT_NAME)})
        return None
    return StoredVerdict(report=report, sha256=hashlib.sha256(data).hexdigest())
