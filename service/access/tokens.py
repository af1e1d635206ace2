"""OpenID Connect bearer tokens: checked against the issuer's published keys."""

from collections.abc import Sequence
from json import JSONDecodeError
from typing import Annotated

import jwt
from pydantic import Field, ValidationError, field_validator

from exporter.spec import Frozen
from service.access.callers import Caller, Scope
from service.access.rules import TokenRule, owner_by
from service.errors import IssuerUnreachable

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA")
_PREFIX = "slipway:"  # of the scopes that are ours
_OURS = "oidc:"  # before each subject: no name of a key holds a colon
_LEEWAY_S = 30
_TIMEOUT_S = 5


class _Claims(Frozen):
    sub: Annotated[str, Field(pattern=r"^[\w.@|:/+=-]{1,128}$")]
    scope: frozenset[Scope]

    @field_validator("scope", mode="before")
    @classmethod
    def _ours(cls, given: object) -> object:
        """Of the space-separated scopes, those that begin with `slipway:`."""
        words = given.split() if isinstance(given, str) else ()
        return [word.removeprefix(_PREFIX) for word in words if word.startswith(_PREFIX)]


class TokenCheck:
    """Finds who a token speaks for."""

    def __init__(self, *, issuer: str, audience: str, jwks_url: str, rules: Sequence[TokenRule] = ()) -> None:
        """Trust tokens that `issuer` signed for `audience`, by the keys at `jwks_url`; rules bind them."""
        self._rules = rules
        self._issuer = issuer
        self._audience = audience
        self._keys = jwt.PyJWKClient(jwks_url, timeout=_TIMEOUT_S)

    def find(self, token: str) -> Caller | None:
        """The token's caller; None when it is none of the issuer's, expired, for others, or fits no rule.

        Raises:
            IssuerUnreachable: the issuer's keys are needed, and are not to be had.
        """
        try:
            key = self._keys.get_signing_key_from_jwt(token)
        except (jwt.PyJWKClientConnectionError, JSONDecodeError) as error:
            raise IssuerUnreachable(
                f"the keys of {self._issuer} could not be fetched", where=self._issuer
            ) from error
        except jwt.PyJWTError:
            return None
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                issuer=self._issuer,
                audience=self._audience,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            told = _Claims.model_validate({"sub": claims["sub"], "scope": claims.get("scope", "")})
        except (jwt.PyJWTError, ValidationError):
            return None
        owner = owner_by(self._rules, f"{_OURS}{told.sub}", claims)
        return Caller(owner.name, told.scope, owner) if owner else None
