"""The releases that a caller may see: names of models are shared by all callers, releases are not."""

from dataclasses import dataclass

from jobs.control.promotions import PromotionNote
from jobs.control.releases import NO_LABELS, PROMOTED, ModelPage, Release, Releases
from jobs.errors import JobNotFound, ModelNotFound, RecordUnreadable
from jobs.ids import JobId

MOST_READ = 1000  # releases read of one model, and for one page of models
_LAST = 2**31


@dataclass(frozen=True)
class VisibleReleases(Releases):
    """The releases whose jobs the store shows; a model without any is as one that does not exist.

    The store is one that shows a caller's jobs only (see jobs.stores.visible_jobs).
    """

    def models(self, *, limit: int, after: str | None = None) -> ModelPage:
        """Return models that have a visible release; fewer than `limit` need not be the last.

        `after` is a position, because a name would show a model that the caller does not see.
        """
        found: list[str] = []
        at = min(int(after), _LAST) if after is not None and after.isdecimal() else 0
        read = 0
        while len(found) < limit and read < MOST_READ:
            name = self.pointers.model_at(at)
            if name is None:
                return ModelPage(tuple(found), None)
            at += 1
            newest_first = self._newest(name)
            read += 1 + len(newest_first)
            if self._find_release(newest_first, NO_LABELS) is not None:
                found.append(name)
        return ModelPage(tuple(found), str(at))

    def get_promoted(self, model: str) -> Release:
        """Return the promoted release if the caller sees its job."""
        release = super().get_promoted(model)
        if not self._sees(release.job_id):
            raise ModelNotFound(model, PROMOTED)
        return release

    def get_previous(self, model: str) -> Release | None:
        release = super().get_previous(model)
        return release if release is not None and self._sees(release.job_id) else None

    def promotions(self, model: str) -> tuple[PromotionNote, ...]:
        """Return the changes by which releases that the caller sees were promoted."""
        return tuple(each for each in super().promotions(model) if self._sees(each.job_id))

    def _sees(self, job_id: JobId) -> bool:
        try:
            self.store.get(job_id)
        except (JobNotFound, RecordUnreadable):
            return False
        return True

    def _newest(self, model: str) -> tuple[JobId, ...]:
        return super()._newest(model)[:MOST_READ]
