"""The caller of a request, and the scopes that say what the caller may do."""

from dataclasses import dataclass
from enum import StrEnum

from exporter.storage.uris import NO_RULES, UriRules
from jobs.control.control import NO_OWNER, Owner
from jobs.model import ANYONE


class Scope(StrEnum):
    """A right that a key or token gives; each scope includes those before it."""

    READ = "read"  # look at jobs, logs, artifacts, metrics
    SUBMIT = "submit"  # also start, cancel and retry exports
    ADMIN = "admin"  # also delete, promote, and set up triggers and subscriptions

    @property
    def covered(self) -> frozenset["Scope"]:
        """This scope and the ones it includes."""
        order = list(Scope)
        return frozenset(order[: order.index(self) + 1])


@dataclass(frozen=True)
class Caller:
    """The sender of a request, as identified by its key or token."""

    name: str
    scopes: frozenset[Scope]
    owner: Owner

    def may(self, scope: Scope) -> bool:
        return any(scope in own.covered for own in self.scopes)

    @property
    def sees(self) -> UriRules:
        """The rules that a job's URIs must meet for the caller to see it; an admin sees every job."""
        return NO_RULES if self.may(Scope.ADMIN) else self.owner.uris

    @property
    def sees_all(self) -> bool:
        return self.sees == NO_RULES


LOCAL = Caller(ANYONE, frozenset({Scope.ADMIN}), NO_OWNER)  # every caller of a service without keys
