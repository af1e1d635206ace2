"""Rules that give the bearers of tokens their limits and URIs, chosen by the claims of the token."""

from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import Field, model_validator

from exporter.spec import Frozen
from exporter.storage.uris import NO_RULES, UriRules
from jobs.control.control import Owner


class TokenRule(Frozen):
    """One rule, for tokens whose claim is `value` or a list that holds it; without a claim, for all."""

    claim: str | None = Field(default=None, min_length=1)
    value: str | None = Field(default=None, min_length=1)
    max_queued: int | None = Field(default=None, ge=0)
    max_running: int | None = Field(default=None, ge=1)
    uris: UriRules = Field(default=NO_RULES, description="URIs that the bearer's exports may read and write.")

    @model_validator(mode="after")
    def _claim_has_a_value(self) -> Self:
        if (self.claim is None) != (self.value is None):
            raise ValueError("give `claim` and `value` both, or neither")
        return self

    def fits(self, claims: Mapping[str, object]) -> bool:
        if self.claim is None:
            return True
        found = claims.get(self.claim)
        return self.value in found if isinstance(found, list) else self.value == found

    def owner(self, name: str) -> Owner:
        return Owner(name, self.max_queued, self.max_running, self.uris)


def owner_by(rules: Sequence[TokenRule], name: str, claims: Mapping[str, object]) -> Owner | None:
    """Return the owner of the bearer's jobs, by the first rule that fits.

    None if there are rules and none fits: such a bearer is refused.
    """
    if not rules:
        return Owner(name)
    return next((rule.owner(name) for rule in rules if rule.fits(claims)), None)
